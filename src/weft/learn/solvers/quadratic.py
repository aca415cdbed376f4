"""Minimises a quadratic with an L1 penalty, given its matrix.

Coordinate descent finds which coordinates are not zero; a linear system then gives their values, however
ill-conditioned the matrix is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.descent import quadratic_descent
from weft.learn.solvers.curvature import CholeskyCurvature

Array = np.ndarray[Any, Any]

ROUNDS = 20  # most rounds of descent and solving
SWEEPS = 20  # sweeps over all coordinates in one descent
DROPS = 10  # most coordinates set to zero in one round; each costs a factorisation


def minimise_quadratic(
    matrix: Array, gradient: Array, start: Array, l1: Array, positive: Array, enough: float
) -> Array:
    """Minimise gradient·(w - start) + (w - start)·matrix·(w - start) / 2 + sum(l1 * |w|), until a sweep over all
    coordinates gains less than `enough`; coordinates marked `positive` stay at least 0.
    """
    w, slope = start.copy(), gradient.copy()
    for turn in range(ROUNDS):
        sweeps = quadratic_descent(matrix, slope, w, l1, positive, enough, SWEEPS)
        # Where descent is slow a small gain proves nothing before the first linear system is solved.
        if sweeps == 1 and turn > 0:
            break
        w = _solve_for_used(matrix, slope, w, l1, positive)
        slope = gradient + matrix @ (w - start)
    return w


def _solve_for_used(matrix: Array, slope: Array, w: Array, l1: Array, positive: Array) -> Array:
    """Return the minimum over the coordinates in use; a coordinate that would change sign is set to zero instead."""
    w, slope = w.copy(), slope.copy()
    for _ in range(DROPS):
        used = np.flatnonzero((w != 0) | ((l1 == 0) & ~positive))
        if not len(used):
            break
        inner = matrix[np.ix_(used, used)]
        step = -CholeskyCurvature(inner).solve(slope[used] + l1[used] * np.sign(w[used]))
        crossing = np.where(
            (l1[used] > 0) | positive[used], -w[used] / np.where(step == 0, np.inf, step), np.inf
        )
        lengths = np.where((crossing > 0) & (crossing < 1), crossing, 1.0)
        length = float(lengths.min())
        w[used] += length * step
        slope += length * (matrix[:, used] @ step)
        if length == 1.0:
            break
        w[used[lengths.argmin()]] = 0.0
    return w
