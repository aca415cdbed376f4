"""The estimators of `weft.learn` under Snap ML's names and parameters, for scripts that were written for Snap ML.

    from weft.compat.snapml import LogisticRegression     # was: from snapml import LogisticRegression

    model = LogisticRegression(regularizer=10.0, max_iter=200, device_ids=[0, 1]).fit(X_train, y_train)

`regularizer` is what scikit-learn calls 1 / C or alpha. The intercept is not penalised. `use_gpu` and `device_ids` take
the first GPU named, where there is one; else a warning says that the fit runs on the CPU. `dual` has no effect: the
shape of the table decides the solver.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from weft import learn
from weft.compat.snapml_trees import (
    BoostingMachineClassifier,
    BoostingMachineRegressor,
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    spelled,
)
from weft.learn.inputs import check_choice, check_number
from weft.learn.linear.base import LinearClassifier, LinearModel, probabilities
from weft.learn.linear.least_squares import LinearRegressor

__all__ = [
    "BoostingMachineClassifier",
    "BoostingMachineRegressor",
    "DecisionTreeClassifier",
    "DecisionTreeRegressor",
    "LinearRegression",
    "LogisticRegression",
    "RandomForestClassifier",
    "RandomForestRegressor",
    "SupportVectorMachine",
]

Array = np.ndarray[Any, Any]
HISTORIES = (None, "summary", "full")


class _SnapModel(LinearModel):
    """The parameters that Snap ML's three linear models share, and its form of the training history."""

    max_iter: int
    regularizer: float
    use_gpu: bool
    device_ids: Any
    n_jobs: Any
    fit_intercept: bool
    generate_training_history: str | None

    def _copy(self, plain: Any) -> None:
        """Copy the fitted attributes of the estimator of `weft.learn`."""
        for name in (
            "classes_",
            "coef_",
            "intercept_",
            "n_iter_",
            "history_",
            "n_features_in_",
            "feature_names_in_",
        ):
            if hasattr(plain, name):
                setattr(self, name, getattr(plain, name))
        self.training_history_ = self._training_history()

    def _training_history(self) -> dict[str, Any] | None:
        steps = self.history_
        if self.generate_training_history is None or not steps:
            return None
        if self.generate_training_history == "summary":
            steps = steps[-1:]
        return {
            "epochs": int(np.max(self.n_iter_)),
            "t_elap_sec": [step.seconds for step in steps],
            "train_obj": [step.objective for step in steps],
            "gap": [step.gap for step in steps],
        }

    def _check(self) -> float:
        """Check the shared parameters; return the strength of the penalty."""
        check_choice("generate_training_history", self.generate_training_history, HISTORIES)
        return check_number("regularizer", self.regularizer, open_end=True)

    def _device(self) -> str | None:
        """Return the GPU to fit on; None, with a warning, where the user asked for one and torch finds none."""
        if not (self.use_gpu or self.device_ids):
            return None
        import torch

        if torch.cuda.is_available():
            return f"cuda:{next(iter(self.device_ids or [0]))}"
        warnings.warn(
            "weft.compat.snapml runs on the CPU: torch finds no GPU; use_gpu and device_ids have no effect",
            stacklevel=3,
        )
        return None


@spelled("LogisticRegression")
class SnapLogisticRegression(_SnapModel, LinearClassifier):
    """`weft.learn.LogisticRegression` with Snap ML's parameters."""

    def __init__(
        self,
        max_iter: int = 1000,
        regularizer: float = 1.0,
        use_gpu: bool = False,
        device_ids: Any = None,
        dual: bool = True,
        verbose: bool = False,
        n_jobs: int = 1,
        penalty: str = "l2",
        tol: float = 0.001,
        generate_training_history: str | None = None,
        class_weight: Any = None,
        fit_intercept: bool = False,
        random_state: Any = None,
    ):
        self.max_iter = max_iter
        self.regularizer = regularizer
        self.use_gpu = use_gpu
        self.device_ids = device_ids
        self.dual = dual
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.penalty = penalty
        self.tol = tol
        self.generate_training_history = generate_training_history
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        check_choice("penalty", self.penalty, ("l1", "l2"))
        plain = learn.LogisticRegression(
            C=1 / self._check(),
            l1_ratio=float(self.penalty == "l1"),
            tol=self.tol,
            max_iter=self.max_iter,
            fit_intercept=self.fit_intercept,
            class_weight=self.class_weight,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
            multi_class="ovr",  # as Snap ML does
            device=self._device(),
        )
        self._copy(plain.fit(X, y, sample_weight))
        return self

    def predict_proba(self, X: Any) -> Array:
        return probabilities(self.decision_function(X), multinomial=False)

    def predict_log_proba(self, X: Any) -> Array:
        return np.log(self.predict_proba(X))


@spelled("LinearRegression")
class SnapLinearRegression(_SnapModel, LinearRegressor):
    """Ridge or lasso, by `penalty`, with Snap ML's parameters; its lasso has `regularizer` = rows * alpha."""

    def __init__(
        self,
        max_iter: int = 1000,
        regularizer: float = 1.0,
        use_gpu: bool = False,
        device_ids: Any = None,
        dual: bool = True,
        verbose: bool = False,
        n_jobs: int = 1,
        penalty: str = "l2",
        tol: float = 0.001,
        generate_training_history: str | None = None,
        fit_intercept: bool = False,
    ):
        self.max_iter = max_iter
        self.regularizer = regularizer
        self.use_gpu = use_gpu
        self.device_ids = device_ids
        self.dual = dual
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.penalty = penalty
        self.tol = tol
        self.generate_training_history = generate_training_history
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        check_choice("penalty", self.penalty, ("l1", "l2"))
        strength = self._check()
        options: dict[str, Any] = {
            "tol": self.tol,
            "max_iter": self.max_iter,
            "fit_intercept": self.fit_intercept,
            "n_jobs": self.n_jobs,
        }
        device = self._device()
        plain: Any = learn.Ridge(strength, device=device, **options)
        if self.penalty == "l1":
            rows = np.sum(sample_weight) if sample_weight is not None else len(y)
            plain = learn.Lasso(strength / max(float(rows), 1e-300), device=device, **options)
        self._copy(plain.fit(X, y, sample_weight))
        return self


class SupportVectorMachine(_SnapModel, LinearClassifier):
    """`weft.learn.LinearSVC` with Snap ML's parameters; a linear kernel."""

    def __init__(
        self,
        max_iter: int = 1000,
        regularizer: float = 1.0,
        use_gpu: bool = False,
        device_ids: Any = None,
        verbose: bool = False,
        n_jobs: int = 1,
        tol: float = 0.001,
        generate_training_history: str | None = None,
        class_weight: Any = None,
        fit_intercept: bool = False,
        loss: str = "hinge",
        kernel: str = "linear",
        random_state: Any = None,
    ):
        self.max_iter = max_iter
        self.regularizer = regularizer
        self.use_gpu = use_gpu
        self.device_ids = device_ids
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.tol = tol
        self.generate_training_history = generate_training_history
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.loss = loss
        self.kernel = kernel
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        check_choice("kernel", self.kernel, ("linear",))
        plain = learn.LinearSVC(
            loss=self.loss,
            C=1 / self._check(),
            tol=self.tol,
            max_iter=self.max_iter,
            fit_intercept=self.fit_intercept,
            class_weight=self.class_weight,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
            device=self._device(),
        )
        self._copy(plain.fit(X, y, sample_weight))
        return self


LogisticRegression = SnapLogisticRegression
LinearRegression = SnapLinearRegression
