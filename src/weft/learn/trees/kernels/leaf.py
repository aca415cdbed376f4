"""Sums over the rows of each leaf."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import scalar_kernel

Array = Any  # inside compiled code the types are Numba's


@scalar_kernel
def add_classes(
    leaves: Array, start: Array, stop: Array, order: Array, codes: Array, weights: Array, out: Array
) -> None:
    """Add the weights of the rows of each leaf to out[leaf, class]."""
    for leaf in leaves:
        for i in range(start[leaf], stop[leaf]):
            row = order[i]
            out[leaf, codes[row]] += weights[row]


@scalar_kernel
def add_numbers(
    leaves: Array, start: Array, stop: Array, order: Array, target: Array, weights: Array, out: Array
) -> None:
    """Add weight, weight * target and weight * target² of the rows of each leaf to out[leaf]."""
    for leaf in leaves:
        for i in range(start[leaf], stop[leaf]):
            row = order[i]
            w, y = weights[row], target[row]
            out[leaf, 0] += w
            out[leaf, 1] += w * y
            out[leaf, 2] += w * y * y


@scalar_kernel
def carry_up(left: Array, right: Array, sums: Array) -> None:
    """Fill in sums[node] of inner nodes from their children, which come after them."""
    for node in range(len(left) - 1, -1, -1):
        if left[node] >= 0:
            for k in range(sums.shape[1]):
                sums[node, k] = sums[left[node], k] + sums[right[node], k]


@scalar_kernel
def list_depth_first(left: Array, right: Array, found: Array) -> int:
    """Write the nodes in depth-first order, left before right; returns how many there are."""
    waiting = np.empty(len(left) + 1, np.int64)
    waiting[0] = 0
    height, count = 1, 0
    while height > 0:
        height -= 1
        node = waiting[height]
        found[count] = node
        count += 1
        if left[node] >= 0:
            waiting[height], waiting[height + 1] = right[node], left[node]
            height += 2
    return count
