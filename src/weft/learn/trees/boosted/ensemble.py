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
from weft.learn.trees.kernels.depth import FEATURE, LEFT, RIGHT
from weft.learn.trees.packed import PackedTrees, chunk_rows, pack

Array = np.ndarray[Any, Any]


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


def boosted_trees(
    grown: Sequence[Grown], bins: Bins | StoredBins, values: Sequence[Array]
) -> list[BoostedTree]:
    """Return grown trees as those of a model; many at once, as small ones take less time than each step would."""
    if not grown:
        return []
    sizes = [len(one.nodes) for one in grown]
    ends = np.cumsum(sizes)
    nodes = np.concatenate([one.nodes for one in grown]).astype(np.int64)
    inner = nodes[:, LEFT] >= 0
    first = np.repeat(ends - sizes, sizes)
    left, right = nodes[:, LEFT].astype(np.int32), nodes[:, RIGHT].astype(np.int32)
    nodes[inner, LEFT] += first[inner]
    nodes[inner, RIGHT] += first[inner]
    whole = Grown(nodes, np.empty(0), np.empty(0), {})
    feature, threshold = nodes[:, FEATURE].astype(np.int32), whole.thresholds(bins)
    missing, rows = whole.missing_left, (whole.stop - whole.start).astype(np.int32)
    trees = []
    for one, value, start, stop in zip(grown, values, (ends - sizes).tolist(), ends.tolist(), strict=True):
        own = slice(start, stop)
        for node, side in one.sides.items():
            missing[start + node] = side[255]
        sides = {node: side[:255] for node, side in one.sides.items()}
        trees.append(
            BoostedTree(
                feature[own],
                threshold[own],
                left[own],
                right[own],
                missing[own],
                value,
                one.gains,
                rows[own],
                sides,
            )
        )
    return trees


@dataclass(frozen=True)
class CategoryTrees:
    """Trees of one output that cut categories, too, as the arrays that `add_trees` reads."""

    roots: Array
    arrays: tuple[Array, ...]
    output: int

    def add_to(self, X: Any, out: Array, team: ThreadTeam | None = None) -> None:
        """Add what the trees say of each row of X, an array or a CSR matrix, to out[row, output]."""

        def part(start: int) -> None:
            inside = slice(start, start + chunk)
            some = X[inside].toarray() if sparse.issparse(X) else X[inside]
            own = np.ascontiguousarray(out[inside, self.output])
            add_trees(np.ascontiguousarray(some, np.float32), self.roots, *self.arrays, own)  # type: ignore[call-arg]
            out[inside, self.output] = own

        chunk = chunk_rows(X)
        list((team or ThreadTeam(1, None)).map(part, range(0, X.shape[0], chunk)))


def predictors(rounds: Sequence[Sequence[BoostedTree]]) -> list[PackedTrees | CategoryTrees]:
    """Return the trees of some rounds, one for each output, in the form that predicts."""
    if not rounds:
        return []
    outputs = range(len(rounds[0]))
    if any(tree.sides for each in rounds for tree in each):
        return [_category_trees([each[output] for each in rounds], output) for output in outputs]
    trees = [
        (tree.feature, tree.threshold, tree.left, tree.right, tree.missing_left)
        for each in rounds
        for tree in each
    ]
    values = [tree.value[:, None] for each in rounds for tree in each]
    return [pack(trees, values, [output for _ in rounds for output in outputs])]


def _category_trees(trees: Sequence[BoostedTree], output: int) -> CategoryTrees:
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
    arrays = (
        joined("feature"),
        joined("threshold"),
        children("left"),
        children("right"),
        joined("missing_left"),
        np.array(sides, bool).reshape(-1, 255),
        category,
        joined("value"),
    )
    return CategoryTrees(roots, arrays, output)


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
    depth = depth_of(tree.left, tree.right)
    model.tree_.__setstate__(
        {
            "max_depth": depth,
            "node_count": len(nodes),
            "nodes": nodes,
            "values": tree.value[:, None, None].copy(),
        }
    )
    return model


def depth_of(left: Array, right: Array) -> int:
    """Return how deep a tree is whose children come after their parents."""
    depths = np.zeros(len(left), int)
    for node in np.flatnonzero(left >= 0):
        depths[left[node]] = depths[right[node]] = depths[node] + 1
    return int(depths.max())
