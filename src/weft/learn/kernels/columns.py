"""Coordinate descent on the quadratic model of a loss with an L1 penalty, column by column of a sparse table.

Numbers are gathered by hand, four at a time, as in `dual`, and by places without a sign: see `histogram`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined, scalar_kernel

Array = Any  # inside compiled code the types are Numba's

SWEEPS_IN_USE = 20  # most sweeps over the coordinates in use between two over all
SLOW = 8.0  # times what sweeps that fall off evenly would gain: the last to move are the slowest
MOVED, CURVATURE = 0, 1  # the numbers of a row side by side: one look-up finds both


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
def _slope(data: Array, rows: Array, state: Array) -> float:
    """A column times the change of the slopes, curvature * moved."""
    a = b = c = d = 0.0
    whole = len(rows) // 4 * 4
    for k in range(0, whole, 4):
        i, j = np.uint32(rows[k]), np.uint32(rows[k + 1])
        m, n = np.uint32(rows[k + 2]), np.uint32(rows[k + 3])
        a += data[k] * (state[i, MOVED] * state[i, CURVATURE])
        b += data[k + 1] * (state[j, MOVED] * state[j, CURVATURE])
        c += data[k + 2] * (state[m, MOVED] * state[m, CURVATURE])
        d += data[k + 3] * (state[n, MOVED] * state[n, CURVATURE])
    for k in range(whole, len(rows)):
        i = np.uint32(rows[k])
        a += data[k] * (state[i, MOVED] * state[i, CURVATURE])
    return a + b + c + d


@inlined
def _own(data: Array, rows: Array, state: Array) -> float:
    """The curvature along a column."""
    a = b = 0.0
    whole = len(rows) // 2 * 2
    for k in range(0, whole, 2):
        a += data[k] * data[k] * state[np.uint32(rows[k]), CURVATURE]
        b += data[k + 1] * data[k + 1] * state[np.uint32(rows[k + 1]), CURVATURE]
    if whole < len(rows):
        a += data[whole] * data[whole] * state[np.uint32(rows[whole]), CURVATURE]
    return a + b


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
        slope, values, columns = (
            slopes[i],
            data[indptr[i] : indptr[i + 1]],
            indices[indptr[i] : indptr[i + 1]],
        )
        for k in range(len(columns)):
            gradient[np.uint32(columns[k])] += slope * values[k]


@scalar_kernel
def rows_along(data: Array, indices: Array, indptr: Array, w: Array, margins: Array) -> None:
    """The margins grow by each row times the coefficients."""
    for i in range(margins.shape[0]):
        margin = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            margin += w[np.uint32(indices[k])] * data[k]
        margins[i] += margin


@scalar_kernel
def column_sizes(data: Array, indices: Array, counts: Array, squares: Array) -> None:
    """Count the stored values of each column, and add up their squares."""
    for k in range(len(indices)):
        j = np.uint32(indices[k])
        counts[j] += 1
        squares[j] += data[k] * data[k]


@scalar_kernel
def take_columns(
    data: Array, indices: Array, indptr: Array, places: Array, values: Array, rows: Array
) -> None:
    """Copy columns of a CSR matrix: the first value of column j goes to places[j]; none where that is negative."""
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = np.uint32(indices[k])
            place = places[j]
            if place >= 0:
                values[np.uint64(place)] = data[k]
                rows[np.uint64(place)] = i
                places[j] = place + 1


@scalar_kernel
def column_descent(
    columns: tuple[Array, Array, Array, Array],
    state: Array,
    gradient: Array,
    start: Array,
    w: Array,
    penalty: tuple[float, float, float, float],
    intercept: bool,
    positive: bool,
    enough: float,
    close: float,
    sweeps: int,
) -> float:
    """Minimise the model from `start`, in place in `w`, until further sweeps would gain little.

    Little is the share `close` of what the first sweep gained, or `enough`. The model is gradient · (w - start) +
    (w - start) · H · (w - start) / 2 + the penalties, with H = X' diag(curvature) X of the columns given, and a last
    column of ones where there is an intercept. `columns` are values, their rows, and where each column begins and ends;
    state[row] is how far its margin has moved, and its curvature; `penalty` has l1 and l2 of the columns, then of the
    intercept. Returns about how much further sweeps would gain.
    """
    data, indices, begin, stop = columns
    l1, l2, b_l1, b_l2 = penalty
    count = begin.shape[0]
    own = np.full(count, -1.0)  # a column's curvature, once it is needed
    whole = 0.0
    for i in range(state.shape[0]):
        whole += state[i, CURVATURE]
    order = np.arange(count)
    mix = np.uint64(88172645463325252)
    gained = before = 0.0
    for sweep in range(sweeps):
        visited = count
        for turn in range(SWEEPS_IN_USE + 1):
            before, gained = gained, 0.0
            mix = _shuffle(order, visited, mix)
            used = 0
            for place in range(visited):
                j = order[place]
                values, rows = data[begin[j] : stop[j]], indices[begin[j] : stop[j]]
                slope = gradient[j] + l2 * (w[j] - start[j]) + _slope(values, rows, state)
                if w[j] == 0.0 and abs(slope) <= l1:
                    continue
                if own[j] < 0.0:
                    own[j] = l2 + _own(values, rows, state)
                if own[j] <= 0.0:
                    continue
                change = _best(own[j], w[j], slope, l1, positive) - w[j]
                if change != 0.0:
                    w[j] += change
                    gained += change * change * own[j]
                    for k in range(len(rows)):
                        state[np.uint32(rows[k]), MOVED] += change * values[k]
                if w[j] != 0.0:  # the coordinates in use move to the front
                    order[place], order[used] = order[used], j
                    used += 1
            if intercept and whole + b_l2 > 0.0:
                slope = gradient[count] + b_l2 * (w[count] - start[count])
                for i in range(state.shape[0]):
                    slope += state[i, MOVED] * state[i, CURVATURE]
                change = _best(whole + b_l2, w[count], slope, b_l1, False) - w[count]
                if change != 0.0:
                    w[count] += change
                    gained += change * change * (whole + b_l2)
                    for i in range(state.shape[0]):
                        state[i, MOVED] += change
            if gained <= 0.0:
                return 0.0
            if sweep == 0 and turn == 0:
                enough = max(enough, close * gained)
            else:
                rate = min(gained / before, 0.999)
                left = SLOW * gained * rate / (1.0 - rate)
                if left <= enough:
                    return left
            visited = used
    return np.inf  # too many sweeps to tell
