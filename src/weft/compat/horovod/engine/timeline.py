"""The timeline: a Chrome trace of the negotiation and of what was carried out, written by rank 0.

Each operation has a row of its own (`allreduce.x`): NEGOTIATE_ALLREDUCE from the first rank that is ready to the last,
with a tick for each rank, then ALLREDUCE. The file grows while the trace is taken, and may be looked at any time:
Chrome's viewers take an array that has no end yet.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from weft.compat.horovod.engine.execution import AgreedWork
from weft.compat.horovod.negotiation.messages import OpKind, OpRequest, ReadyOps


class NegotiationTimeline:
    """Writes events while a trace is taken; the file is whole JSON once it is stopped."""

    def __init__(self, writes: bool) -> None:
        self.on = self.mark_cycles = False
        self._writes = writes  # rank 0 does
        self._file: IO[str] | None = None
        self._rows: dict[str, int] = {}
        self._negotiating: dict[str, int] = {}  # name: ranks so far
        self._lock = threading.Lock()
        self._begin = 0.0

    def start(self, path: str, mark_cycles: bool) -> None:
        """Begin a trace; one that is under way is written first."""
        self.stop()
        if not self._writes:
            return
        self._file = Path(path).open("w")  # noqa: SIM115 (a path that cannot be written is told now)
        self._rows, self._negotiating = {}, {}
        self._begin = time.monotonic()
        began = int(time.time() * 1e6)
        named = {"name": "horovod", "start_time_since_epoch_in_micros": began}
        self._file.write("[\n" + json.dumps({"name": "process_name", "ph": "M", "pid": 0, "args": named}))
        self._file.flush()
        self.mark_cycles, self.on = mark_cycles, True

    def stop(self) -> None:
        """End the trace, if one is taken."""
        with self._lock:
            file, self._file = self._file, None
            self.on = self.mark_cycles = False
            if file is not None:
                file.write("\n]\n")
                file.close()

    # -- what happens ---------------------------------------------------------------------------------

    def arrivals(
        self, rank: int, ready: ReadyOps, request_of: Callable[[int], OpRequest | None], now: float
    ) -> None:
        """Note that a rank has become ready for operations."""
        known = [request_of(number) for number in ready.numbers]
        for request in [*(each for each in known if each is not None), *ready.requests]:
            if request.name not in self._negotiating:
                self._negotiating[request.name] = 0
                self._add("B", request.name, f"NEGOTIATE_{OpKind(request.kind).name}", now)
            self._negotiating[request.name] += 1
            self._add("X", request.name, str(rank), now, dur=0)

    def begin(self, work: AgreedWork, now: float) -> None:
        for name in _names(work):
            if self._negotiating.pop(name, None) is not None:
                self._add("E", name, "", now)
            self._add("B", name, OpKind(work.kind).name, now)

    def end(self, work: AgreedWork, now: float) -> None:
        for name in _names(work):
            self._add("E", name, "", now)
        with self._lock:
            if self._file is not None:
                self._file.flush()

    def cycle(self, now: float) -> None:
        if self.on:
            self._add("i", "cycles", "CYCLE_START", now, s="g")

    def _add(self, phase: str, row: str, name: str, now: float, **more: Any) -> None:
        with self._lock:
            if self._file is None:
                return
            if row not in self._rows:
                self._rows[row] = len(self._rows) + 1
                named = {"name": row}
                self._write({"name": "process_name", "ph": "M", "pid": self._rows[row], "args": named})
            event: dict[str, Any] = {
                "ph": phase,
                "pid": self._rows[row],
                "ts": int((now - self._begin) * 1e6),
            }
            if name:
                event["name"] = name
            self._write(event | more)

    def _write(self, event: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(",\n" + json.dumps(event))


def _names(work: AgreedWork) -> list[str]:
    return [op.request.name for op in work.ops if op is not None]
