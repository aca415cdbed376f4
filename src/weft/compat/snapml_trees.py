"""Trees, forests and boosting of `weft.learn` under Snap ML's names; `weft.compat.snapml` exports them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from weft import learn
from weft.learn.inputs import check_choice, check_count
from weft.learn.trees.boosted.rounds import RoundSettings

Array = np.ndarray[Any, Any]
T = TypeVar("T")


class SnapTrees(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator with Snap ML's parameters that fits an estimator of `weft.learn`, kept as `model_`."""

    model_: Any
    use_gpu: bool
    early_stopping_rounds: int | None

    def _plain(self) -> Any:
        """Return the unfitted estimator of `weft.learn` with the same parameters."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        plain = get_tags(self._plain())
        tags.input_tags = plain.input_tags
        tags.target_tags = plain.target_tags
        tags.classifier_tags, tags.regressor_tags = plain.classifier_tags, plain.regressor_tags
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        return self._fitted(X, y, sample_weight, {})

    def _fitted(self, X: Any, y: Any, sample_weight: Any, validation: dict[str, Any]) -> Self:
        if self.use_gpu:
            warnings.warn(
                "weft.compat.snapml runs on the CPU; use_gpu and gpu_ids have no effect", stacklevel=3
            )
        plain = self._plain()
        if validation:  # without validation rows, Snap ML runs all rounds
            plain.set_params(n_iter_no_change=self.early_stopping_rounds)
        self.model_ = plain.fit(X, y, sample_weight, **validation)
        for name in ("classes_", "n_classes_", "n_features_in_", "feature_names_in_", "n_outputs_"):
            if hasattr(self.model_, name):
                setattr(self, name, getattr(self.model_, name))
        return self

    def predict(self, X: Any, n_jobs: int | None = None) -> Array:
        return self._asked("predict", X)

    @property
    def feature_importances_(self) -> Array:
        check_is_fitted(self)
        shares: Array = self.model_.feature_importances_
        return shares

    def _asked(self, what: str, X: Any) -> Array:
        check_is_fitted(self)
        answer: Array = getattr(self.model_, what)(X)
        return answer


class SnapClassifier(ClassifierMixin, SnapTrees):  # type: ignore[misc]
    """A classifier with Snap ML's parameters."""

    def predict_proba(self, X: Any, n_jobs: int | None = None) -> Array:
        return self._asked("predict_proba", X)

    def predict_log_proba(self, X: Any) -> Array:
        return self._asked("predict_log_proba", X)


def spelled(name: str) -> Callable[[type[T]], type[T]]:
    """Give a class the name that Snap ML has for it: `repr` and pickle show and find it under that name."""

    def rename(kind: type[T]) -> type[T]:
        kind.__name__ = kind.__qualname__ = name
        return kind

    return rename


def bins_of(hist_nbins: int) -> int:
    """Return the bins of values for Snap ML's number of up to 256: one code is reserved for missing values."""
    return min(check_count("hist_nbins", hist_nbins, least=2), 255)


def method_of(use_histograms: bool) -> str:
    """Return the `tree_method` of `weft.learn`."""
    return "auto" if use_histograms else "exact"


class _SnapTree(SnapTrees):
    """The parameters of both kinds of tree."""

    def __init__(
        self,
        criterion: str | None = None,
        splitter: str = "best",
        max_depth: int | None = None,
        min_samples_leaf: int = 1,
        max_features: Any = None,
        random_state: Any = None,
        n_jobs: int = 1,
        use_histograms: bool = True,
        hist_nbins: int = 256,
        use_gpu: bool = False,
        gpu_id: int = 0,
        verbose: bool = False,
    ):
        self.criterion = criterion
        self.splitter = splitter
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.use_histograms = use_histograms
        self.hist_nbins = hist_nbins
        self.use_gpu = use_gpu
        self.gpu_id = gpu_id
        self.verbose = verbose

    def _options(self) -> dict[str, Any]:
        return {
            "splitter": self.splitter,
            "max_depth": self.max_depth,
            "min_samples_leaf": self.min_samples_leaf,
            "max_features": _features(self.max_features),
            "random_state": self.random_state,
            "n_jobs": self.n_jobs,
            "tree_method": method_of(self.use_histograms),
            "max_bins": bins_of(self.hist_nbins),
        }


@spelled("DecisionTreeClassifier")
class SnapDecisionTreeClassifier(SnapClassifier, _SnapTree):
    """`weft.learn.DecisionTreeClassifier` with Snap ML's parameters."""

    def _plain(self) -> Any:
        return learn.DecisionTreeClassifier(criterion=self.criterion or "gini", **self._options())


@spelled("DecisionTreeRegressor")
class SnapDecisionTreeRegressor(RegressorMixin, _SnapTree):  # type: ignore[misc]
    """`weft.learn.DecisionTreeRegressor` with Snap ML's parameters."""

    def _plain(self) -> Any:
        check_choice("criterion", self.criterion, (None, "mse"))
        return learn.DecisionTreeRegressor(**self._options())


class _SnapForest(SnapTrees):
    """The parameters of both kinds of forest."""

    def __init__(
        self,
        n_estimators: int = 10,
        criterion: str | None = None,
        max_depth: int | None = None,
        min_samples_leaf: int = 1,
        max_features: Any = "auto",
        bootstrap: bool = True,
        n_jobs: int = 1,
        random_state: Any = None,
        verbose: bool = False,
        use_histograms: bool = False,
        hist_nbins: int = 256,
        use_gpu: bool = False,
        gpu_ids: Any = None,
        compress_trees: bool = False,
    ):
        self.n_estimators = n_estimators
        self.criterion = criterion
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.bootstrap = bootstrap
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.use_histograms = use_histograms
        self.hist_nbins = hist_nbins
        self.use_gpu = use_gpu
        self.gpu_ids = gpu_ids
        self.compress_trees = compress_trees

    def _options(self) -> dict[str, Any]:
        return {
            "n_estimators": self.n_estimators,
            "max_depth": self.max_depth,
            "min_samples_leaf": self.min_samples_leaf,
            "max_features": _features(self.max_features),
            "bootstrap": self.bootstrap,
            "n_jobs": self.n_jobs,
            "random_state": self.random_state,
            "tree_method": method_of(self.use_histograms),
            "max_bins": bins_of(self.hist_nbins),
        }


@spelled("RandomForestClassifier")
class SnapRandomForestClassifier(SnapClassifier, _SnapForest):
    """`weft.learn.RandomForestClassifier` with Snap ML's parameters; its trees are exact unless `use_histograms`."""

    def _plain(self) -> Any:
        return learn.RandomForestClassifier(criterion=self.criterion or "gini", **self._options())


@spelled("RandomForestRegressor")
class SnapRandomForestRegressor(RegressorMixin, _SnapForest):  # type: ignore[misc]
    """`weft.learn.RandomForestRegressor` with Snap ML's parameters."""

    def _plain(self) -> Any:
        check_choice("criterion", self.criterion, (None, "mse"))
        return learn.RandomForestRegressor(**self._options())


class _AnyDepth:
    """Boosting whose trees have a random depth, drawn for each round."""

    depths: tuple[int, int]

    def _settings_now(self, settings: RoundSettings, random: np.random.RandomState) -> RoundSettings:
        low, high = self.depths
        return replace(settings, max_depth=int(random.randint(low, high + 1)))


class _AnyDepthClassifier(_AnyDepth, learn.GradientBoostingClassifier):
    pass


class _AnyDepthRegressor(_AnyDepth, learn.GradientBoostingRegressor):
    pass


class _SnapBoosting(SnapTrees):
    """The parameters of both kinds of boosting."""

    def __init__(
        self,
        n_jobs: int = 1,
        num_round: int = 100,
        objective: str | None = None,
        max_depth: int | None = None,
        min_max_depth: int = 1,
        max_max_depth: int = 5,
        early_stopping_rounds: int = 10,
        random_state: Any = 0,
        base_score: float | None = None,
        learning_rate: float = 0.1,
        verbose: bool = False,
        compress_trees: bool = False,
        use_histograms: bool = True,
        hist_nbins: int = 256,
        use_gpu: bool = False,
        gpu_ids: Any = None,
        colsample_bytree: float = 1.0,
        subsample: float = 1.0,
        lambda_l2: float = 0.0,
        alpha: float = 0.5,
        tree_select_probability: float = 1.0,
    ):
        self.n_jobs = n_jobs
        self.num_round = num_round
        self.objective = objective
        self.max_depth = max_depth
        self.min_max_depth = min_max_depth
        self.max_max_depth = max_max_depth
        self.early_stopping_rounds = early_stopping_rounds
        self.random_state = random_state
        self.base_score = base_score
        self.learning_rate = learning_rate
        self.verbose = verbose
        self.compress_trees = compress_trees
        self.use_histograms = use_histograms
        self.hist_nbins = hist_nbins
        self.use_gpu = use_gpu
        self.gpu_ids = gpu_ids
        self.colsample_bytree = colsample_bytree
        self.subsample = subsample
        self.lambda_l2 = lambda_l2
        self.alpha = alpha
        self.tree_select_probability = tree_select_probability

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
    ) -> Self:
        """Fit; with validation rows, stop when `early_stopping_rounds` rounds bring no improvement."""
        validation = {"X_val": X_val, "y_val": y_val, "sample_weight_val": sample_weight_val}
        return self._fitted(X, y, sample_weight, validation if X_val is not None else {})

    def _set_up(self, plain: Any) -> Any:
        check_choice("tree_select_probability", float(self.tree_select_probability), (1.0,))
        low = check_count("min_max_depth", self.min_max_depth, least=1)
        plain.depths = (low, check_count("max_max_depth", self.max_max_depth, least=low))
        if self.max_depth is not None:
            plain.depths = (self.max_depth, self.max_depth)
        return plain.set_params(
            n_estimators=self.num_round,
            learning_rate=self.learning_rate,
            subsample=self.subsample,
            min_samples_leaf=1,
            max_leaf_nodes=None,
            max_features=None if self.colsample_bytree == 1.0 else float(self.colsample_bytree),
            l2_regularization=self.lambda_l2,
            max_bins=bins_of(self.hist_nbins),
            random_state=self.random_state,
            n_jobs=self.n_jobs,
            tol=0.0,
        )


class BoostingMachineClassifier(SnapClassifier, _SnapBoosting):
    """`weft.learn.GradientBoostingClassifier` with Snap ML's parameters, and trees of random depth."""

    def _plain(self) -> Any:
        check_choice("objective", self.objective, (None, "logloss"))
        return self._set_up(_AnyDepthClassifier())


class BoostingMachineRegressor(RegressorMixin, _SnapBoosting):  # type: ignore[misc]
    """`weft.learn.GradientBoostingRegressor` with Snap ML's parameters, and trees of random depth."""

    def _plain(self) -> Any:
        check_choice("objective", self.objective, (None, "mse", "quantile"))
        plain = self._set_up(_AnyDepthRegressor())
        loss = "quantile" if self.objective == "quantile" else "squared_error"
        return plain.set_params(loss=loss, alpha=self.alpha)


DecisionTreeClassifier = SnapDecisionTreeClassifier
DecisionTreeRegressor = SnapDecisionTreeRegressor
RandomForestClassifier = SnapRandomForestClassifier
RandomForestRegressor = SnapRandomForestRegressor


def _features(asked: Any) -> Any:
    return "sqrt" if isinstance(asked, str) and asked == "auto" else asked
