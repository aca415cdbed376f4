"""The parts of a boosting round that are not a tree: derivatives as words, steps of leaves, predictions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.learn.kernels.compiling import kernel, scalar_kernel

Array = Any  # inside compiled code the types are Numba's


@kernel
def logistic_derivatives(raw: Array, y: Array, weights: Array, first: Array, second: Array) -> float:
    """Fill in the derivatives of log(1 + exp(-raw)) + (1 - y) * raw, row by row; returns the loss, weighted."""
    loss = 0.0
    for start in range(0, raw.shape[0], 8):
        stop = min(start + 8, raw.shape[0])
        product, even = 1.0, True
        for i in range(start, stop):
            first[i] = max(raw[i], -80.0)  # in its own digits; a product of eight stays finite
            e = math.exp(-first[i])
            p = 1.0 / (1.0 + e)
            first[i] = weights[i] * (p - y[i])
            second[i] = weights[i] * p * (1.0 - p)
            loss += weights[i] * (1.0 - y[i]) * raw[i]
            product *= 1.0 + e
            even = even and weights[i] == weights[start]
        if even:  # one logarithm for eight rows
            loss += weights[start] * math.log(product)
        else:
            for i in range(start, stop):
                loss += weights[i] * math.log(1.0 + math.exp(-max(raw[i], -80.0)))
    return loss


@kernel
def class_derivatives(raw: Array, y: Array, weights: Array, first: Array, second: Array) -> float:
    """Fill in the derivatives of the log-loss of several classes; returns the loss, weighted.

    Second derivatives of K classes are p (1 - p) K / (K - 1): there is one raw prediction more than there need be, and
    steps that are each taken as if the others stood still would go too far by that factor.

    All are (rows, classes) in column order: classes are gone through one after the other, for a block of rows.
    """
    loss = 0.0
    rows, many = raw.shape
    factor = many / (many - 1.0)
    most, total = np.empty(256), np.empty(256)
    for start in range(0, rows, 256):
        count = min(256, rows - start)
        most[:] = -np.inf
        total[:] = 0.0
        for k in range(many):
            for i in range(count):
                most[i] = max(most[i], raw[start + i, k])
        for k in range(many):
            for i in range(count):
                e = math.exp(raw[start + i, k] - most[i])
                first[start + i, k] = e
                total[i] += e
        for i in range(count):
            row = start + i
            loss += weights[row] * (math.log(total[i]) + most[i] - raw[row, y[row]])
            total[i] = 1.0 / total[i]
        for k in range(many):
            for i in range(count):
                row = start + i
                p = first[row, k] * total[i]
                first[row, k] = weights[row] * p
                second[row, k] = factor * weights[row] * p * (1.0 - p)
        for i in range(count):
            first[start + i, y[start + i]] -= weights[start + i]
    return loss


@kernel
def squared_derivatives(raw: Array, y: Array, weights: Array, first: Array, second: Array) -> float:
    """Fill in the derivatives of (raw - y)² / 2, row by row; returns the sum of squares, weighted."""
    loss = 0.0
    for i in range(raw.shape[0]):
        off = raw[i] - y[i]
        first[i] = weights[i] * off
        second[i] = weights[i]
        loss += weights[i] * off * off
    return loss


@kernel
def pack_derivatives(
    order: Array, first: Array, second: Array, a_scale: float, n_scale: float, shift: int, out: Array
) -> None:
    """Pack both derivatives of rows `order`, rounded, into one word each; no row's second is rounded to nothing."""
    for i in range(order.shape[0]):
        row = order[i]
        n: Any = max(np.int64(second[row] * n_scale + 0.5), 1)
        a: Any = np.int64(np.rint(first[row] * a_scale))
        out[i] = (a << shift) + n


@scalar_kernel
def newton_steps(
    leaves: Array,
    start: Array,
    stop: Array,
    order: Array,
    first: Array,
    second: Array,
    l2: float,
    rate: float,
    values: Array,
    raw: Array,
) -> None:
    """values[leaf] = -rate * G / (H + l2) of the rows of each leaf, added to their raw predictions."""
    for leaf in leaves:
        g, h = 0.0, 0.0
        for i in range(start[leaf], stop[leaf]):
            row = order[i]
            g += first[row]
            h += second[row]
        values[leaf] = -rate * g / max(h + l2, 1e-12)
        for i in range(start[leaf], stop[leaf]):
            raw[order[i]] += values[leaf]


@scalar_kernel
def word_steps(
    leaves: Array,
    start: Array,
    stop: Array,
    order: Array,
    words: Array,
    shift: int,
    a_scale: float,
    n_scale: float,
    first: Array,
    second: Array,
    least: int,
    l2: float,
    rate: float,
    values: Array,
    raw: Array,
) -> None:
    """`newton_steps` from packed derivatives, which lie in the order of `order`: nothing is looked up but `raw`.

    A leaf whose rows have less than `least` units of a word on average, in either derivative, takes them as they are:
    rows that are alike are rounded alike, and small ones all to nothing.
    """
    for leaf in leaves:
        inside, rows = words[start[leaf] : stop[leaf]], order[start[leaf] : stop[leaf]]
        total, size = np.int64(0), np.int64(0)
        for i in range(len(inside)):
            total += inside[i]
            size += abs(inside[i] >> shift)
        bent = total & ((np.int64(1) << shift) - 1)
        g, h = (total >> shift) * a_scale, bent * n_scale
        if min(size, bent) < least * len(inside):
            g = h = np.float64(0.0)
            for i in range(len(rows)):
                g += first[np.uint32(rows[i])]
                h += second[np.uint32(rows[i])]
        values[leaf] = -rate * g / max(h + l2, 1e-12)
        step = values[leaf]
        for i in range(len(rows)):
            raw[np.uint32(rows[i])] += step


@scalar_kernel
def leaf_derivatives(
    leaves: Array, start: Array, stop: Array, order: Array, first: Array, second: Array, out: Array
) -> None:
    """out[leaf] = the sums of both derivatives of its rows."""
    for leaf in leaves:
        for i in range(start[leaf], stop[leaf]):
            row = order[i]
            out[leaf, 0] += first[row]
            out[leaf, 1] += second[row]


@scalar_kernel
def add_values(leaves: Array, start: Array, stop: Array, order: Array, values: Array, raw: Array) -> None:
    """Add the values of leaves to the raw predictions of their rows."""
    for leaf in leaves:
        for i in range(start[leaf], stop[leaf]):
            raw[order[i]] += values[leaf]


@scalar_kernel
def add_trees(
    X: Array,
    roots: Array,
    feature: Array,
    threshold: Array,
    left: Array,
    right: Array,
    missing_left: Array,
    sides: Array,
    category: Array,
    value: Array,
    out: Array,
) -> None:
    """Add to `out` what the trees say of each row; sides[category[node]] are the categories that go left."""
    rows = X.shape[0]
    for start in range(0, rows, 64):
        stop = min(start + 64, rows)
        for root in roots:
            for row in range(start, stop):
                node = root
                while left[node] >= 0:
                    x = np.float32(X[row, feature[node]])
                    if x != x:
                        to_left = missing_left[node]
                    elif category[node] >= 0:
                        known = x >= 0 and x < 255
                        to_left = sides[category[node], np.int64(x)] if known else missing_left[node]
                    else:
                        to_left = x <= threshold[node]
                    node = left[node] if to_left else right[node]
                out[row] += value[node]
