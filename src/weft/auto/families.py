"""Families of models: their defaults, their spaces, and how one is fitted and asked."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.auto.columns import Task
from weft.auto.validation import loss_of
from weft.errors import UsageError

Array = np.ndarray[Any, Any]
Params = Mapping[str, Any]

MOST_ROUNDS = 1500
PATIENCE = 30  # rounds without a better loss that end a boosting
FIRST_TREES = 10  # of a forest that tell how long the others take
PATIENT_FROM = 0.05  # rate below which it waits longer


@dataclass(frozen=True)
class ModelFamily:
    """A kind of model: the view that it wants, the point that is tried first, and the space of the others."""

    name: str
    view: str
    first: dict[str, Any]
    space: dict[str, str]
    package: str = ""  # that must be installed
    most: int = 10_000  # trials: a small space needs no more


_TREES = {"pairs": "true,false"}
FAMILIES = {
    one.name: one
    for one in (
        ModelFamily(
            "linear",
            "linear",
            {"penalty": 1.0, "pairs": False},
            {"penalty": "log:1e-3:1e3", **_TREES},
            most=16,
        ),
        ModelFamily(
            "boosting",
            "trees",
            {"rate": 0.08, "leaves": 24, "least": 10, "l2": 1.0, "rows": 1.0, "columns": 0.8, "pairs": False},
            {
                "rate": "log:0.02:0.2",
                "leaves": "int:4:160:log",
                "least": "int:1:100:log",
                "l2": "log:1e-3:30",
                "rows": "float:0.5:1",
                "columns": "float:0.3:1",
                **_TREES,
            },
        ),
        ModelFamily(
            "lightgbm",
            "trees",
            {"rate": 0.08, "leaves": 31, "least": 20, "l2": 1.0, "rows": 0.9, "columns": 0.8, "pairs": False},
            {
                "rate": "log:0.02:0.2",
                "leaves": "int:4:160:log",
                "least": "int:2:100:log",
                "l2": "log:1e-3:30",
                "rows": "float:0.5:1",
                "columns": "float:0.3:1",
                **_TREES,
            },
            "lightgbm",
        ),
        ModelFamily(
            "forest",
            "trees",
            {"trees": 100, "least": 2, "columns": 0.5, "pairs": False},
            {"trees": "ordered:100,200,400", "least": "int:1:30:log", "columns": "float:0.1:1", **_TREES},
            most=16,
        ),
        ModelFamily(
            "xgboost",
            "trees",
            {"rate": 0.08, "depth": 6, "least": 2.0, "l2": 1.0, "rows": 0.9, "columns": 0.8, "pairs": False},
            {
                "rate": "log:0.02:0.2",
                "depth": "int:3:10",
                "least": "log:0.1:50",
                "l2": "log:1e-2:30",
                "rows": "float:0.5:1",
                "columns": "float:0.3:1",
                **_TREES,
            },
            "xgboost",
        ),
        ModelFamily(
            "catboost",
            "trees",
            {"rate": 0.08, "depth": 6, "l2": 3.0, "pairs": False},
            {"rate": "log:0.03:0.2", "depth": "int:4:8", "l2": "log:0.3:30", **_TREES},
            "catboost",
        ),
    )
}


def chosen_families(asked: tuple[str, ...]) -> list[ModelFamily]:
    """Return the families to try: those that were asked for, or all whose package is installed."""
    for name in asked:
        package = FAMILIES[name].package
        if package and importlib.util.find_spec(package) is None:
            raise UsageError(
                f"--model {name} must have the package {package}, got none; pip install {package}"
            )
    wanted = [FAMILIES[name] for name in asked] or list(FAMILIES.values())
    return [one for one in wanted if not one.package or importlib.util.find_spec(one.package) is not None]


class Deadline:
    """A moment of the monotonic clock after which a fit ends; `passed` remembers that one was ended by it."""

    def __init__(self, at_s: float = math.inf) -> None:
        self.at_s = at_s
        self.passed = False

    @property
    def left_s(self) -> float:
        return self.at_s - time.monotonic()

    def over(self) -> bool:
        """Return whether the time is over; asked after each round of a boosting."""
        self.passed = self.passed or self.left_s <= 0
        return self.passed


@dataclass(frozen=True)
class Judges:
    """Rows that tell a boosting when to stop."""

    rows: Any
    target: Array


@dataclass
class FittedModel:
    """A fitted estimator of a family; `rounds` is the best number of rounds that judges found."""

    family: str
    estimator: Any
    classes: int | None  # how many; None for numbers
    rounds: int | None = None
    cut: bool = False  # a deadline ended the fit before its time

    def predict(self, rows: Any) -> Array:
        """Return (rows, outputs): probabilities of all classes, or one number."""
        if self.classes is None:
            return np.asarray(self.estimator.predict(rows), np.float64).reshape(len_of(rows), 1)
        return np.asarray(self.estimator.predict_proba(rows), np.float64)


def len_of(rows: Any) -> int:
    return int(rows.shape[0])


def fit_model(
    family: str,
    params: Params,
    rows: Any,
    target: Array,
    task: Task,
    *,
    categorical: tuple[int, ...],
    judges: Judges | None = None,
    rounds: int | None = None,
    seed: int = 0,
    deadline: Deadline | None = None,
) -> tuple[FittedModel, Array | None]:
    """Fit a model; with judges, also return what it predicts for them at its best round.

    At the deadline boostings end with the rounds that they have, and forests with the trees.
    """
    maker = {
        "linear": _linear,
        "forest": _forest,
        "boosting": _boosting,
        "lightgbm": _lightgbm,
        "xgboost": _xgboost,
        "catboost": _catboost,
    }[family]
    made = maker(params, rows, target, task, categorical, judges, rounds, seed, deadline or Deadline())
    if isinstance(made, tuple):
        return made
    return made, None if judges is None else made.predict(judges.rows)


def _count(task: Task) -> int | None:
    return None if task.classes is None else len(task.classes)


def _linear(
    params: Params,
    rows: Any,
    target: Array,
    task: Task,
    categorical: Any,
    judges: Any,
    rounds: Any,
    seed: int,
    deadline: Deadline,
) -> FittedModel:
    from weft.learn import LogisticRegression, Ridge

    if task.classes is None:
        # The penalty is for each row: alpha grows with their number as the squares do.
        estimator: Any = Ridge(alpha=params["penalty"] * 1e-3 * len_of(rows) ** 0.5)
    else:
        estimator = LogisticRegression(C=1.0 / params["penalty"], max_iter=300)
    return FittedModel("linear", estimator.fit(rows, target), _count(task))


def _forest(
    params: Params,
    rows: Any,
    target: Array,
    task: Task,
    categorical: Any,
    judges: Any,
    rounds: Any,
    seed: int,
    deadline: Deadline,
) -> FittedModel:
    from weft.learn import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestRegressor if task.classes is None else RandomForestClassifier
    estimator = kind(
        n_estimators=params["trees"],
        min_samples_leaf=params["least"],
        max_features=params["columns"],
        random_state=seed,
        n_jobs=-1,
    )
    rows = _dense(rows)
    if math.isfinite(deadline.at_s):
        began = time.monotonic()
        estimator.set_params(n_estimators=FIRST_TREES).fit(rows, target)
        count = trees_in_time(params["trees"], time.monotonic() - began, deadline.left_s)
        deadline.passed = count < params["trees"]
        estimator.set_params(n_estimators=count, warm_start=True)
    if not math.isfinite(deadline.at_s) or count > FIRST_TREES:
        estimator.fit(rows, target)
    return FittedModel("forest", estimator, _count(task), cut=deadline.passed)


def trees_in_time(wanted: int, first_s: float, left_s: float) -> int:
    """Return how many trees a forest can have, where the first few took `first_s`."""
    more = FIRST_TREES * max(0.0, left_s) / max(first_s, 1e-9)
    return max(FIRST_TREES, int(min(wanted, FIRST_TREES + 0.8 * more)))


def _dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows


def patience_of(rate: float) -> int:
    return PATIENCE if rate >= PATIENT_FROM else 2 * PATIENCE


def _boosting(
    params: Params,
    rows: Any,
    target: Array,
    task: Task,
    categorical: tuple[int, ...],
    judges: Judges | None,
    rounds: int | None,
    seed: int,
    deadline: Deadline,
) -> FittedModel | tuple[FittedModel, Array]:
    from weft.learn import GradientBoostingClassifier, GradientBoostingRegressor

    kind: Any = GradientBoostingRegressor if task.classes is None else GradientBoostingClassifier
    estimator = kind(
        learning_rate=params["rate"],
        n_estimators=MOST_ROUNDS if rounds is None else rounds,
        max_depth=max(3, math.ceil(math.log2(params["leaves"])) + 2),
        max_leaf_nodes=params["leaves"],
        min_samples_leaf=params["least"],
        l2_regularization=params["l2"],
        subsample=params["rows"],
        max_features=params["columns"],
        categorical_features=list(categorical),
        n_iter_no_change=None if judges is None else patience_of(params["rate"]),
        tol=0.0,
        random_state=seed,
    )

    def monitor(_round: int, _model: Any, _locals: Any) -> bool:
        return deadline.over()

    if judges is None:
        estimator.fit(rows, target, None, monitor)
        return FittedModel("boosting", estimator, _count(task), rounds, deadline.passed)
    estimator.fit(rows, target, None, monitor, X_val=judges.rows, y_val=judges.target)
    best, predicted = _best_round(estimator, judges, task)
    return FittedModel("boosting", estimator, _count(task), best, deadline.passed), predicted


def _best_round(estimator: Any, judges: Judges, task: Task) -> tuple[int, Array]:
    """Return the round with the least loss on the judges' rows, and its predictions."""
    staged = (
        (one.reshape(-1, 1) for one in estimator.staged_predict(judges.rows))
        if task.classes is None
        else estimator.staged_predict_proba(judges.rows)
    )
    smooth = "rmse" if task.classes is None else "log_loss"
    best, least, kept = 0, math.inf, np.empty(0)
    for number, predicted in enumerate(staged, 1):
        loss = loss_of(smooth, judges.target, predicted)
        if loss < least:
            best, least, kept = number, loss, np.array(predicted, np.float64)
    return best, kept


def _lightgbm(
    params: Params,
    rows: Any,
    target: Array,
    task: Task,
    categorical: Any,
    judges: Any,
    rounds: Any,
    seed: int,
    deadline: Deadline,
) -> FittedModel:
    import lightgbm

    kind = lightgbm.LGBMRegressor if task.classes is None else lightgbm.LGBMClassifier
    estimator = kind(
        learning_rate=params["rate"],
        n_estimators=MOST_ROUNDS if rounds is None else rounds,
        num_leaves=params["leaves"],
        min_child_samples=params["least"],
        reg_lambda=params["l2"],
        subsample=params["rows"],
        subsample_freq=1,
        colsample_bytree=params["columns"],
        random_state=seed,
        verbose=-1,
    )
    names = list(categorical) or "auto"
    least: list[tuple[float, int]] = []

    def in_time(env: Any) -> None:
        found = env.evaluation_result_list
        least[:] = [min([*least, (found[0][2] if found else -env.iteration, env.iteration)])]
        if deadline.over():
            raise lightgbm.callback.EarlyStopException(least[0][1], found or [])

    if judges is None:
        fitted = estimator.fit(_dense(rows), target, categorical_feature=names, callbacks=[in_time])
        return FittedModel("lightgbm", fitted, _count(task), rounds, deadline.passed)
    estimator.fit(
        _dense(rows),
        target,
        categorical_feature=names,
        eval_set=[(_dense(judges.rows), judges.target)],
        callbacks=[lightgbm.early_stopping(patience_of(params["rate"]), verbose=False), in_time],
    )
    best = int(estimator.best_iteration_ or MOST_ROUNDS)
    return FittedModel("lightgbm", estimator, _count(task), best, deadline.passed)


def _xgboost(
    params: Params,
    rows: Any,
    target: Array,
    task: Task,
    categorical: Any,
    judges: Any,
    rounds: Any,
    seed: int,
    deadline: Deadline,
) -> FittedModel:
    import xgboost

    class InTime(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return deadline.over()

    kind = xgboost.XGBRegressor if task.classes is None else xgboost.XGBClassifier
    estimator = kind(
        learning_rate=params["rate"],
        n_estimators=MOST_ROUNDS if rounds is None else rounds,
        max_depth=params["depth"],
        min_child_weight=params["least"],
        reg_lambda=params["l2"],
        subsample=params["rows"],
        colsample_bytree=params["columns"],
        random_state=seed,
        tree_method="hist",
        early_stopping_rounds=None if judges is None else patience_of(params["rate"]),
        callbacks=[InTime()],
    )
    judged = None if judges is None else [(_dense(judges.rows), judges.target)]
    estimator.fit(_dense(rows), target, eval_set=judged, verbose=False)
    estimator.set_params(callbacks=None)  # a fitted model is pickled
    told = estimator.get_booster().attr("best_iteration")  # none where the deadline came first
    best = rounds if judges is None else int(told or estimator.get_booster().num_boosted_rounds() - 1) + 1
    return FittedModel("xgboost", estimator, _count(task), best, deadline.passed)


def _catboost(
    params: Params,
    rows: Any,
    target: Array,
    task: Task,
    categorical: Any,
    judges: Any,
    rounds: Any,
    seed: int,
    deadline: Deadline,
) -> FittedModel:
    import catboost

    class InTime:
        def after_iteration(self, info: Any) -> bool:
            return not deadline.over()

    kind = catboost.CatBoostRegressor if task.classes is None else catboost.CatBoostClassifier
    estimator = kind(
        learning_rate=params["rate"],
        iterations=MOST_ROUNDS if rounds is None else rounds,
        depth=params["depth"],
        l2_leaf_reg=params["l2"],
        random_seed=seed,
        verbose=False,
        allow_writing_files=False,
    )
    if judges is None:
        estimator.fit(_dense(rows), target, callbacks=[InTime()])
        return FittedModel("catboost", estimator, _count(task), rounds, deadline.passed)
    estimator.fit(
        _dense(rows),
        target,
        eval_set=(_dense(judges.rows), judges.target),
        early_stopping_rounds=patience_of(params["rate"]),
        callbacks=[InTime()],
    )
    best = int(estimator.get_best_iteration() or 0) + 1
    return FittedModel("catboost", estimator, _count(task), best, deadline.passed)
