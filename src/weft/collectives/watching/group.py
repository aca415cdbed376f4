"""A group that is watched: every call, every dimension and every wait leaves a span.

Only groups made while something is to be watched are of this kind; others have none of it, nor its cost.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from time import monotonic_ns as now
from typing import Any

import torch
from torch import Tensor

from weft.collectives.groups.call import Call
from weft.collectives.groups.reductions import WeftGroup
from weft.collectives.groups.work import Letter, Work
from weft.collectives.process import process
from weft.collectives.reduction import Reduction
from weft.collectives.settings import CollectiveSettings
from weft.collectives.watching.clock import align
from weft.collectives.watching.delivery import deliver
from weft.collectives.watching.ending import HURRY_S, PATIENCE_S, Ending
from weft.collectives.watching.mode import WatchedMode
from weft.collectives.watching.recorder import Home, Reports, SpanRecorder
from weft.collectives.watching.report import verified_line
from weft.collectives.watching.settings import Watching
from weft.collectives.watching.spans import CALL, CALLER, DIMENSIONS, HOST, Span
from weft.collectives.watching.steps import StepCounter
from weft.collectives.watching.verifier import Verifier
from weft.errors import CollectiveError, VerifyError


def recorder_of(watching: Watching, size: int) -> SpanRecorder:
    """The recorder of this process, which outlives its groups; a new one where something else is to be watched."""
    if process.recorder is None or process.recorder.watching != watching:
        process.recorder = SpanRecorder(watching, size)
    return process.recorder


class _Watch:
    """What the group of all ranks does for all others: tables, the trace, and what is said at the end."""

    def __init__(self, recorder: SpanRecorder, home: Home) -> None:
        self._recorder, self._home = recorder, home
        self.reports = Reports(recorder, home)
        every = recorder.watching.report
        self.steps = StepCounter(every, self.reports.give) if every else None
        self._begun = False
        self.ending = Ending(self._end)

    def before(self, call: Call) -> None:
        if not self._begun:
            self._begun = True
            self.reports.begin()
        if self.steps is not None and call.name == "all_reduce":
            self.steps.before_all_reduce()

    def _end(self, patience_s: float) -> None:
        process.reports_by_world = False
        if self.steps is not None:
            self.steps.end()
        self.reports.finish(min(patience_s, 5.0))
        if self._recorder.watching.trace:
            deliver(self._recorder, self._home, patience_s)
        if self._recorder.watching.verify and self._home.rank == 0:
            self._home.say("weft: " + verified_line(self._recorder.verified, self._recorder.worst_error))


class WatchedGroup(WeftGroup):
    """A group that notes when its operations begin and end."""

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, settings: CollectiveSettings
    ) -> None:
        super().__init__(store, rank, size, timeout, settings)
        self._recorder = recorder_of(settings.watching, size)
        self._now: tuple[str, int] = ("", 0)  # the group and number of the call that is carried out
        self._served = False  # some dimension had a part in it
        self._modes: list[WatchedMode] = []
        self._hierarchy.replace_modes(self._watch_mode)
        for mode in self._modes:
            mode.alone = len({other.dimension for other in self._modes}) == 1
        self._reduced = 0  # all_reduces so far
        self._verifier = Verifier(self._gloo, self._members, self._modes, settings.wire)
        self._watch: _Watch | None = None
        if not process.reports_by_world and size == (settings.launcher.world_size or size):
            clock = align(self._gloo, self._store, rank, self._members)
            process.reports_by_world = True
            self._watch = _Watch(
                self._recorder, Home(self._store, rank, self._members, clock, settings.launcher.run_folder)
            )

    def _watch_mode(self, dimension: str, mode: Any, ranks: tuple[int, ...]) -> Any:
        if hasattr(mode, "replace_modes"):  # racks: it has dimensions itself, and they are watched
            mode.replace_modes(partial(self._watch_level, DIMENSIONS.index(dimension), ranks))
            return mode
        watched = WatchedMode(dimension, mode, ranks, self._recorder, self._current)
        self._modes.append(watched)
        return watched

    def _watch_level(
        self, level: int, ranks: tuple[int, ...], dimension: str, mode: Any, peers: tuple[int, ...]
    ) -> Any:
        """Return what is a host to racks is one of `ranks` to us."""
        outwards = level + (dimension != HOST)
        return self._watch_mode(DIMENSIONS[outwards], mode, tuple(ranks[peer] for peer in peers))

    def _current(self) -> tuple[str, int]:
        """Return the call that a dimension is working for."""
        self._served = True
        return self._now

    def _submit(self, call: Call, run: Callable[[], Any], opts: Any, gives: list[Tensor]) -> Work:
        if self._watch is not None:
            self._watch.before(call)
        note = _Note(call, self._name or "0", self._recorder.number(self._name))

        def watched() -> Any:
            self._now, self._served = (note.group, note.number), self._size == 1
            began = now()
            try:
                return run()
            finally:
                self._recorder.add(note.span(began, now(), "" if self._served else note.elsewhere))

        work = super()._submit(call, watched, opts, gives)
        return _WatchedWork(work, note, self._recorder)

    def _all_reduce(self, tensor: Tensor, reduction: Reduction) -> None:
        self._reduced += 1
        every = self._recorder.watching.verify
        if not every or self._reduced % every:
            super()._all_reduce(tensor, reduction)
            return
        given = tensor.detach().cpu().reshape(-1).clone()
        for mode in self._modes:
            mode.used.clear()
        super()._all_reduce(tensor, reduction)
        call = Call("all_reduce", [tensor], reduction.name)
        worst = self._verifier.check(call, given, tensor.detach().cpu().reshape(-1), reduction)
        self._recorder.verified += 1
        self._recorder.worst_error = max(self._recorder.worst_error, worst)

    def _break_for(self, call: Call, error: Exception) -> CollectiveError:
        if isinstance(error, VerifyError):  # which all ranks raise, with the same words
            self._break(error)
            return error
        return super()._break_for(call, error)

    def _letter(
        self,
        call: Call,
        peer: int | None,
        start: Callable[[], Any],
        arrive: Callable[[], None] = lambda: None,
    ) -> Letter:
        note, began = _Note(call, self._name or "0", 0), now()

        def arrived() -> None:
            arrive()
            self._recorder.add(note.span(began, now(), "gloo"))

        return super()._letter(call, peer, start, arrived)

    def shutdown(self) -> None:
        if self._watch is not None:
            self._watch.ending.now(PATIENCE_S if self._broken is None else HURRY_S)
        super().shutdown()


class _Note:
    """One call, from the moment it was made."""

    def __init__(self, call: Call, group: str, number: int) -> None:
        self.name = f"{call.name} {call.detail}".strip()
        self.nbytes = sum(tensor.nbytes for tensor in call.tensors if not tensor.is_sparse)
        self.dtype = str(call.tensors[0].dtype).removeprefix("torch.") if call.tensors else ""
        # Who does it where no dimension of ours has a part in it.
        self.elsewhere = "device" if any(tensor.is_cuda for tensor in call.tensors) else "gloo"
        self.group, self.number = group, number
        self.asked = now()
        self.future = False

    def span(self, began: int, ended: int, mode: str) -> Span:
        return Span(
            CALL,
            self.name,
            began,
            ended,
            self.nbytes,
            self.dtype,
            mode,
            self.group,
            self.number,
            self.asked,
            self.future,
        )


class _WatchedWork(Work):
    """The handle that torch is given; it notes when a caller waits."""

    def __init__(self, work: Work, note: _Note, recorder: SpanRecorder) -> None:
        super().__init__(work._job, work._queue)
        self._note, self._recorder = note, recorder

    def wait(self, timeout: timedelta | None = None) -> bool:
        began = now()
        try:
            return super().wait(timeout)
        finally:
            note = self._note
            self._recorder.add(
                Span(CALLER, f"wait for {note.name}", began, now(), group=note.group, number=note.number)
            )

    def get_future(self) -> torch.futures.Future[list[Tensor]]:
        self._note.future = not self._job.done
        return super().get_future()
