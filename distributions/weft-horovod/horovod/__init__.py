"""Horovod's package name, made of Weft (`weft.compat.horovod`)."""

from __future__ import annotations

from typing import Any

__version__ = "0.28.1"  # of the interface; scripts compare it
__weft__ = True  # by which this package is told from Horovod itself


def __getattr__(name: str) -> Any:
    """Load `horovod.run` when it is first used."""
    if name == "run":
        from weft.compat.horovod.launcher.function import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
