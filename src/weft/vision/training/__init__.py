"""Training: `train(config, version, folder)` writes a model folder, as `python -m weft.vision.training CONFIG` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.vision.training.folder import TrainedModel
    from weft.vision.training.run import train

__all__ = ["TrainedModel", "train"]


def __getattr__(name: str) -> Any:
    """Loaded on first use, with torch."""
    if name in __all__:
        from weft.vision.training import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
