"""Coordinate descent on the quadratic model of a loss with an L1 penalty, column by column of a sparse table."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined, scalar_kernel

Array = Any  # inside compiled code the types are Numba's

SWEEPS_IN_USE = 20  # most sweeps over the coordinates in use between two over all
CLOSE = (
    0.1  # share of the first sweep's gain below which a sweep ends the descent: the model itself is no better
)


@inlined
def _best(own: float, w: float, slope: float, l1: float, positive: bool) -> float:
    """The coordinate that minimises slope * (x - w) + own * (x - w)² / 2 + l1 * |x|."""
    target = own * w - slope
    if target > l1:
        return (target - l1) / own
    if target < -l1 and not positive:
        return (target + l1) / own
    return 0.0


@scalar_kernel
def column_descent(
    data: Array,
    indices: Array,
    indptr: Array,
    curvature: Array,
    gradient: Array,
    start: Array,
    w: Array,
    penalty: tuple[float, float, float, float],
    intercept: bool,
    positive: bool,
    enough: float,
    sweeps: int,
) -> int:
    """Minimise the model from `start`, in place in `w`, until a sweep over all coordinates gains little.

    Little is a share of what the first one gained, or `enough`. The model is gradient · (w - start) + (w - start) · H ·
    (w - start) / 2 + the penalties, with H = X' diag(curvature) X of the columns given, and a last column of ones where
    there is an intercept. `penalty` has l1 and l2 of the columns, then of the intercept. Returns the sweeps over all.
    """
    l1, l2, b_l1, b_l2 = penalty
    columns = indptr.shape[0] - 1
    rows = curvature.shape[0]
    push = curvature * 0.0  # curvature * X (w - start): what a column meets is its slope
    own = w * 0.0
    for j in range(columns):
        for k in range(indptr[j], indptr[j + 1]):
            own[j] += data[k] * data[k] * curvature[indices[k]]
    whole = 0.0
    for i in range(rows):
        whole += curvature[i]
    all_push = 0.0
    order = np.arange(columns)
    state = np.uint64(88172645463325252)
    for sweep in range(sweeps):
        most = 0.0
        for turn in range(SWEEPS_IN_USE + 1):
            gained = 0.0
            for place in range(
                columns - 1, 0, -1
            ):  # another order in every sweep: descent is faster, and never stuck
                state ^= state << np.uint64(13)
                state ^= state >> np.uint64(7)
                state ^= state << np.uint64(17)
                other = np.int64(state % np.uint64(place + 1))
                order[place], order[other] = order[other], order[place]
            for place in range(columns):
                j = order[place]
                curve = own[j] + l2
                if curve <= 0.0 or (turn > 0 and w[j] == 0.0):
                    continue
                slope = gradient[j] + l2 * (w[j] - start[j])
                for k in range(indptr[j], indptr[j + 1]):
                    slope += data[k] * push[indices[k]]
                change = _best(curve, w[j], slope, l1, positive) - w[j]
                if change != 0.0:
                    w[j] += change
                    gained += change * change * curve
                    for k in range(indptr[j], indptr[j + 1]):
                        step = change * data[k] * curvature[indices[k]]
                        push[indices[k]] += step
                        all_push += step
            if intercept and whole + b_l2 > 0.0:
                slope = gradient[columns] + b_l2 * (w[columns] - start[columns]) + all_push
                change = _best(whole + b_l2, w[columns], slope, b_l1, False) - w[columns]
                if change != 0.0:
                    w[columns] += change
                    gained += change * change * (whole + b_l2)
                    all_push += change * whole
                    for i in range(rows):
                        push[i] += change * curvature[i]
            if turn == 0:
                most = gained
            if gained <= enough or (turn > 0 and gained <= 0.1 * most):
                break
        if sweep == 0:
            enough = max(enough, CLOSE * most)
        if most <= enough:
            return sweep + 1
    return sweeps
