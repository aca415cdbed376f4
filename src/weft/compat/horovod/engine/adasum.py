"""Adasum: a sum in which parallel parts of two gradients count once and orthogonal parts count in full.

    adasum(a, b) = a (1 - a.b / 2|a|^2) + b (1 - a.b / 2|b|^2)

over pairs of ranks, then over pairs of pairs. Each rank gathers the vectors of all and combines them in the same
order, so that the result has the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def is_power_of_two(size: int) -> bool:
    return size > 0 and not size & (size - 1)


def adasum(vectors: Sequence[Tensor]) -> Tensor:
    """Return the Adasum of as many vectors as a power of two, in float64 or float32."""
    level = list(vectors)
    while len(level) > 1:
        level = [_pair(level[index], level[index + 1]) for index in range(0, len(level), 2)]
    return level[0]


def _pair(a: Tensor, b: Tensor) -> Tensor:
    left, right = a.double().reshape(-1), b.double().reshape(-1)
    dot, a_square, b_square = (float(x) for x in (left @ right, left @ left, right @ right))
    a_factor = 1 - dot / (2 * a_square) if a_square else 1.0
    b_factor = 1 - dot / (2 * b_square) if b_square else 1.0
    return a * a_factor + b * b_factor
