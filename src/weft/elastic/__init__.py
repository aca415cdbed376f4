"""Elastic runs: training that outlives its machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.elastic.worker.run import Loader, Run, join

__all__ = ["Loader", "Run", "join"]


def __getattr__(name: str) -> Any:
    """Load a name on first use, and torch with it, which the launcher and the agents do not need."""
    if name in __all__:
        from weft.elastic.worker import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
