"""Inference with a model folder: `Predictor(folder).predict(pictures)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.vision.inference.predictor import Prediction, Predictor

__all__ = ["Prediction", "Predictor"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from weft.vision.inference import predictor

        return getattr(predictor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
