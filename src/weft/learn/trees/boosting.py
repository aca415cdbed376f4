"""Gradient boosting on histograms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from weft.learn import inputs
from weft.learn.frames.entry import takes_frames
from weft.learn.trees.boosted.losses import (
    BoostingLoss,
    Exponential,
    Gamma,
    Huber,
    LogLink,
    LogLoss,
    MultinomialDeviance,
    Poisson,
    Quantile,
    SquaredError,
    Tweedie,
)
from weft.learn.trees.boosted.model import GradientBoosting
from weft.learn.trees.growth.binning import MOST
from weft.learn.workers.group import distinct_over_workers

Array = np.ndarray[Any, Any]


@takes_frames
class GradientBoostingClassifier(ClassifierMixin, GradientBoosting):  # type: ignore[misc]
    """Boosted trees that tell classes apart.

    Parameters and attributes are those of scikit-learn's GradientBoostingClassifier, with some of its histogram twin:
    `max_bins`, `l2_regularization`, `categorical_features` ("from_dtype": a frame's categorical columns; names, places
    or a mask), `monotonic_cst` and `interaction_cst`, and its defaults: up to 31 leaves of at least 20 rows. Two are
    others: an L2 penalty of 1, as in XGBoost, and `learning_rate="auto"`: 0.1, and up to 0.2 on tables of many rows,
    kept as `learning_rate_`. `validation_loss_` has the loss of held-out rows after each round. Missing values are
    allowed. Trees are judged by first and second derivatives; `criterion` has no effect. Columns of more
    than 255 categories become ordered target statistics.
    """

    def __init__(
        self,
        *,
        loss: str = "log_loss",
        learning_rate: float | str = "auto",
        n_estimators: int = 100,
        subsample: float = 1.0,
        criterion: str = "deprecated",
        min_samples_split: float = 2,
        min_samples_leaf: float = 20,
        min_weight_fraction_leaf: float = 0.0,
        max_depth: int | None = None,
        min_impurity_decrease: float = 0.0,
        init: Any = None,
        random_state: Any = None,
        max_features: Any = None,
        verbose: int = 0,
        max_leaf_nodes: int | None = 31,
        warm_start: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        tol: float = 1e-4,
        ccp_alpha: float = 0.0,
        max_bins: int = MOST,
        l2_regularization: float = 1.0,
        categorical_features: Any = "from_dtype",
        monotonic_cst: Any = None,
        interaction_cst: Any = None,
        n_jobs: int | None = None,
    ):
        self.loss = loss
        self.learning_rate = learning_rate
        self.n_estimators = n_estimators
        self.subsample = subsample
        self.criterion = criterion
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_depth = max_depth
        self.min_impurity_decrease = min_impurity_decrease
        self.init = init
        self.random_state = random_state
        self.max_features = max_features
        self.verbose = verbose
        self.max_leaf_nodes = max_leaf_nodes
        self.warm_start = warm_start
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.ccp_alpha = ccp_alpha
        self.max_bins = max_bins
        self.l2_regularization = l2_regularization
        self.categorical_features = categorical_features
        self.monotonic_cst = monotonic_cst
        self.interaction_cst = interaction_cst
        self.n_jobs = n_jobs

    def _encoded(self, y: Array, weights: Array) -> Array:
        inputs.check_choice("loss", self.loss, ("log_loss", "exponential"))
        check_classification_targets(y)
        self.classes_, codes = inputs.checked_classes(y)
        if len(distinct_over_workers(codes[weights > 0])) < 2:
            raise ValueError(
                "y must have rows of at least 2 classes with weight, got one class after trimming"
            )
        self.n_classes_ = len(self.classes_)
        if self.n_classes_ == 2:
            self._loss = LogLoss() if self.loss == "log_loss" else Exponential()
            return codes.astype(np.float64)
        if self.loss == "exponential":
            raise ValueError(
                f"loss='exponential' must have 2 classes, got {self.n_classes_}; use loss='log_loss'"
            )
        self._loss = MultinomialDeviance(self.n_classes_)
        return codes

    def decision_function(self, X: Any) -> Array:
        """Raw predictions: (rows,) for two classes."""
        return self._flat(self._predict_raw(X))

    def predict_proba(self, X: Any) -> Array:
        return self._shares(self._predict_raw(X))

    def predict_log_proba(self, X: Any) -> Array:
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Array:
        return self._labels(self._predict_raw(X))

    def staged_decision_function(self, X: Any) -> Iterator[Array]:
        """The raw predictions after each round."""
        return map(self._flat, self._staged_raw(X))

    def staged_predict_proba(self, X: Any) -> Iterator[Array]:
        return map(self._shares, self._staged_raw(X))

    def staged_predict(self, X: Any) -> Iterator[Array]:
        return map(self._labels, self._staged_raw(X))

    def _shares(self, raw: Array) -> Array:
        shares: Array = self._loss.probabilities(raw)  # type: ignore[attr-defined]
        return shares

    def _labels(self, raw: Array) -> Array:
        codes = (raw[:, 0] > 0).astype(np.intp) if raw.shape[1] == 1 else raw.argmax(axis=1)
        labels: Array = self.classes_[codes]
        return labels

    @staticmethod
    def _flat(raw: Array) -> Array:
        return raw.ravel() if raw.shape[1] == 1 else raw


@takes_frames
class GradientBoostingRegressor(RegressorMixin, GradientBoosting):  # type: ignore[misc]
    """Boosted trees of a number; see `GradientBoostingClassifier` for what differs from scikit-learn's.

    `loss` may also be "poisson", "gamma" or "tweedie" (of a `power` between 1 and 2), whose predictions are positive.
    """

    def __init__(
        self,
        *,
        loss: str = "squared_error",
        learning_rate: float | str = "auto",
        n_estimators: int = 100,
        subsample: float = 1.0,
        criterion: str = "deprecated",
        min_samples_split: float = 2,
        min_samples_leaf: float = 20,
        min_weight_fraction_leaf: float = 0.0,
        max_depth: int | None = None,
        min_impurity_decrease: float = 0.0,
        init: Any = None,
        random_state: Any = None,
        max_features: Any = None,
        alpha: float = 0.9,
        power: float = 1.5,
        verbose: int = 0,
        max_leaf_nodes: int | None = 31,
        warm_start: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = None,
        tol: float = 1e-4,
        ccp_alpha: float = 0.0,
        max_bins: int = MOST,
        l2_regularization: float = 1.0,
        categorical_features: Any = "from_dtype",
        monotonic_cst: Any = None,
        interaction_cst: Any = None,
        n_jobs: int | None = None,
    ):
        self.loss = loss
        self.learning_rate = learning_rate
        self.n_estimators = n_estimators
        self.subsample = subsample
        self.criterion = criterion
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_depth = max_depth
        self.min_impurity_decrease = min_impurity_decrease
        self.init = init
        self.random_state = random_state
        self.max_features = max_features
        self.alpha = alpha
        self.power = power
        self.verbose = verbose
        self.max_leaf_nodes = max_leaf_nodes
        self.warm_start = warm_start
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.ccp_alpha = ccp_alpha
        self.max_bins = max_bins
        self.l2_regularization = l2_regularization
        self.categorical_features = categorical_features
        self.monotonic_cst = monotonic_cst
        self.interaction_cst = interaction_cst
        self.n_jobs = n_jobs

    def _encoded(self, y: Array, weights: Array) -> Array:
        losses: dict[str, Callable[[], BoostingLoss]] = {
            "squared_error": SquaredError,
            "absolute_error": Quantile,
            "quantile": lambda: Quantile(self.alpha),
            "huber": lambda: Huber(self.alpha),
            "poisson": Poisson,
            "gamma": Gamma,
            "tweedie": lambda: Tweedie(getattr(self, "power", 1.5)),
        }
        inputs.check_choice("loss", self.loss, tuple(losses))
        if not 0 < inputs.check_number("alpha", self.alpha) < 1:
            raise ValueError(f"alpha must be between 0 and 1, got {self.alpha!r}")
        if not 1 < inputs.check_number("power", getattr(self, "power", 1.5)) < 2:
            raise ValueError(f"power must be between 1 and 2, got {self.power!r}")
        self._loss = losses[self.loss]()
        if isinstance(self._loss, LogLink):
            self._loss.check(y)
        return y.astype(np.float64)

    def predict(self, X: Any) -> Array:
        return self._prediction(self._predict_raw(X)[:, 0])

    def staged_predict(self, X: Any) -> Iterator[Array]:
        """The predictions after each round."""
        return (self._prediction(raw[:, 0]) for raw in self._staged_raw(X))

    def _prediction(self, raw: Array) -> Array:
        return self._loss.prediction(raw) if isinstance(self._loss, LogLink) else raw
