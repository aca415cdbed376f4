"""One tree from codes and targets to scikit-learn's own `Tree`, which predicts, explains and draws itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.tree._tree import NODE_DTYPE, Tree

from weft.learn.threads import ThreadTeam
from weft.learn.trees.growth.binning import Codes
from weft.learn.trees.growth.growing import grow
from weft.learn.trees.growth.grown import Grown, best_first
from weft.learn.trees.growth.packing import (
    Packing,
    class_packing,
    extent_of,
    pack_classes,
    pack_pair,
    pair_packing,
)
from weft.learn.trees.growth.rules import SplitRules
from weft.learn.trees.kernels.leaf import add_classes, add_numbers
from weft.learn.trees.kernels.split import ENTROPY, GINI, PAIR
from weft.learn.workers.group import current_workers, largest_over_workers, sum_over_workers

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TreeSettings:
    """scikit-learn's parameters of a tree, as numbers."""

    criterion: str
    max_depth: int
    min_samples_split: int
    min_samples_leaf: int
    min_weight_leaf: float
    max_features: int
    max_leaf_nodes: int
    min_impurity_decrease: float
    seed: int


@dataclass(frozen=True)
class Target:
    """The target of a tree: codes of `classes` classes, or numbers where that is 0."""

    values: Array
    classes: int


def fit_tree(
    codes: Codes, target: Target, weights: Array | None, settings: TreeSettings, team: ThreadTeam
) -> Tree:
    """Grow a tree on histograms; rows without weight take no part."""
    rows = codes.rows
    heavy = np.ones(rows) if weights is None else weights
    order = np.arange(rows, dtype=np.int32) if weights is None else np.flatnonzero(heavy > 0).astype(np.int32)
    inside = slice(None) if len(order) == rows else order
    packing, words, criterion = _packed(target, heavy[inside], inside, settings, weights is None)
    rules = SplitRules(
        packing,
        criterion,
        max_depth=settings.max_depth,
        min_split=max(settings.min_samples_split, 2 * settings.min_samples_leaf),
        min_rows=settings.min_samples_leaf,
        min_weight=settings.min_weight_leaf,
        min_gain=_least_gain(target, criterion, settings, heavy[inside]),
        classes=target.classes > 0,
        max_features=settings.max_features,
    )
    others = current_workers()
    merge = None if others is None else others.add
    grown = grow(codes, order, words, rules, team, seed=settings.seed, merge=merge)
    if settings.max_leaf_nodes > 0:
        grown = best_first(grown, settings.max_leaf_nodes)
    if target.classes:
        return class_tree(grown, codes, target, heavy, settings.criterion)
    return number_tree(grown, codes, target, heavy)


def _packed(
    target: Target, weights: Array, inside: Any, settings: TreeSettings, ones: bool
) -> tuple[Packing, Array, int]:
    """The words of the rows, and the criterion that reads them."""
    values = target.values[inside]
    count = settings.min_samples_leaf > 1
    if not target.classes:
        centred = values - _mean(values, weights)
        extent = extent_of(weights, float(np.abs(centred).max()) or 1.0)
        packing = pair_packing(extent, count_rows=count, ones=ones)
        return packing, pack_pair(packing, weights, centred), PAIR
    if target.classes == 2 and settings.criterion == "gini":
        packing = pair_packing(extent_of(weights, 1.0), count_rows=count, ones=ones)
        return packing, pack_pair(packing, weights, values), PAIR
    packing = class_packing(extent_of(weights), target.classes, count_rows=count, ones=ones)
    return packing, pack_classes(packing, weights, values), GINI if settings.criterion == "gini" else ENTROPY


def _mean(values: Array, weights: Array) -> float:
    total, weight = sum_over_workers([float(values @ weights), float(weights.sum())])
    return float(total / weight)


def _least_gain(target: Target, criterion: int, settings: TreeSettings, weights: Array) -> float:
    """`min_impurity_decrease` in units of the score. Classes may be split for no gain, to gain further down."""
    (total,) = sum_over_workers([float(weights.sum())])
    halved = criterion == PAIR and target.classes > 0  # the score is of one class out of two
    scale = float(np.log(2.0)) if criterion == ENTROPY else 0.5 if halved else 1.0
    least = settings.min_impurity_decrease * float(total) * scale
    if target.classes:
        return float(least - 1e-9 * total)
    values = target.values
    spread = largest_over_workers(float(np.var(values)))
    return max(least, 1e-12 * spread * float(total))


def class_tree(grown: Grown, codes: Codes, target: Target, weights: Array, criterion: str) -> Tree:
    sums = np.zeros((len(grown.nodes), target.classes))
    add_classes(grown.leaves, grown.start, grown.stop, grown.order, target.values, weights, sums)
    (sums,) = sum_over_workers([sums])
    sums = grown.parents_of_sums(sums)
    totals = sums.sum(axis=1)
    shares = sums / totals[:, None]
    if criterion == "gini":
        impurity = 1 - (shares**2).sum(axis=1)
    else:
        impurity = -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=1)
    return _tree(grown, codes, shares[:, None, :], impurity, totals)


def number_tree(grown: Grown, codes: Codes, target: Target, weights: Array) -> Tree:
    sums = np.zeros((len(grown.nodes), 3))
    centre = _mean(target.values, weights)  # squares of large numbers would lose the small differences
    centred = target.values - centre
    add_numbers(grown.leaves, grown.start, grown.stop, grown.order, centred, weights, sums)
    (sums,) = sum_over_workers([sums])
    sums = grown.parents_of_sums(sums)
    means = sums[:, 1] / sums[:, 0]
    impurity = np.maximum(sums[:, 2] / sums[:, 0] - means**2, 0.0)
    return _tree(grown, codes, (means + centre)[:, None, None], impurity, sums[:, 0])


def _tree(grown: Grown, codes: Codes, values: Array, impurity: Array, weights: Array) -> Tree:
    """scikit-learn's tree of these nodes."""
    nodes = np.zeros(len(grown.nodes), np.dtype(NODE_DTYPE))
    leaf = grown.left < 0
    nodes["left_child"], nodes["right_child"] = grown.left, grown.right
    nodes["feature"] = np.where(leaf, -2, grown.feature)
    nodes["threshold"] = grown.thresholds(codes.bins)
    nodes["impurity"] = impurity
    (rows,) = sum_over_workers([grown.stop - grown.start])
    nodes["n_node_samples"] = rows
    nodes["weighted_n_node_samples"] = weights
    nodes["missing_go_to_left"] = grown.missing_left
    tree = Tree(codes.columns, np.array([values.shape[2]], np.intp), 1)
    tree.__setstate__(
        {
            "max_depth": grown.depth,
            "node_count": len(nodes),
            "nodes": nodes,
            "values": np.ascontiguousarray(values, np.float64),
        }
    )
    return tree
