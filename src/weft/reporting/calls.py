"""Calls of a training script, `weft.log` and `weft.report`, on the one reporter of its process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import UsageError
from weft.reporting.advice import Advice
from weft.reporting.reporter import Reporter

__all__ = ["flush", "log", "report"]

_reporter = Reporter()


def log(values: Mapping[str, Any] | None = None, /, step: int | None = None, **named: Any) -> None:
    """Log numbers of one step: `weft.log({"loss": 0.3}, step=7)`, or `weft.log(loss=0.3)`, which counts by itself.

    A value is a number or a tensor of one element; NaN and infinity are kept. Tensors of an accelerator are copied
    there and read in the background, so that the call does not wait for the device. Rank 0's numbers have the names
    that are given here; those of another rank are kept beside them, as `loss@3`.
    """
    if values is None:
        _reporter.log(named, step)
        return
    if not isinstance(values, Mapping):
        raise UsageError(
            f"weft.log must have its numbers by name, got {values!r} as the first argument; "
            "write weft.log(loss=0.3, step=7)"
        )
    _reporter.log({**values, **named}, step)


def note_step(values: dict[str, float], step: int) -> None:
    """Keep the time of a step, as `weft.reporting.steps` has measured it."""
    _reporter.note_step(values, step)


def report(progress: float | None = None, text: str | None = None, **values: Any) -> tuple[Advice, ...]:
    """Tell how far this job is, from 0 to 1, and in a sentence what it does; return advice that is new to this process.

    There is advice where the job's specification lets a rule act by the script; `advice.done()` tells that it has. With
    numbers by name the first argument is a step: `weft.report(7, loss=0.3)` is `weft.log(loss=0.3, step=7)`.
    """
    if not values:
        return _reporter.report(progress, text)
    _reporter.log(values, progress)  # type: ignore[arg-type]  # a step that is not whole is refused there
    return _reporter.report(None, text) if text is not None else ()


def flush(timeout_s: float = 5.0) -> bool:
    """Wait until all that was logged is written; return False if it was not in time. The exit of Python does so too."""
    return _reporter.flush(timeout_s)
