"""Shapley values of predictions: what each column adds to, or takes from, what trees say of a row on average.

    values, base = shap_values(model, X)
    base + values.sum(axis=1)    # what the model says: raw predictions of boosting, the mean of a forest

They are exact for the trees: a column that is left out goes both ways at its cuts, by the rows that went there in the
fit, as the tree explainer of `shap` and the contributions of LightGBM and XGBoost have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from weft.learn.frames.kinds import brought_here, columns_in_order, library_of
from weft.learn.threads import thread_count, thread_team
from weft.learn.trees.boosted.ensemble import BoostedTree, depth_of
from weft.learn.trees.boosted.model import GradientBoosting
from weft.learn.trees.decision_tree import HistogramTree
from weft.learn.trees.forest import HistogramForest
from weft.learn.trees.kernels.shapley import add_shapley

Array = np.ndarray[Any, Any]
CHUNK = 1 << 12  # rows explained by one task


class ShapleyValues(NamedTuple):
    """The values of all rows: (rows, columns), or (rows, columns, outputs) of several; and what they start from."""

    values: Array
    base: Any  # a number, or one for each output


@dataclass(frozen=True)
class _Tree:
    """One tree as `add_shapley` reads it, and the output that it adds to."""

    arrays: tuple[Any, ...]
    output: int
    base: Array


def shap_values(model: Any, X: Any) -> ShapleyValues:
    """Return the Shapley values of each column for each row of X, by a fitted tree, forest or boosted model.

    A classifier's tree or forest has one output for each class, its share; boosting has raw predictions: one output for
    two classes, one for each of several.
    """
    if library_of(X) in ("pyarrow", "duckdb", "dask"):
        X = columns_in_order(brought_here(X), getattr(model, "feature_names_in_", None))
    check_is_fitted(model)
    boosted = isinstance(model, GradientBoosting)
    if isinstance(model, GradientBoosting):
        X = model._read(X)
        trees = [_boosted(tree, output) for each in model.trees_ for output, tree in enumerate(each)]
        base: Array = model.start_.astype(np.float64)
        origins = model._statistics.origins(model.n_features_in_)
    elif isinstance(model, (HistogramTree, HistogramForest)):
        if model.n_outputs_ != 1:
            raise ValueError(
                f"Shapley values must be of one target, got {model.n_outputs_}; fit one model for each"
            )
        alone = (True,) if isinstance(model, HistogramTree) else ()
        X = model._validate_X_predict(X, *alone)  # type: ignore[union-attr]
        members = getattr(model, "estimators_", [model])
        trees = [_of_tree(each.tree_, len(members)) for each in members]
        base = np.zeros(trees[0].base.shape)
        origins = np.arange(model.n_features_in_)
    else:
        raise TypeError(
            f"a model must be a tree, forest or boosting of weft.learn, got {type(model).__name__}"
        )
    for tree in trees:
        base[tree.output : tree.output + len(tree.base)] += tree.base
    values = _values(trees, X, len(origins), len(base), model.n_jobs)
    if len(origins) > model.n_features_in_:
        whole = np.zeros((len(values), model.n_features_in_, len(base)))
        for column, origin in enumerate(origins):
            whole[:, origin] += values[:, column]
        values = whole
    if len(base) == 1 and (boosted or not is_classifier(model)):
        return ShapleyValues(values[:, :, 0], float(base[0]))
    return ShapleyValues(values, base)


def _values(trees: Sequence[_Tree], X: Any, columns: int, outputs: int, n_jobs: int | None) -> Array:
    values = np.zeros((X.shape[0], columns, outputs))

    def part(start: int) -> None:
        inside = slice(start, start + CHUNK)
        some = X[inside].toarray() if sparse.issparse(X) else X[inside]
        some = np.ascontiguousarray(some, np.float32)
        for tree in trees:
            own = values[inside, :, tree.output : tree.output + len(tree.base)]
            add_shapley(some, *tree.arrays, own)  # type: ignore[call-arg]

    with thread_team(thread_count(n_jobs, X.shape[0] * len(trees) * 64)) as team:
        list(team.map(part, range(0, X.shape[0], CHUNK)))
    return values


def _boosted(tree: BoostedTree, output: int) -> _Tree:
    category = np.full(len(tree.feature), -1)
    category[list(tree.sides)] = np.arange(len(tree.sides))
    sides = np.array(list(tree.sides.values()), bool).reshape(-1, 255)
    return _tree(
        (tree.feature, tree.threshold, tree.left, tree.right, tree.missing_left),
        (category, sides),
        tree.rows,
        tree.value[:, None],
        output,
    )


def _of_tree(tree: Any, members: int) -> _Tree:
    none = np.full(tree.node_count, -1), np.zeros((0, 255), bool)
    cuts = tree.feature, tree.threshold, tree.children_left, tree.children_right, tree.missing_go_to_left
    return _tree(cuts, none, tree.weighted_n_node_samples, tree.value[:, 0, :] / members, 0)


def _tree(cuts: tuple[Any, ...], categories: Any, cover: Array, value: Array, output: int) -> _Tree:
    feature, threshold, left, right, missing_left = cuts
    cover, leaf = np.ascontiguousarray(cover, np.float64), left < 0
    arrays = (
        np.ascontiguousarray(feature, np.int64),
        np.ascontiguousarray(threshold, np.float64),
        np.ascontiguousarray(left, np.int64),
        np.ascontiguousarray(right, np.int64),
        np.ascontiguousarray(missing_left, np.bool_),
        *categories,
        cover,
        np.ascontiguousarray(value, np.float64),
        depth_of(left, right),
    )
    return _Tree(arrays, output, cover[leaf] @ arrays[-2][leaf] / cover[0])
