"""What the rows of each leaf add up to."""

from __future__ import annotations

from typing import Any

from weft.learn.compiling import scalar_kernel

Array = Any  # inside compiled code the types are Numba's


@scalar_kernel
def add_classes(
    leaves: Array, start: Array, stop: Array, order: Array, codes: Array, weights: Array, out: Array
) -> None:
    """out[leaf, class] of the rows of each leaf."""
    for leaf in leaves:
        for i in range(start[leaf], stop[leaf]):
            row = order[i]
            out[leaf, codes[row]] += weights[row]


@scalar_kernel
def add_numbers(
    leaves: Array, start: Array, stop: Array, order: Array, target: Array, weights: Array, out: Array
) -> None:
    """out[leaf] = weight, weight * target, weight * target² of the rows of each leaf."""
    for leaf in leaves:
        for i in range(start[leaf], stop[leaf]):
            row = order[i]
            w, y = weights[row], target[row]
            out[leaf, 0] += w
            out[leaf, 1] += w * y
            out[leaf, 2] += w * y * y
