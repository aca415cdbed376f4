"""The door that frames enter estimators by: `fit(frame, label="y")`, and predictions for frames of any library."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from weft.errors import UsageError
from weft.learn.frames.columns import as_features
from weft.learn.frames.kinds import (
    SPARK,
    brought_here,
    columns_in_order,
    library_of,
    without_column,
)
from weft.learn.frames.parts import predicted_in_parts
from weft.learn.tables.source import is_source

Estimator = TypeVar("Estimator", bound=type)

PREDICTIONS = ("predict", "predict_proba", "predict_log_proba", "decision_function")
BY_NAME = ("pyarrow", "duckdb", "dask")  # libraries whose frames scikit-learn finds no columns of


def takes_frames(estimator: Estimator) -> Estimator:
    """Decorate an estimator whose `fit` and predictions take frames, with the target and the weights by name."""
    for name in ("fit", *PREDICTIONS):
        method = getattr(estimator, name, None)
        if method is not None:
            setattr(estimator, name, (_fit if name == "fit" else _prediction)(method))
    return estimator


def _fit(fit: Callable[..., Any]) -> Callable[..., Any]:
    after_y = list(signature(fit).parameters)[3:]

    @wraps(fit)
    def fitted(self: Any, X: Any, y: Any = None, *args: Any, label: str | None = None, **more: Any) -> Any:
        if label is not None:
            y = _only(label, y)
        library = library_of(X)
        vars(self).pop("_label_named", None)
        if not library:
            return fit(self, X, _checked(X, y, label), *args, **more)
        more.update(zip(after_y, args, strict=False))
        if library == SPARK:
            from weft.learn.frames.spark import fit_on_spark

            return fit_on_spark(self, X, y, more)
        X, named = brought_here(X), isinstance(y, str)
        if named:
            X, y = without_column(X, y, "the label")
        if isinstance(more.get("sample_weight"), str):
            X, more["sample_weight"] = without_column(X, more["sample_weight"], "sample_weight")
        result = fit(self, as_features(X, self), brought_here(y), **more)
        if named:
            self._label_named = True
        return result

    return fitted


def _prediction(predict: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(predict)
    def predicted(self: Any, X: Any, *args: Any, **more: Any) -> Any:
        library = library_of(X)
        if library == SPARK:
            from weft.learn.frames.spark_predictions import with_predictions

            return with_predictions(self, predict.__name__, X)
        if is_source(X):
            return predicted_in_parts(self, lambda model, rows: predict(model, rows, *args, **more), X)
        if library:
            chosen = library in BY_NAME or getattr(self, "_label_named", False) or hasattr(X, "collect")
            X = brought_here(X)
            if chosen:
                X = columns_in_order(X, getattr(self, "feature_names_in_", None))
            X = as_features(X, self, getattr(getattr(self, "_categories", None), "known", ()))
        return predict(self, X, *args, **more)

    return predicted


def _only(label: str, y: Any) -> str:
    if y is not None:
        raise UsageError("a fit must have y or label=, got both; leave one of them out")
    if not isinstance(label, str):
        raise UsageError(f"label must be the name of a column, got {type(label).__name__}")
    return label


def _checked(X: Any, y: Any, label: str | None) -> Any:
    if label is not None and not is_source(X):
        raise UsageError(
            f"label= must come with a frame or with files, got {type(X).__name__}; pass the targets as y"
        )
    return y
