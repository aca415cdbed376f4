"""The trees of a boosted model, as arrays that predict, and as scikit-learn's trees that explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.tree import DecisionTreeRegressor
from sklearn.tree._tree import NODE_DTYPE, Tree

from weft.learn.threads import ThreadTeam
from weft.learn.trees.growth.binning import Bins
from weft.learn.trees.growth.grown import Grown
from weft.learn.trees.growth.stored import StoredBins
from weft.learn.trees.kernels.boosting import add_trees

Array = np.ndarray[Any, Any]
CHUNK = 1 << 14  # rows predicted by one task


@dataclass(frozen=True)
class BoostedTree:
    """One tree: what it adds to the raw prediction of an output."""

    feature: Array
    threshold: Array
    left: Array
    right: Array
    missing_left: Array
    value: Array
    gain: Array
    rows: Array
    sides: dict[int, Array]  # of nodes that cut a categorical feature: which categories go left


def boosted_tree(grown: Grown, bins: Bins | StoredBins, values: Array) -> BoostedTree:
    missing = grown.missing_left
    for node, side in grown.sides.items():
        missing[node] = side[255]
    return BoostedTree(
        grown.feature.copy(),
        grown.thresholds(bins),
        grown.left.copy(),
        grown.right.copy(),
        missing,
        values,
        grown.gains,
        grown.stop - grown.start,
        {node: side[:255] for node, side in grown.sides.items()},
    )


def add_predictions(trees: Sequence[BoostedTree], X: Any, out: Array, team: ThreadTeam) -> None:
    """Add what the trees say of each row of X, an array or a CSR matrix, to out[row]."""
    if not trees:
        return
    sizes = [len(tree.feature) for tree in trees]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])

    def joined(name: str) -> Array:
        return np.concatenate([getattr(tree, name) for tree in trees])

    def children(name: str) -> Array:
        parts = [getattr(tree, name) for tree in trees]
        return np.concatenate(
            [np.where(part >= 0, part + root, -1) for part, root in zip(parts, roots, strict=True)]
        )

    category = np.full(sum(sizes), -1)
    sides: list[Array] = []
    for tree, root in zip(trees, roots, strict=True):
        for node, side in tree.sides.items():
            category[root + node] = len(sides)
            sides.append(side)
    table = np.array(sides, bool).reshape(-1, 255)
    arrays = (
        joined("feature"),
        joined("threshold"),
        children("left"),
        children("right"),
        joined("missing_left"),
        table,
        category,
        joined("value"),
    )

    def part(start: int) -> None:
        inside = slice(start, start + chunk)
        some = X[inside]
        add_trees(some.toarray() if sparse.issparse(some) else some, roots, *arrays, out[inside])

    # A part of a sparse table is as large as one of a dense table of 64 columns.
    chunk = CHUNK if not sparse.issparse(X) else max(64, min(CHUNK, 64 * CHUNK // max(1, X.shape[1])))
    list(team.map(part, range(0, X.shape[0], chunk)))


def importances(trees: Sequence[BoostedTree], columns: int) -> Array:
    """What each feature's cuts gained, as shares of one."""
    sums = np.zeros(columns)
    for tree in trees:
        inner = tree.left >= 0
        np.add.at(sums, tree.feature[inner], tree.gain[inner])
    total = sums.sum()
    return sums / total if total > 0 else sums


def as_regressor(tree: BoostedTree, columns: int) -> DecisionTreeRegressor:
    """scikit-learn's tree of the same cuts and values; there is none for categorical features."""
    if tree.sides:
        raise ValueError(
            "trees must cut numbers only to become scikit-learn's, got categorical features; use predict"
        )
    nodes = np.zeros(len(tree.feature), np.dtype(NODE_DTYPE))
    leaf = tree.left < 0
    nodes["left_child"], nodes["right_child"] = tree.left, tree.right
    nodes["feature"], nodes["threshold"] = np.where(leaf, -2, tree.feature), tree.threshold
    nodes["n_node_samples"], nodes["weighted_n_node_samples"] = tree.rows, tree.rows
    nodes["missing_go_to_left"] = tree.missing_left
    model = DecisionTreeRegressor()
    model.n_features_in_, model.n_outputs_, model.max_features_ = columns, 1, columns
    model.tree_ = Tree(columns, np.array([1], np.intp), 1)
    depth = _depth(tree)
    model.tree_.__setstate__(
        {
            "max_depth": depth,
            "node_count": len(nodes),
            "nodes": nodes,
            "values": tree.value[:, None, None].copy(),
        }
    )
    return model


def _depth(tree: BoostedTree) -> int:
    depths = np.zeros(len(tree.left), int)
    for node in np.flatnonzero(tree.left >= 0):  # parents come before their children
        depths[tree.left[node]] = depths[tree.right[node]] = depths[node] + 1
    return int(depths.max())
