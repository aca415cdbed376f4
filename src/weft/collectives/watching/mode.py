"""A mode whose every call leaves a span, and which remembers what it was asked to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic_ns as now
from typing import Any

from torch import Tensor

from weft.collectives.modes.explore import Explorer
from weft.collectives.modes.mode import Bounds, Pending
from weft.collectives.reduction import Reduction
from weft.collectives.watching.recorder import SpanRecorder
from weft.collectives.watching.spans import Span

_WAYS = {"reduce_scatter": "up", "all_reduce": "over", "all_gather": "down", "broadcast": "down"}
_STARTS = {"start_reduce_scatter": "reduce_scatter", "start_all_gather": "all_gather"}


def mode_name(mode: Any, values: Tensor | None = None) -> str:
    """Return the name of a mode as users know it; for a mode that picks by size, what it picks for these values."""
    if isinstance(mode, Explorer) and values is not None:
        return mode_name(mode._mode(values.nbytes))
    return str(mode.name)


class WatchedMode:
    """A mode that notes what the mode behind it does."""

    def __init__(
        self,
        dimension: str,
        mode: Any,
        ranks: tuple[int, ...],
        recorder: SpanRecorder,
        current: Callable[[], tuple[str, int]],
    ) -> None:
        self.dimension, self.mode, self.ranks = dimension, mode, ranks
        self.index, self.size = mode.index, mode.size
        self.alone = True  # among the dimensions of its group
        self.used: set[str] = set()  # what was called since somebody cleared it
        self._recorder, self._current = recorder, current

    def __getattr__(self, name: str) -> Any:
        if name == "all_reduce_many":  # one span for each tensor that is reduced
            raise AttributeError(name)
        found = getattr(self.mode, name)
        return partial(self._start, name, found) if name in _STARTS else found

    def _start(self, name: str, start: Callable[..., Pending], values: Tensor, *rest: Any) -> Pending:
        return _WatchedPending(start(values, *rest), self, values, now(), _STARTS[name])

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        began = now()
        self.mode.all_reduce(values, reduction)
        self._note("all_reduce", values, began)

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        began = now()
        self.mode.reduce_scatter(values, bounds, reduction)
        self._note("reduce_scatter", values, began)

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        began = now()
        self.mode.all_gather(values, bounds)
        self._note("all_gather", values, began)

    def broadcast(self, values: Tensor, root: int) -> None:
        began = now()
        self.mode.broadcast(values, root)
        self._note("broadcast", values, began)

    def barrier(self) -> None:
        began = now()
        self.mode.barrier()
        self._recorder.add(
            Span(self.dimension, "barrier", began, now(), 0, "", mode_name(self.mode), *self._current())
        )

    def start_all_reduce(self, values: Tensor, reduction: Reduction) -> Pending:
        self.used.add("start_all_reduce")
        return _WatchedPending(self.mode.start_all_reduce(values, reduction), self, values, now())

    def close(self) -> None:
        self.mode.close()

    def _note(self, operation: str, values: Tensor, began: int) -> None:
        self.used.add(operation)
        group, number = self._current()
        self._recorder.add(
            Span(
                self.dimension,
                operation if self.alone else f"{_WAYS[operation]} ({operation})",
                began,
                now(),
                values.nbytes,
                str(values.dtype).removeprefix("torch."),
                mode_name(self.mode, values),
                group,
                number,
            )
        )


class _WatchedPending:
    """Something under way; its span ends when a caller has waited for it."""

    def __init__(
        self,
        pending: Pending,
        mode: WatchedMode,
        values: Tensor,
        began: int,
        operation: str = "all_reduce",
    ) -> None:
        self._pending, self._mode, self._values, self._began = pending, mode, values, began
        self._operation = operation

    def wait(self) -> None:
        self._pending.wait()
        self._mode._note(self._operation, self._values, self._began)
