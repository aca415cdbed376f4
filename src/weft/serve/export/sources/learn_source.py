"""A fitted model of weft.learn as a source of an export."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import ModelError
from weft.serve.export.file import save
from weft.serve.export.sources.axes import Axes

Array = np.ndarray[Any, Any]

INPUT = "X"


class LearnSource:
    """An estimator and the graph that `weft.learn.onnx` makes of it."""

    kind = "weft.learn"
    bytes = 0  # far below what one file can hold

    def __init__(self, model: Any) -> None:
        self.model = model
        self.estimator = getattr(model, "model_", model)  # Snap ML's spellings wrap ours
        if not hasattr(self.estimator, "n_features_in_"):
            raise ModelError(
                f"an estimator must be fitted to be exported, got {type(model).__name__} that is not; call fit"
            )
        self.versions: dict[str, str] = {}

    @property
    def takes_missing(self) -> bool:
        tags = getattr(self.estimator, "__sklearn_tags__", None)
        return bool(tags is not None and tags().input_tags.allow_nan)

    @contextmanager
    def ready(self) -> Iterator[None]:
        yield

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(str(label) for label in getattr(self.estimator, "classes_", ()))

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(str(name) for name in getattr(self.estimator, "feature_names_in_", ()))

    def name_inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if len(inputs) != 1 or next(iter(inputs)) not in ("#0", INPUT):
            raise ModelError(f"samples must be one table for an estimator, got {', '.join(inputs)}")
        (table,) = inputs.values()
        features = int(self.estimator.n_features_in_)
        if table.ndim != 2 or table.shape[1] != features:
            raise ModelError(f"samples must be rows of {features} columns, got the shape {list(table.shape)}")
        return {INPUT: table.astype(np.float32)}

    def answer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        table = inputs[INPUT]
        if not self.classes:
            return {"prediction": np.asarray(self.estimator.predict(table))}
        answers = {"label": np.asarray(self.estimator.predict(table))}
        if hasattr(self.estimator, "predict_proba"):
            answers["probabilities"] = np.asarray(self.estimator.predict_proba(table))
        else:
            scores = np.asarray(self.estimator.decision_function(table))
            answers["scores"] = scores.reshape(len(table), -1)
        return answers

    def write(
        self, path: Path, inputs: Mapping[str, Array], axes: Axes, opset: int, *, external: bool
    ) -> None:
        from weft.learn.onnx import to_onnx

        try:
            made = to_onnx(self.model)
        except (TypeError, ValueError) as error:
            raise ModelError(f"the model cannot be written as ONNX: {error}") from error
        save(made, path, external=external)

    def explain(self, file: Path, inputs: Mapping[str, Array], answer: Mapping[str, Array]) -> str:
        return ""


def is_estimator(model: Any) -> bool:
    return hasattr(model, "fit") and hasattr(model, "get_params") and hasattr(model, "predict")
