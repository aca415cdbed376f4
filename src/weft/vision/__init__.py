"""Vision: data sets of pictures and films, labels, training, evaluation, auto-labelling and deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.vision.opening import open_data

__all__ = ["open_data"]


def __getattr__(name: str) -> Any:
    if name == "open_data":
        from weft.vision.opening import open_data

        return open_data
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
