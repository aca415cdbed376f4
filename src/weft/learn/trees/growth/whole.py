"""A tree of numbers grown by one call of a kernel, on one thread: the usual way of boosting."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import is_worth_it
from weft.learn.threads import SMALL, ThreadTeam
from weft.learn.trees.growth.binning import Codes
from weft.learn.trees.growth.grown import Grown
from weft.learn.trees.growth.rules import SplitRules
from weft.learn.trees.growth.space import BUDGET_BYTES, Space
from weft.learn.trees.kernels.best_first import FEW, grow_best_first
from weft.learn.trees.kernels.split import PAIR

Array = np.ndarray[Any, Any]

DEEP = 64  # histograms that trees of any depth keep
NODE_S = 1e-4  # that a node takes more without the kernel
COMPILE_S = 5.0  # that the kernel takes to compile


def can_grow_whole(codes: Codes, words: Array, rules: SplitRules, team: ThreadTeam, space: Space) -> bool:
    """Return whether the kernel knows all that is asked for; of many rows, threads share the work by columns."""
    known = space.whole is not None and space.whole[0] is rules and space.whole[1] is codes
    return (known or _is_known(codes, rules)) and (team.size == 1 or words.shape[1] * codes.columns <= SMALL)


def _is_known(codes: Codes, rules: SplitRules) -> bool:
    return (
        rules.criterion == PAIR
        and not rules.classes
        and not rules.min_weight
        and (rules.packing.paired or rules.packing.counted)
        and codes.apart is not None
        and codes.window is None
        and not codes.bins.categorical.any()
        and not rules.constraints.any
    )


def grow_whole(
    codes: Codes, order: Array, words: Array, rules: SplitRules, seed: int, space: Space
) -> Grown | None:
    """Grow a tree for the rows `order`, whose words are words[:, i]; both are permuted.

    None where the kernel takes longer to compile than it can save: many calls grow the same tree.
    """
    if space.whole is None or space.whole[0] is not rules or space.whole[1] is not codes:
        space.whole = rules, codes, *_always(codes, rules)
    begins, few, before, after = space.whole[2:]
    rows, size = len(order), int(begins[-1]) * len(words)
    most = _most_nodes(rows, rules)
    kept = rules.max_leaves or min(rules.max_depth, DEEP)
    kept = min(kept, rows // max(1, few), BUDGET_BYTES // (8 * size))
    nodes, gains = np.empty((most, 9), np.int32), np.empty(most)
    arguments: tuple[Any, ...] = (
        *before,
        order,
        words[:1],
        np.uint64(seed),
        *after,
        space.like("order", order),
        space.like("word", words[:1]),
        space.at_least("leaves", kept + 2, size),
        nodes,
        gains,
    )
    if rules.asked not in space.compiled:
        if not is_worth_it(grow_best_first, *arguments, saved=most * NODE_S, cost=COMPILE_S):
            return None
        space.compiled.add(rules.asked)
    count = grow_best_first(*arguments)
    return Grown(nodes[:count], gains[:count], order, {})


def _always(codes: Codes, rules: SplitRules) -> tuple[Array, int, tuple[Any, ...], tuple[Any, ...]]:
    """Return where bins begin, how many rows list theirs, and what the kernel is given before and after the rows."""
    # To list a row's bin takes as long as to look at two that may be empty.
    few = min(FEW, int(codes.begins[-1]) // (2 * codes.columns))
    before = codes.groups, codes.apart, codes.begins
    after = (
        min(rules.max_depth, 1 << 30),
        rules.min_split,
        min(rules.max_features, codes.columns),
        rules.max_leaves,
        few,
        rules.packing.table,
        rules.packing.scales,
        rules.limits,
        rules.asked,
    )
    return codes.begins, few, before, after


def _most_nodes(rows: int, rules: SplitRules) -> int:
    """Return how many nodes a tree can have."""
    most = 2 * (rows // max(1, rules.min_rows)) + 1
    if rules.max_depth < 24:
        most = min(most, 2 << rules.max_depth)
    if rules.max_leaves:
        most = min(most, 2 * rules.max_leaves - 1)
    return max(most, 1)
