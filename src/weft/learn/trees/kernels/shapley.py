"""Exact Shapley values of one tree, leaf by leaf, where features that are left out go both ways by their cover.

What a leaf gives to the features of its path depends on which of them would lead a row there, alone: one bit for each.
For many rows that is found once for every set of bits, and looked up.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined, scalar_kernel

Array = Any  # inside compiled code the types are Numba's

BLOCK = 2048  # rows whose ways through a tree are noted at a time
LISTED = 9  # features of a path up to which all sets of them are listed


@inlined
def _shares(zero: Array, count: int, mask: Any, weights: Array, shares: Array) -> None:
    """Write what each of `count` features gets of a leaf of value 1, that those in `mask` lead to.

    `zero` is the share of the cover that goes a feature's way. weights[k] is that of all sets of k features.
    """
    weights[0] = 1.0
    for one in range(count):
        lead = float((mask >> one) & 1)
        n = one + 2.0  # with the features so far, and none
        weights[one + 1] = 0.0
        for k in range(one, -1, -1):
            weights[k + 1] += lead * weights[k] * (k + 1) / n
            weights[k] = zero[one] * weights[k] * (one + 1 - k) / n
    many = count + 1.0
    for one in range(count):
        total, rest = 0.0, weights[count]
        leads = (mask >> one) & 1 != 0
        for k in range(count - 1, -1, -1):
            if leads:
                own = rest * many / (k + 1)
                total += own
                rest = weights[k] - own * zero[one] * (count - k) / many
            else:
                total += weights[k] * many / (zero[one] * (count - k))
        shares[one] = total * (1.0 - zero[one] if leads else -zero[one])


@inlined
def _goes_left(
    x: Any, node: int, threshold: Array, missing_left: Array, category: Array, sides: Array
) -> bool:
    if x != x:
        return missing_left[node]  # type: ignore[no-any-return]
    if category[node] < 0:
        return x <= threshold[node]  # type: ignore[no-any-return]
    known = x >= 0 and x < 255
    return sides[category[node], np.int64(x)] if known else missing_left[node]  # type: ignore[no-any-return]


@scalar_kernel
def add_shapley(
    X: Array,
    feature: Array,
    threshold: Array,
    left: Array,
    right: Array,
    missing_left: Array,
    category: Array,
    sides: Array,
    cover: Array,
    value: Array,
    deepest: int,
    out: Array,
) -> None:
    """Add a tree's Shapley values of rows X, float32, to out[row, feature, output]; value[leaf, output] are its own."""
    rows, nodes = X.shape[0], feature.shape[0]
    ways = np.empty((nodes, min(rows, BLOCK)), np.uint8)
    masks = np.empty(min(rows, BLOCK), np.int64)
    waiting, levels = np.empty(deepest + 2, np.int64), np.empty(deepest + 2, np.int64)
    path, slots = np.empty(deepest + 1, np.int64), np.empty(deepest + 1, np.int64)
    names, zero = np.empty(deepest + 1, np.int64), np.empty(deepest + 1, np.float64)
    weights, shares = np.empty(deepest + 2, np.float64), np.empty(deepest + 1, np.float64)
    listed = np.empty((1 << LISTED, LISTED), np.float64)
    for start in range(0, rows, BLOCK):
        many = min(BLOCK, rows - start)
        for node in range(nodes):
            if left[node] >= 0:
                for r in range(many):
                    x = X[start + r, feature[node]]
                    ways[node, r] = _goes_left(x, node, threshold, missing_left, category, sides)
        waiting[0], levels[0], height = 0, 0, 1
        while height > 0:
            height -= 1
            node, level = waiting[height], levels[height]
            path[level] = node
            if left[node] >= 0:
                waiting[height], waiting[height + 1] = right[node], left[node]
                levels[height], levels[height + 1] = level + 1, level + 1
                height += 2
                continue
            count = 0
            for step in range(level):
                slot = 0
                while slot < count and names[slot] != feature[path[step]]:
                    slot += 1
                if slot == count:
                    names[slot], zero[slot] = feature[path[step]], 1.0
                    count += 1
                slots[step] = slot
                zero[slot] *= cover[path[step + 1]] / cover[path[step]]
            masks[:many] = (1 << count) - 1
            for step in range(level):
                bit, way = 1 << slots[step], left[path[step]] == path[step + 1]
                for r in range(many):
                    masks[r] &= ~(bit * (ways[path[step], r] != way))
            known = count <= LISTED and 1 << count <= many
            if known:
                for mask in range(1 << count):
                    _shares(zero, count, mask, weights, listed[mask])
            for r in range(many):
                if not known:
                    _shares(zero, count, masks[r], weights, shares)
                own = listed[masks[r]] if known else shares
                for one in range(count):
                    for k in range(value.shape[1]):
                        out[start + r, names[one], k] += own[one] * value[node, k]
