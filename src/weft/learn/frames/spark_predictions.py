"""Predictions for Spark's data frames: the frame with one more column, computed where its rows are, when it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from weft.errors import DataError
from weft.learn.frames.parts import without_names
from weft.learn.frames.spark import VECTOR, feature_columns, features_of, types_of
from weft.learn.frames.spark_task import SparkRows

# method of an estimator: the column that its answers are in, as MLlib calls them
COLUMNS = {
    "predict": "prediction",
    "predict_proba": "probability",
    "predict_log_proba": "log_probability",
    "decision_function": "raw_prediction",
}


@dataclass(frozen=True)
class BatchScorer:
    """Turns batches of features into batches of predictions, in Spark's executors."""

    model: Any
    method: str
    vector: bool

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pandas as pd

        for batch in batches:
            X = np.stack(batch.iloc[:, 0]) if self.vector else batch.to_numpy()
            found = getattr(self.model, self.method)(X)
            yield pd.Series(list(found) if found.ndim == 2 else found)


def with_predictions(model: Any, method: str, frame: Any) -> Any:
    """Return a Spark frame with the answers of a fitted model in one more column; nothing runs until it is read."""
    functions: Any = import_module("pyspark.sql.functions")
    check_is_fitted(model)
    column, types = COLUMNS[method], types_of(frame)
    if column in types:
        raise DataError(f"a frame must have no column {column!r} yet, got one; rename or drop it")
    rows = features_read(types, getattr(model, "feature_names_in_", None))
    score = functions.pandas_udf(
        _as_function(BatchScorer(without_names(model), method, rows.vector)), _type_of(model, method)
    )
    return frame.withColumn(column, score(functions.struct(*feature_columns(rows))))


def _as_function(scorer: BatchScorer) -> Any:
    """Return a scorer as a function whose annotations tell Spark what goes in and out."""
    import pandas as pd

    def score(batches: Any) -> Any:
        return scorer(batches)

    score.__annotations__ = {"batches": Iterator[pd.DataFrame], "return": Iterator[pd.Series]}
    return score


def features_read(types: dict[str, str], names: Any) -> SparkRows:
    """Decide which columns a model reads: those it was fitted to by name, the only vector, or all."""
    if names is None:
        vectors = [name for name, kind in types.items() if kind == VECTOR]
        names = vectors if len(vectors) == 1 else list(types)
    absent = [name for name in names if name not in types]
    if absent:
        raise DataError(
            f"the frame must have the columns that the model was fitted to, got none named {absent[0]!r}; "
            f"its columns are {', '.join(types)}"
        )
    wanted = {str(name): types[name] for name in names}
    return SparkRows(features_of(wanted), "", None, "double", set(wanted.values()) == {VECTOR})


def _type_of(model: Any, method: str) -> str:
    """Return Spark's type of a model's answers."""
    classes = getattr(model, "classes_", None)
    if method == "predict":
        kind = "f" if classes is None else np.asarray(classes).dtype.kind
        flat = {"i": "long", "u": "long", "b": "boolean", "f": "double"}.get(kind, "string")
        return flat if classes is not None or np.ndim(getattr(model, "coef_", 0)) < 2 else "array<double>"
    several = method != "decision_function" or classes is None or len(classes) > 2
    return "array<double>" if several else "double"
