"""Fits of families that other packages have: LightGBM, XGBoost and CatBoost."""

from __future__ import annotations

from typing import Any

from weft.auto.families.fitting import MOST_ROUNDS, FitRequest, FittedModel, dense


def fit_lightgbm(asked: FitRequest) -> FittedModel:
    """Fit LightGBM's trees; judges choose the round."""
    import lightgbm

    params, deadline, judges = asked.params, asked.deadline, asked.judges
    kind = lightgbm.LGBMRegressor if asked.classes is None else lightgbm.LGBMClassifier
    estimator = kind(
        learning_rate=params["rate"],
        n_estimators=asked.most_rounds,
        num_leaves=params["leaves"],
        min_child_samples=params["least"],
        reg_lambda=params["l2"],
        subsample=params["rows"],
        subsample_freq=1,
        colsample_bytree=params["columns"],
        random_state=asked.seed,
        n_jobs=asked.threads,
        verbose=-1,
        **({"objective": "mae"} if asked.task.metric == "mae" else {}),
    )
    names = list(asked.categorical) or "auto"
    least: list[tuple[float, int]] = []

    def in_time(env: Any) -> None:
        found = env.evaluation_result_list
        least[:] = [min([*least, (found[0][2] if found else -env.iteration, env.iteration)])]
        if deadline.over():
            raise lightgbm.callback.EarlyStopException(least[0][1], found or [])

    rows = dense(asked.rows)
    if judges is None:
        fitted = estimator.fit(rows, asked.target, categorical_feature=names, callbacks=[in_time])
        return FittedModel("lightgbm", fitted, asked.classes, asked.rounds, deadline.passed)
    estimator.fit(
        rows,
        asked.target,
        categorical_feature=names,
        eval_set=[(dense(judges.rows), judges.target)],
        callbacks=[
            lightgbm.early_stopping(asked.patience, verbose=False, min_delta=asked.least_gain),
            in_time,
        ],
    )
    best = int(estimator.best_iteration_ or MOST_ROUNDS)
    return FittedModel("lightgbm", estimator, asked.classes, best, deadline.passed)


def fit_xgboost(asked: FitRequest) -> FittedModel:
    """Fit XGBoost's trees; judges choose the round."""
    import xgboost

    params, deadline, judges = asked.params, asked.deadline, asked.judges

    class InTime(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return deadline.over()

    kind = xgboost.XGBRegressor if asked.classes is None else xgboost.XGBClassifier
    estimator = kind(
        learning_rate=params["rate"],
        n_estimators=asked.most_rounds,
        max_depth=params["depth"],
        min_child_weight=params["least"],
        reg_lambda=params["l2"],
        subsample=params["rows"],
        colsample_bytree=params["columns"],
        random_state=asked.seed,
        n_jobs=asked.threads,
        tree_method="hist",
        early_stopping_rounds=None if judges is None else asked.patience,
        callbacks=[InTime()],
        **({"objective": "reg:absoluteerror"} if asked.task.metric == "mae" else {}),
    )
    judged = None if judges is None else [(dense(judges.rows), judges.target)]
    estimator.fit(dense(asked.rows), asked.target, eval_set=judged, verbose=False)
    estimator.set_params(callbacks=None)  # a fitted model is pickled
    booster = estimator.get_booster()
    told = booster.attr("best_iteration")  # none where the deadline came first
    best = asked.rounds if judges is None else int(told or booster.num_boosted_rounds() - 1) + 1
    return FittedModel("xgboost", estimator, asked.classes, best, deadline.passed)


def fit_catboost(asked: FitRequest) -> FittedModel:
    """Fit CatBoost's trees; judges choose the round."""
    import catboost

    params, deadline, judges = asked.params, asked.deadline, asked.judges

    class InTime:
        def after_iteration(self, info: Any) -> bool:
            return not deadline.over()

    kind = catboost.CatBoostRegressor if asked.classes is None else catboost.CatBoostClassifier
    estimator = kind(
        learning_rate=params["rate"],
        iterations=asked.most_rounds,
        depth=params["depth"],
        l2_leaf_reg=params["l2"],
        random_seed=asked.seed,
        thread_count=asked.threads,
        verbose=False,
        allow_writing_files=False,
        **({"loss_function": "MAE"} if asked.task.metric == "mae" else {}),
    )
    rows = dense(asked.rows)
    if judges is None:
        estimator.fit(rows, asked.target, callbacks=[InTime()])
        return FittedModel("catboost", estimator, asked.classes, asked.rounds, deadline.passed)
    estimator.fit(
        rows,
        asked.target,
        eval_set=(dense(judges.rows), judges.target),
        early_stopping_rounds=asked.patience,
        callbacks=[InTime()],
    )
    best = int(estimator.get_best_iteration() or 0) + 1
    return FittedModel("catboost", estimator, asked.classes, best, deadline.passed)
