"""Fits of the families that `weft.learn` has: lines, forests and boosted trees."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from weft.auto.families.fitting import FitRequest, FittedModel, dense, len_of

Array = np.ndarray[Any, Any]

FIRST_TREES = 10  # of a forest that tell how long the others take


def fit_linear(asked: FitRequest) -> FittedModel:
    """Fit ridge or logistic regression."""
    from weft.learn import LogisticRegression, Ridge

    penalty = asked.params["penalty"]
    if asked.classes is None:
        # The penalty is for each row: alpha grows with their number as the squares do.
        estimator: Any = Ridge(alpha=penalty * 1e-3 * len_of(asked.rows) ** 0.5)
    else:
        estimator = LogisticRegression(C=1.0 / penalty, max_iter=300, n_jobs=asked.threads)
    return FittedModel("linear", estimator.fit(asked.rows, asked.target), asked.classes)


def fit_forest(asked: FitRequest) -> FittedModel:
    """Fit a random forest, of as many trees as there is time for."""
    from weft.learn import RandomForestClassifier, RandomForestRegressor

    params, deadline = asked.params, asked.deadline
    kind = RandomForestRegressor if asked.classes is None else RandomForestClassifier
    estimator = kind(
        n_estimators=params["trees"],
        min_samples_leaf=params["least"],
        max_features=params["columns"],
        random_state=asked.seed,
        n_jobs=asked.threads,
    )
    rows = dense(asked.rows)
    if math.isfinite(deadline.at_s):
        began = time.monotonic()
        estimator.set_params(n_estimators=FIRST_TREES).fit(rows, asked.target)
        count = trees_in_time(params["trees"], time.monotonic() - began, deadline.left_s)
        deadline.passed = count < params["trees"]
        estimator.set_params(n_estimators=count, warm_start=True)
    if not math.isfinite(deadline.at_s) or count > FIRST_TREES:
        estimator.fit(rows, asked.target)
    return FittedModel("forest", estimator, asked.classes, cut=deadline.passed)


def trees_in_time(wanted: int, first_s: float, left_s: float) -> int:
    """Return how many trees a forest can have, where the first few took `first_s`."""
    more = FIRST_TREES * max(0.0, left_s) / max(first_s, 1e-9)
    return max(FIRST_TREES, int(min(wanted, FIRST_TREES + 0.8 * more)))


def fit_boosting(asked: FitRequest) -> FittedModel | tuple[FittedModel, Array]:
    """Fit boosted trees; judges choose the round."""
    from weft.learn import GradientBoostingClassifier, GradientBoostingRegressor

    params, deadline, judges = asked.params, asked.deadline, asked.judges
    kind: Any = GradientBoostingRegressor if asked.classes is None else GradientBoostingClassifier
    estimator = kind(
        learning_rate=params["rate"],
        n_estimators=asked.most_rounds,
        max_depth=max(3, math.ceil(math.log2(params["leaves"])) + 2),
        max_leaf_nodes=params["leaves"],
        min_samples_leaf=params["least"],
        l2_regularization=params["l2"],
        subsample=params["rows"],
        max_features=params["columns"],
        categorical_features=list(asked.categorical),
        n_iter_no_change=None if judges is None else asked.patience,
        tol=asked.least_gain,
        random_state=asked.seed,
        n_jobs=asked.threads,
        **({"loss": "absolute_error"} if asked.task.metric == "mae" else {}),
    )

    def monitor(_round: int, _model: Any, _locals: Any) -> bool:
        return deadline.over()

    if judges is None:
        estimator.fit(asked.rows, asked.target, None, monitor)
        return FittedModel("boosting", estimator, asked.classes, asked.rounds, deadline.passed)
    estimator.fit(asked.rows, asked.target, None, monitor, X_val=judges.rows, y_val=judges.target)
    best = int(np.argmin(estimator.validation_loss_)) + 1
    judged = FittedModel("boosting", estimator.first_rounds(best), asked.classes).predict(judges.rows)
    return FittedModel("boosting", estimator, asked.classes, best, deadline.passed), judged
