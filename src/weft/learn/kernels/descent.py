"""Coordinate descent on a quadratic with an L1 penalty, given by its matrix: no data is read."""

from __future__ import annotations

from typing import Any

from weft.learn.kernels.compiling import inlined, kernel

Array = Any  # inside compiled code the types are Numba's


@inlined
def _visit(j: int, matrix: Array, slope: Array, w: Array, l1: float, positive: bool) -> float:
    """Set one coordinate to its best value; returns twice what that gained, about."""
    own = matrix[j, j]
    if own <= 0.0:
        return 0.0
    target = own * w[j] - slope[j]
    if target > l1:
        new = (target - l1) / own
    elif target < -l1 and not positive:
        new = (target + l1) / own
    else:
        new = 0.0
    change: float = new - w[j]
    if change == 0.0:
        return 0.0
    w[j] = new
    for k in range(w.shape[0]):
        slope[k] += change * matrix[j, k]
    gain: float = change * change * own
    return gain


@kernel
def quadratic_descent(
    matrix: Array, slope: Array, w: Array, l1: Array, positive: Array, enough: float, sweeps: int
) -> int:
    """Minimise slope·w + w·matrix·w / 2 + sum(l1 * |w|) from w; slope is kept equal to the smooth part's gradient.

    Sweeps over all coordinates take turns with sweeps over those that are not zero, until one over all gains less
    than `enough`. Returns the sweeps over all.
    """
    for sweep in range(sweeps):
        most = 0.0
        for j in range(w.shape[0]):
            most += _visit(j, matrix, slope, w, l1[j], positive[j])
        if most <= enough:
            return sweep + 1
        for _ in range(50):
            gained = 0.0
            for j in range(w.shape[0]):
                if w[j] != 0.0:
                    gained += _visit(j, matrix, slope, w, l1[j], positive[j])
            if gained <= 0.1 * most or gained <= enough:
                break
    return sweeps
