"""Decision trees: scikit-learn's, split for split, on small tables; on histograms, many times faster, on large ones."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from math import ceil
from numbers import Integral
from threading import Lock
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn import tree as sk
from sklearn.base import _fit_context, is_classifier
from sklearn.utils import check_random_state, compute_sample_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples

from weft.learn import inputs
from weft.learn.frames.entry import takes_frames
from weft.learn.tables.mapped import map_of
from weft.learn.tables.sizes import share_out
from weft.learn.tables.source import is_source
from weft.learn.threads import ThreadTeam, thread_count, thread_team
from weft.learn.trees.growth.binning import MOST, Codes, code_table, find_bins, in_file
from weft.learn.trees.growth.fitting import Target, TreeSettings, fit_tree
from weft.learn.trees.method import METHODS, TreeTask, choose_method
from weft.learn.workers.group import current_workers, distinct_over_workers, shared_seed, sum_over_workers
from weft.learn.workers.joint_fit import joint_fit, refuse_workers, solving

Array = np.ndarray[Any, Any]
ENDLESS = 1 << 30

CONSTRAINTS = {
    "tree_method": [StrOptions(set(METHODS))],
    "max_bins": [Interval(Integral, 2, MOST, closed="both")],
}


class SharedCodes:
    """The codes of a table, made once for all trees of a forest; `mapped`: the table, where it is on disk."""

    def __init__(self, room: int | None = None, mapped: Any = None, forest: Any = None) -> None:
        self._room, self._mapped, self.forest = room, mapped, forest
        self._lock, self._turn = Lock(), Lock()
        self._codes: Codes | None = None

    def of(self, X: Any, max_bins: int, team: ThreadTeam, *, grouped: bool) -> Codes:
        with self._lock:
            if self._codes is None:
                X = X if self._mapped is None else self._mapped
                # Codes in a file are read from its start to its end, level by level.
                grouped = grouped or in_file(X.shape[0], X.shape[1], self._room)
                # A seed of its own: all trees of a forest must see the same bins, whichever comes first.
                bins = find_bins(X, max_bins, np.random.RandomState(0))
                self._codes = code_table(X, bins, team, grouped=grouped, room=self._room)
            return self._codes

    def turn(self) -> AbstractContextManager[Any]:
        """Where codes are in a file a tree waits for the others: what each needs besides comes out of one bound."""
        filed = self._codes is not None and self._codes.window is not None
        return self._turn if filed else nullcontext()


class HistogramTree(sk.BaseDecisionTree):  # type: ignore[misc]  # scikit-learn has no types
    """The mixin that our two kinds of tree add to scikit-learn's: another way to grow them."""

    _shared: SharedCodes | None = None  # set by a forest for as long as it fits
    _room: int | None = None  # bytes of codes that may stay in memory

    @joint_fit
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        check_input: bool = True,
        *,
        memory: str | int | None = None,
    ) -> Self:
        """Grow the tree from rows X (dense, sparse or a frame) and their targets y.

        X may be a path, a glob or a pyarrow dataset, and y its target's name: rows then stay on disk, within `memory`.
        """
        if is_source(X):
            X, y = inputs.opened(X, y, memory)
        if is_source(X):
            X, y = inputs.stored_table(self, X, y, memory, missing=True)
            self._room = share_out(memory, X.shape[1]).codes_bytes
            check_input = False
            if choose_method(TreeTask(len(X), 1, self.criterion), self.tree_method) == "exact":
                X = X.array
        try:
            return self._fit(X, y, sample_weight, check_input)
        finally:
            self.__dict__.pop("_room", None)

    def _validate_X_predict(self, X: Any, check_input: bool) -> Any:  # noqa: N802  scikit-learn's
        rows = inputs.plain_float32_rows(self, X) if check_input else None
        return super()._validate_X_predict(X, check_input) if rows is None else rows

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        check_input: bool = True,
        missing_values_in_feature_mask: Any = None,
    ) -> Self:
        shape = np.asarray(y).shape
        task = TreeTask(
            rows=_rows(X),
            outputs=shape[1] if len(shape) == 2 else 1,
            criterion=self.criterion,
            splitter=self.splitter,
            constrained=self.monotonic_cst is not None,
        )
        asked = "hist" if current_workers() is not None else self.tree_method
        if choose_method(task, asked) == "exact":
            super()._fit(X, y, sample_weight, check_input, missing_values_in_feature_mask)
            return self
        if check_input:
            options = {"dtype": [np.float32, np.float64], "accept_sparse": "csc", "ensure_all_finite": False}
            X, y = inputs.validated(
                self, X, y, validate_separately=(options, {"ensure_2d": False, "dtype": None})
            )
        self._fit_histograms(X, np.asarray(y).reshape(-1), sample_weight)
        self._prune_tree()
        return self

    def _compute_missing_values_in_feature_mask(self, X: Any, estimator_name: Any = None) -> Any:
        """scikit-learn's; histograms see for themselves what is missing, and rows on disk are not read for it."""
        if map_of(X) is not None and choose_method(TreeTask(_rows(X), 1, self.criterion)) == "hist":
            return None
        return super()._compute_missing_values_in_feature_mask(X, estimator_name)

    def _fit_histograms(self, X: Any, y: Array, sample_weight: Any) -> None:
        rows, self.n_features_in_ = X.shape
        if len(y) != rows:
            raise ValueError(f"Number of labels={len(y)} does not match number of samples={rows}")
        self.n_outputs_ = 1
        weights = None if sample_weight is None else inputs.checked_weights(sample_weight, X)
        target, class_weights = self._target(y)
        if class_weights is not None:
            weights = class_weights if weights is None else weights * class_weights
        many, weight = sum_over_workers([float(rows), float(rows if weights is None else weights.sum())])
        settings = self._settings(int(many), weight)
        shared = self._shared or SharedCodes(self._room)
        stored = X.nnz if sparse.issparse(X) else X.size
        whole = self if shared.forest is None else shared.forest  # which has the names of columns
        with thread_team(thread_count(self.n_jobs, stored)) as team, solving(whole):
            # By level where all features are looked at, and where workers must keep in step.
            grouped = settings.max_features >= self.n_features_in_ or current_workers() is not None
            codes = shared.of(X, self.max_bins, team, grouped=grouped)
            with shared.turn():
                self.tree_ = fit_tree(codes, target, weights, settings, team)

    def _target(self, y: Array) -> tuple[Target, Array | None]:
        """What to predict, and the weights that classes give to rows."""
        if not is_classifier(self):
            return Target(y.astype(np.float64), 0), None
        check_classification_targets(y)
        self.classes_ = distinct_over_workers(y)
        codes = np.searchsorted(self.classes_, y)
        self.n_classes_ = np.intp(len(self.classes_))
        weights = None
        if self.class_weight is not None:
            refuse_workers(self, " where classes have weights")
            weights = compute_sample_weight(self.class_weight, y)
        return Target(codes, len(self.classes_)), weights

    def _settings(self, rows: int, weight: float) -> TreeSettings:
        leaf, split = self.min_samples_leaf, self.min_samples_split
        leaf = leaf if isinstance(leaf, Integral) else ceil(leaf * rows)
        split = split if isinstance(split, Integral) else max(2, ceil(split * rows))
        self.max_features_ = count_features(self.max_features, self.n_features_in_)
        return TreeSettings(
            criterion=self.criterion,
            max_depth=ENDLESS if self.max_depth is None else int(self.max_depth),
            min_samples_split=int(split),
            min_samples_leaf=int(leaf),
            min_weight_leaf=self.min_weight_fraction_leaf * weight,
            max_features=self.max_features_,
            max_leaf_nodes=self.max_leaf_nodes or 0,
            min_impurity_decrease=self.min_impurity_decrease,
            seed=shared_seed(int(check_random_state(self.random_state).randint(1 << 31))),
        )


def count_features(asked: Any, columns: int) -> int:
    """How many features a node looks at, in scikit-learn's words."""
    if asked is None:
        return columns
    if asked == "sqrt":
        return max(1, int(np.sqrt(columns)))
    if asked == "log2":
        return max(1, int(np.log2(columns)))
    return int(asked) if isinstance(asked, Integral) else max(1, int(asked * columns))


def _rows(X: Any) -> int:
    try:
        return int(_num_samples(X))
    except TypeError:
        return 0  # scikit-learn says what is wrong with it


@takes_frames
class DecisionTreeClassifier(HistogramTree, sk.DecisionTreeClassifier):  # type: ignore[misc]
    """A decision tree that tells classes apart.

    Parameters and attributes are scikit-learn's. `tree_method="auto"` grows scikit-learn's own tree, split for split,
    up to 10,000 rows, and beyond that one on histograms of up to `max_bins` bins for each feature ("exact" and "hist"
    ask for one of them). `n_jobs=None` uses all cores on large tables; the tree does not depend on it.
    """

    _parameter_constraints = {  # noqa: RUF012
        **sk.DecisionTreeClassifier._parameter_constraints,
        **CONSTRAINTS,
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        *,
        criterion: str = "gini",
        splitter: str = "best",
        max_depth: int | None = None,
        min_samples_split: float = 2,
        min_samples_leaf: float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: Any = None,
        random_state: Any = None,
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        class_weight: Any = None,
        ccp_alpha: float = 0.0,
        monotonic_cst: Any = None,
        tree_method: str = "auto",
        max_bins: int = MOST,
        n_jobs: int | None = None,
    ):
        super().__init__(
            criterion=criterion,
            splitter=splitter,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
            min_samples_leaf=min_samples_leaf,
            min_weight_fraction_leaf=min_weight_fraction_leaf,
            max_features=max_features,
            random_state=random_state,
            max_leaf_nodes=max_leaf_nodes,
            min_impurity_decrease=min_impurity_decrease,
            class_weight=class_weight,
            ccp_alpha=ccp_alpha,
            monotonic_cst=monotonic_cst,
        )
        self.tree_method = tree_method
        self.max_bins = max_bins
        self.n_jobs = n_jobs


@takes_frames
class DecisionTreeRegressor(HistogramTree, sk.DecisionTreeRegressor):  # type: ignore[misc]
    """A decision tree of a number; see `DecisionTreeClassifier` for what differs from scikit-learn's."""

    _parameter_constraints = {  # noqa: RUF012
        **sk.DecisionTreeRegressor._parameter_constraints,
        **CONSTRAINTS,
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        *,
        criterion: str = "squared_error",
        splitter: str = "best",
        max_depth: int | None = None,
        min_samples_split: float = 2,
        min_samples_leaf: float = 1,
        min_weight_fraction_leaf: float = 0.0,
        max_features: Any = None,
        random_state: Any = None,
        max_leaf_nodes: int | None = None,
        min_impurity_decrease: float = 0.0,
        ccp_alpha: float = 0.0,
        monotonic_cst: Any = None,
        tree_method: str = "auto",
        max_bins: int = MOST,
        n_jobs: int | None = None,
    ):
        super().__init__(
            criterion=criterion,
            splitter=splitter,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
            min_samples_leaf=min_samples_leaf,
            min_weight_fraction_leaf=min_weight_fraction_leaf,
            max_features=max_features,
            random_state=random_state,
            max_leaf_nodes=max_leaf_nodes,
            min_impurity_decrease=min_impurity_decrease,
            ccp_alpha=ccp_alpha,
            monotonic_cst=monotonic_cst,
        )
        self.tree_method = tree_method
        self.max_bins = max_bins
        self.n_jobs = n_jobs
