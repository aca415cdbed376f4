"""Random forests: scikit-learn's, with trees that are grown on histograms where the table is large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from joblib import parallel_config
from scipy import sparse
from sklearn import ensemble as sk
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples

from weft.learn import inputs
from weft.learn.frames.entry import takes_frames
from weft.learn.tables.mapped import Mapped
from weft.learn.tables.sizes import share_out
from weft.learn.tables.source import is_source
from weft.learn.threads import thread_count, thread_team
from weft.learn.trees.decision_tree import (
    CONSTRAINTS,
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    SharedCodes,
)
from weft.learn.trees.exported import cuts_of_tree
from weft.learn.trees.growth.binning import MOST, in_file
from weft.learn.trees.packed import PackedCache, PackedTrees, pack
from weft.learn.workers.group import current_workers, distinct_over_workers
from weft.learn.workers.joint_fit import joint_fit, refuse_workers

Array = np.ndarray[Any, Any]
ASKED_OF_TREES = ("tree_method", "max_bins")


class HistogramForest:
    """The mixin that our two kinds of forest add to scikit-learn's: one table of codes for all trees, and threads."""

    n_jobs: int | None
    oob_score: Any
    estimators_: list[Any]
    feature_names_in_: Any
    estimator_params: tuple[str, ...]
    n_features_in_: int
    n_outputs_: int
    _shared: SharedCodes | None = None
    _packed: PackedCache | None = None
    _each: int = 1

    @joint_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, memory: str | int | None = None) -> Self:
        """Grow the forest; X may be a path, a glob or a pyarrow dataset, and y its target's name.

        Rows of such are mapped, not read. Codes that take too much of `memory` go to a file, which is read level by
        level: trees then grow one after the other, each with all threads. They are the same trees.
        """
        if self.oob_score:
            refuse_workers(self, " where oob_score is asked for")
        names = mapped = room = None
        if is_source(X):
            X, y = inputs.opened(X, y, memory)
        if is_source(X):
            X, y = inputs.stored_table(self, X, y, memory, missing=True)
            room = share_out(memory, X.shape[1]).codes_bytes
        if isinstance(X, Mapped):
            mapped, X, names = X, X.array, self.feature_names_in_
        self._shared = SharedCodes(room, mapped, forest=self)
        threads = self._threads(X)
        alone = room is not None and in_file(X.shape[0], X.shape[1], room)
        self._each = threads if alone else 1  # trees grow side by side, each with one
        try:
            with parallel_config(backend="threading", n_jobs=1 if alone else threads):
                super().fit(X, y, sample_weight)  # type: ignore[misc]
        finally:
            del self._shared, self._each
            for tree in getattr(self, "estimators_", []):
                tree.__dict__.pop("_shared", None)
        if names is not None:
            self.feature_names_in_ = names
        self._packed = PackedCache()
        return self

    def _mean(self, X: Any) -> Array | None:
        """Return the mean of what the trees say of each row (rows, outputs), or None where scikit-learn has to."""
        trees = self.__dict__.get("estimators_")
        if not trees or self.n_outputs_ != 1 or sparse.issparse(X):
            return None
        rows = inputs.plain_float32_rows(self, X)
        X = self._validate_X_predict(X) if rows is None else rows  # type: ignore[attr-defined]
        packed = (self._packed or PackedCache()).of(trees, lambda: _pack(trees))
        sums = np.zeros((X.shape[0], packed.value.shape[1]))
        if X.shape[0] * len(trees) < inputs.FEW:
            packed.add_to(X, sums)
        else:
            with thread_team(thread_count(self.n_jobs, X.shape[0] * len(trees))) as team:
                packed.add_to(X, sums, team)
        return sums / len(trees)

    def _threads(self, X: Any) -> int:
        if current_workers() is not None:
            return 1  # all workers grow the same tree at a time
        columns = X.shape[1] if len(getattr(X, "shape", ())) == 2 else 1
        return thread_count(self.n_jobs, _num_samples(X) * columns) if hasattr(X, "__len__") else 1

    def _make_estimator(self, append: bool = True, random_state: Any = None) -> Any:
        tree = super()._make_estimator(append, random_state)  # type: ignore[misc]
        tree._shared = self._shared
        tree.n_jobs = self._each
        return tree


def _pack(forest: Sequence[Any]) -> PackedTrees:
    """Return the trees of a forest as predictions read them: each says its share of the mean."""
    cuts = [cuts_of_tree(tree.tree_) for tree in forest]
    trees = [(one.feature, one.threshold, one.left, one.right, one.missing_left) for one in cuts]
    return pack(trees, [tree.tree_.value[:, 0, :] for tree in forest], [0] * len(trees))


@takes_frames
class RandomForestClassifier(HistogramForest, sk.RandomForestClassifier):  # type: ignore[misc]
    """A random forest that tells classes apart.

    Parameters and attributes are scikit-learn's; up to 10,000 rows the trees are, too, split for split. Larger tables
    are cut into bins once, for all trees (`tree_method`, `max_bins`: see `DecisionTreeClassifier`).
    """

    _parameter_constraints = {  # noqa: RUF012
        **sk.RandomForestClassifier._parameter_constraints,
        **CONSTRAINTS,
    }

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: str = "gini",
        max_depth: int | None = None,
        min_samples_split: float = 2,
        min_samples_leaf: float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: Any = "sqrt",
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        bootstrap: bool = True,
        oob_score: Any = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        class_weight: Any = None,
        ccp_alpha: float = 0.0,
        max_samples: Any = None,
        monotonic_cst: Any = None,
        tree_method: str = "auto",
        max_bins: int = MOST,
    ):
        super().__init__(
            n_estimators,
            criterion=criterion,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
            min_samples_leaf=min_samples_leaf,
            min_weight_fraction_leaf=min_weight_fraction_leaf,
            max_features=max_features,
            max_leaf_nodes=max_leaf_nodes,
            min_impurity_decrease=min_impurity_decrease,
            bootstrap=bootstrap,
            oob_score=oob_score,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            warm_start=warm_start,
            class_weight=class_weight,
            ccp_alpha=ccp_alpha,
            max_samples=max_samples,
            monotonic_cst=monotonic_cst,
        )
        self.estimator = DecisionTreeClassifier()
        self.estimator_params = (*self.estimator_params, *ASKED_OF_TREES)
        self.tree_method = tree_method
        self.max_bins = max_bins

    def predict_proba(self, X: Any) -> Any:
        """Return the shares of classes of each row: the mean of those of the leaves that it ends in."""
        found = self._mean(X)
        return super().predict_proba(X) if found is None else found

    def _validate_y_class_weight(self, y: Any, sample_weight: Any) -> Any:
        """scikit-learn's step from classes to codes; of workers together, everyone's classes."""
        if current_workers() is None:
            return super()._validate_y_class_weight(y, sample_weight)
        if self.class_weight is not None:
            refuse_workers(self, " where classes have weights")
        check_classification_targets(y)
        classes = distinct_over_workers(y[:, 0])
        self.classes_, self.n_classes_ = [classes], [len(classes)]
        return np.searchsorted(classes, y).astype(np.float64), None


@takes_frames
class RandomForestRegressor(HistogramForest, sk.RandomForestRegressor):  # type: ignore[misc]
    """A random forest of a number; see `RandomForestClassifier` for what differs from scikit-learn's."""

    _parameter_constraints = {  # noqa: RUF012
        **sk.RandomForestRegressor._parameter_constraints,
        **CONSTRAINTS,
    }

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        criterion: str = "squared_error",
        max_depth: int | None = None,
        min_samples_split: float = 2,
        min_samples_leaf: float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: Any = 1.0,
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        bootstrap: bool = True,
        oob_score: Any = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        ccp_alpha: float = 0.0,
        max_samples: Any = None,
        monotonic_cst: Any = None,
        tree_method: str = "auto",
        max_bins: int = MOST,
    ):
        super().__init__(
            n_estimators,
            criterion=criterion,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
            min_samples_leaf=min_samples_leaf,
            min_weight_fraction_leaf=min_weight_fraction_leaf,
            max_features=max_features,
            max_leaf_nodes=max_leaf_nodes,
            min_impurity_decrease=min_impurity_decrease,
            bootstrap=bootstrap,
            oob_score=oob_score,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            warm_start=warm_start,
            ccp_alpha=ccp_alpha,
            max_samples=max_samples,
            monotonic_cst=monotonic_cst,
        )
        self.estimator = DecisionTreeRegressor()
        self.estimator_params = (*self.estimator_params, *ASKED_OF_TREES)
        self.tree_method = tree_method
        self.max_bins = max_bins

    def predict(self, X: Any) -> Array:
        """Return the mean of the numbers of the leaves that each row ends in."""
        found = self._mean(X)
        predicted: Array = super().predict(X) if found is None else found[:, 0]
        return predicted
