"""Coordinate descent on the quadratic model of a loss with an L1 penalty, column by column of a sparse table.

Numbers are gathered by hand, four at a time, as in `dual`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined, scalar_kernel

Array = Any  # inside compiled code the types are Numba's

SWEEPS_IN_USE = 20  # most sweeps over the coordinates in use between two over all


@inlined
def _best(own: float, w: float, slope: float, l1: float, positive: bool) -> float:
    """The coordinate that minimises slope * (x - w) + own * (x - w)² / 2 + l1 * |x|."""
    target = own * w - slope
    if target > l1:
        return (target - l1) / own
    if target < -l1 and not positive:
        return (target + l1) / own
    return 0.0


@inlined
def _gathered(data: Array, indices: Array, start: int, stop: int, values: Array) -> float:
    """A column times a vector over rows."""
    k = start
    a = b = c = d = 0.0
    while k + 3 < stop:
        a += data[k] * values[indices[k]]
        b += data[k + 1] * values[indices[k + 1]]
        c += data[k + 2] * values[indices[k + 2]]
        d += data[k + 3] * values[indices[k + 3]]
        k += 4
    while k < stop:
        a += data[k] * values[indices[k]]
        k += 1
    return a + b + c + d


@inlined
def _shuffle(order: Array, count: int, state: Any) -> Any:
    """Mix the first `count` places: in another order each time, descent is faster and never stuck."""
    for place in range(count - 1, 0, -1):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        other = np.int64(state % np.uint64(place + 1))
        order[place], order[other] = order[other], order[place]
    return state


@scalar_kernel
def rows_times(data: Array, indices: Array, indptr: Array, slopes: Array, gradient: Array) -> None:
    """The gradient grows by each row times its slope."""
    for i in range(slopes.shape[0]):
        slope = slopes[i]
        for k in range(indptr[i], indptr[i + 1]):
            gradient[indices[k]] += slope * data[k]


@scalar_kernel
def add_columns(data: Array, indices: Array, indptr: Array, chosen: Array, w: Array, margins: Array) -> None:
    """The margins grow by the chosen columns times their coefficients."""
    for j in chosen:
        for k in range(indptr[j], indptr[j + 1]):
            margins[indices[k]] += w[j] * data[k]


@scalar_kernel
def column_descent(
    columns: tuple[Array, Array, Array, Array],
    curvature: Array,
    gradient: Array,
    start: Array,
    w: Array,
    penalty: tuple[float, float, float, float],
    intercept: bool,
    positive: bool,
    enough: float,
    close: float,
    sweeps: int,
) -> int:
    """Minimise the model from `start`, in place in `w`, until a sweep over all coordinates gains little.

    Little is the share `close` of what the first one gained, or `enough`. The model is gradient · (w - start) +
    (w - start) · H · (w - start) / 2 + the penalties, with H = X' diag(curvature) X of the columns given, and a last
    column of ones where there is an intercept. `columns` is a CSC matrix and the columns of it to use; `penalty` has
    l1 and l2 of the columns, then of the intercept. Returns the sweeps over all.
    """
    data, indices, indptr, chosen = columns
    l1, l2, b_l1, b_l2 = penalty
    count, rows = chosen.shape[0], curvature.shape[0]
    push = np.zeros(rows)  # curvature * X (w - start): what a column meets is its slope
    own = np.full(count, -1.0)  # a column's curvature, once it is needed
    whole = curvature.sum()
    all_push = 0.0
    order = np.arange(count)
    state = np.uint64(88172645463325252)
    for sweep in range(sweeps):
        most = 0.0
        visited = count
        for turn in range(SWEEPS_IN_USE + 1):
            gained = 0.0
            state = _shuffle(order, visited, state)
            used = 0
            for place in range(visited):
                j = order[place]
                first, last = indptr[chosen[j]], indptr[chosen[j] + 1]
                slope = gradient[j] + l2 * (w[j] - start[j]) + _gathered(data, indices, first, last, push)
                if w[j] == 0.0 and abs(slope) <= l1:
                    continue
                if own[j] < 0.0:
                    own[j] = l2
                    for k in range(first, last):
                        own[j] += data[k] * data[k] * curvature[indices[k]]
                if own[j] <= 0.0:
                    continue
                change = _best(own[j], w[j], slope, l1, positive) - w[j]
                if change != 0.0:
                    w[j] += change
                    gained += change * change * own[j]
                    for k in range(first, last):
                        step = change * data[k] * curvature[indices[k]]
                        push[indices[k]] += step
                        all_push += step
                if w[j] != 0.0:  # the coordinates in use move to the front
                    order[place], order[used] = order[used], j
                    used += 1
            if intercept and whole + b_l2 > 0.0:
                slope = gradient[count] + b_l2 * (w[count] - start[count]) + all_push
                change = _best(whole + b_l2, w[count], slope, b_l1, False) - w[count]
                if change != 0.0:
                    w[count] += change
                    gained += change * change * (whole + b_l2)
                    all_push += change * whole
                    for i in range(rows):
                        push[i] += change * curvature[i]
            if turn == 0:
                most = gained
            if gained <= enough or (turn > 0 and gained <= 0.1 * most):
                break
            visited = used
        if sweep == 0:
            enough = max(enough, close * most)
        if most <= enough:
            return sweep + 1
    return sweeps
