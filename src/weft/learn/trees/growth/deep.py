"""Subtrees, and whole trees, grown depth first from codes that fit the cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import is_worth_it
from weft.learn.trees.growth.rules import SplitRules
from weft.learn.trees.kernels.depth import grow_depth_first

Array = np.ndarray[Any, Any]

NODE_S = 1e-6  # that a node takes more by level, for each column; less where many rows are left
COMPILE_S = 2.0  # that the kernel takes to compile


def deep(
    codes: Array, columns: int, order: Array, words: Array, depth: int, place: Any, rules: SplitRules
) -> tuple[Array, Array]:
    """Grow a subtree depth first from codes (rows, columns or more); its root has the given place in the tree."""
    arguments = _arguments(codes, columns, order, words, depth, place, rules)
    count = grow_depth_first(*arguments)
    nodes, gains = arguments[-2:]
    return nodes[:count].copy(), gains[:count].copy()


def _arguments(
    codes: Array, columns: int, order: Array, words: Array, depth: int, place: Any, rules: SplitRules
) -> tuple[Any, ...]:
    """Return what `grow_depth_first` takes; the last two are the nodes that it fills in, and their gains."""
    most = 2 * len(order) // max(1, rules.min_rows) + 1
    if rules.max_depth - depth < 24:
        most = min(most, 2 << (rules.max_depth - depth))
    return (
        codes,
        columns,
        order,
        words,
        depth,
        place,
        min(rules.max_depth, 1 << 30),
        rules.min_split,
        min(rules.max_features, columns),
        rules.packing.table,
        rules.packing.scales,
        rules.limits,
        rules.asked,
        np.empty((most, 9), np.int32),
        np.empty(most),
    )


def is_deep_worth_it(groups: int, columns: int, words: Array, rules: SplitRules) -> bool:
    """Return whether to finish small nodes of a tree depth first. By level it is the same tree, after more time.

    On a new machine the kernel takes seconds to compile, which a few small trees do not.
    """
    nodes = min(words.shape[1], 1 << rules.max_depth if rules.max_depth < 24 else words.shape[1])
    block = np.empty((1, groups), np.uint64).view(np.uint8)
    local, some = np.zeros(1, np.int32), np.ascontiguousarray(words[:, :1])
    arguments = _arguments(block, columns, local, some, 1, np.uint64(0), rules)
    return is_worth_it(grow_depth_first, *arguments, saved=nodes * columns * NODE_S, cost=COMPILE_S)
