"""Dual coordinate ascent, row by row: w is the sum of y_i * a_i * x_i, and each a_i in turn is set to its best value.

The extra coordinate w[columns] has the value `bias` in every row; it carries the intercept. For the logistic loss the
row's state is the logit t of its share a_i / weight_i: no logarithm is needed, and Newton's method takes a step or two.
Rows of a sparse matrix are gathered by hand, four at a time: compiled to gather instructions the loop is far slower.
"""

from __future__ import annotations

import math
from typing import Any

from weft.learn.kernels.compiling import inlined, kernel, scalar_kernel
from weft.learn.kernels.prefetch import prefetch

Array = Any  # inside compiled code the types are Numba's

LOGISTIC, SQUARED_HINGE, HINGE = 0, 1, 2
AHEAD = 2  # rows for which w is fetched ahead
LONGEST_REST = 15  # epochs for which a row that sits at its bound may be skipped


@inlined
def _product(data: Array, indices: Array, start: int, stop: int, w: Array) -> Any:
    """A row times w."""
    k = start
    a = b = c = d = w.dtype.type(0)
    while k + 3 < stop:
        a += data[k] * w[indices[k]]
        b += data[k + 1] * w[indices[k + 1]]
        c += data[k + 2] * w[indices[k + 2]]
        d += data[k + 3] * w[indices[k + 3]]
        k += 4
    while k < stop:
        a += data[k] * w[indices[k]]
        k += 1
    return a + b + c + d


@inlined
def _add(data: Array, indices: Array, start: int, stop: int, share: Any, w: Array) -> None:
    """Let w grow by a share of a row."""
    k = start
    while k + 3 < stop:
        w[indices[k]] += share * data[k]
        w[indices[k + 1]] += share * data[k + 1]
        w[indices[k + 2]] += share * data[k + 2]
        w[indices[k + 3]] += share * data[k + 3]
        k += 4
    while k < stop:
        w[indices[k]] += share * data[k]
        k += 1


@inlined
def _logistic_step(z: float, t: float, share: float, weight: float, q: float) -> tuple[float, float]:
    """The root t of z + t + q * weight * (sigmoid(t) - share); it lies between the old t and -z."""
    low, high = min(t, -z), max(t, -z)
    new = -z if t < -15.0 else t - (z + t) / (1.0 + q * weight * share * (1.0 - share))
    new = min(max(new, low), high)
    for _ in range(40):
        sigmoid = 1.0 / (1.0 + math.exp(-new))
        off = z + new + q * weight * (sigmoid - share)
        if abs(off) <= 0.02 * abs(z + t) or high - low < 1e-6:
            return new, sigmoid
        if off > 0.0:
            high = new
        else:
            low = new
        new -= off / (1.0 + q * weight * sigmoid * (1.0 - sigmoid))
        if new <= low or new >= high:  # where sigmoids are flat, Newton steps leap from end to end
            new = 0.5 * (low + high)
    return new, 1.0 / (1.0 + math.exp(-new))


@inlined
def _step(
    loss: int, z: float, state: float, share: float, weight: float, q: float
) -> tuple[float, float, float, float]:
    """For one row with y * margin = z: its new state and share, the change of a, and its part of the duality gap."""
    if loss == LOGISTIC:
        gap = weight * 0.5 * share * (1.0 - share) * (z + state) * (z + state)
        new, new_share = _logistic_step(z, state, share, weight, q)
        return new, new_share, weight * (new_share - share), gap
    if loss == SQUARED_HINGE:
        short = max(0.0, 1.0 - z)
        gap = weight * short * short - state + state * state / (4.0 * weight) + z * state
        new = max(0.0, state + (1.0 - z - state / (2.0 * weight)) / (q + 0.5 / weight))
        return new, 0.0, new - state, gap
    gap = weight * max(0.0, 1.0 - z) - state + z * state
    new = min(max(state + (1.0 - z) / max(q, 1e-30), 0.0), weight)
    return new, 0.0, new - state, gap


@scalar_kernel
def sparse_epoch(
    data: Array,
    indices: Array,
    indptr: Array,
    rows: tuple[Array, Array, Array, Array, Array, Array],
    buckets: Array,
    height: int,
    w: Array,
    bias: float,
    centre: float,
    loss: int,
    stretch: float,
) -> float:
    """One visit to the rows of the buckets, in their order; returns the duality gap met on the way."""
    y, weights, squares, states, shares, rests = rows
    columns = w.shape[0] - 1
    total = 0.0
    for bucket in buckets:
        for i in range(bucket * height, min((bucket + 1) * height, y.shape[0])):
            if weights[i] == 0 or rests[i] & LONGEST_REST:
                rests[i] -= rests[i] & LONGEST_REST > 0
                continue
            if i + AHEAD < y.shape[0]:  # w is too large for near caches, and rows say where they will read it
                for k in range(indptr[i + AHEAD], indptr[i + AHEAD + 1]):
                    prefetch(w, indices[k])
            start, stop = indptr[i], indptr[i + 1]
            z = y[i] * (float(_product(data, indices, start, stop, w)) + bias * w[columns] + centre)
            q = stretch * (squares[i] + bias * bias)
            state, share, change, gap = _step(loss, z, states[i], shares[i], weights[i], q)
            total += gap
            if loss != LOGISTIC and change == 0.0:
                rests[i] = _longer_rest(rests[i])
                continue
            rests[i] = 0
            states[i] = state
            shares[i] = share
            move = w.dtype.type(stretch * change * y[i])
            _add(data, indices, start, stop, move, w)
            w[columns] += move * bias
    return total


@inlined
def _longer_rest(rest: int) -> int:
    """Twice the rest of last time, which the high half of the number keeps."""
    longer = min(2 * (rest >> 4) + 1, LONGEST_REST)
    return (longer << 4) | longer


@scalar_kernel
def sparse_products(
    data: Array, indices: Array, indptr: Array, w: Array, dual: Array, margins: Array, v: Array
) -> None:
    """Margins become the rows' products with w; v grows by each row times its dual variable."""
    for i in range(margins.shape[0]):
        if i + AHEAD < margins.shape[0]:
            for k in range(indptr[i + AHEAD], indptr[i + AHEAD + 1]):
                prefetch(w, indices[k])
                prefetch(v, indices[k])
        start, stop, share = indptr[i], indptr[i + 1], v.dtype.type(dual[i])
        margins[i] = _product(data, indices, start, stop, w)
        if share != 0.0:
            _add(data, indices, start, stop, share, v)


@kernel
def meet(w: Array, copies: Array, leap: float, start: int, stop: int) -> None:
    """Some columns of w go to the mean of the copies, and on by as much as the leap is above 1."""
    share = w.dtype.type(leap / copies.shape[0])
    for j in range(start, stop):
        gained = w.dtype.type(0)
        for k in range(copies.shape[0]):
            gained += copies[k, j] - w[j]
        w[j] += share * gained


@kernel
def meet_in(w: Array, copies: Array, leap: float, columns: Array) -> None:
    """The same in the columns named; the copies go there, too."""
    share = w.dtype.type(leap / copies.shape[0])
    for j in columns:
        gained = w.dtype.type(0)
        for k in range(copies.shape[0]):
            gained += copies[k, j] - w[j]
        w[j] += share * gained
        for k in range(copies.shape[0]):
            copies[k, j] = w[j]


@kernel
def row_squares(data: Array, indptr: Array, squares: Array) -> None:
    for i in range(squares.shape[0]):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            total += data[k] * data[k]
        squares[i] = total


@kernel
def dense_epoch(
    values: Array,
    rows: tuple[Array, Array, Array, Array, Array, Array],
    buckets: Array,
    height: int,
    w: Array,
    bias: float,
    centre: float,
    loss: int,
    stretch: float,
) -> float:
    """The same for a dense table in C order."""
    y, weights, squares, states, shares, rests = rows
    columns = w.shape[0] - 1
    total = 0.0
    for bucket in buckets:
        for i in range(bucket * height, min((bucket + 1) * height, y.shape[0])):
            if weights[i] == 0 or rests[i] & LONGEST_REST:
                rests[i] -= rests[i] & LONGEST_REST > 0
                continue
            product = w.dtype.type(0)
            for j in range(columns):
                product += values[i, j] * w[j]
            z = y[i] * (float(product) + bias * w[columns] + centre)
            q = stretch * (squares[i] + bias * bias)
            state, share, change, gap = _step(loss, z, states[i], shares[i], weights[i], q)
            total += gap
            if loss != LOGISTIC and change == 0.0:
                rests[i] = _longer_rest(rests[i])
                continue
            rests[i] = 0
            states[i] = state
            shares[i] = share
            move = w.dtype.type(stretch * change * y[i])
            for j in range(columns):
                w[j] += move * values[i, j]
            w[columns] += move * bias
    return total
