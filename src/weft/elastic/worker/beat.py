"""The progress beat: a page of memory that a worker writes and its agent reads.

It tells what the training loop does, not that the process lives: a loop that is stuck stops writing, whatever other
threads do. Writing costs a microsecond and no system call.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from typing import Any

OUTSIDE, LOADING, COMPUTING, WAITING, HEALING = range(5)  # what a worker does
PHASES = ("outside", "loading", "computing", "waiting", "healing")
PAGE_BYTES = mmap.PAGESIZE
_PHASE, _SINCE, _STEPS, _MICROS, _BUSY_S, _LENIENT = range(6)


@dataclass(frozen=True)
class WorkerProgress:
    """The progress that a worker last wrote: its phase, steps, micro-batches and times."""

    phase: int
    since: float  # monotonic seconds of this host, when the phase began
    steps: int  # committed by this process
    micros: int  # micro-batches computed by this process
    busy_s: float  # spent on them
    lenient: bool  # the first micro-batch: kernels are compiled; or the first of an epoch is loaded: files are opened

    def stuck_for(self, now: float) -> float:
        """Return for how long the worker has made no progress in its loop; 0 where none is expected."""
        return now - self.since if self.phase in (LOADING, COMPUTING, HEALING) else 0.0

    def waits_for(self, now: float) -> float:
        """Return for how long the worker has waited for the others; -1 if it does something else."""
        return now - self.since if self.phase == WAITING else -1.0


class Beat:
    """The page, seen by the worker."""

    def __init__(self, page: Any = None) -> None:
        self._values = memoryview(page if page is not None else bytearray(PAGE_BYTES)).cast("d")
        self.say(OUTSIDE)

    @classmethod
    def at(cls, descriptor: int) -> Beat:
        return cls(mmap.mmap(descriptor, PAGE_BYTES))

    def say(self, phase: int, *, lenient: bool = False) -> None:
        """Write what the worker does from now on; `lenient`: it may well take longer than usual."""
        values = self._values
        now = time.monotonic()
        if values[_PHASE] == COMPUTING and phase != COMPUTING:
            values[_BUSY_S] += now - values[_SINCE]
        values[_SINCE] = now  # first: a reader in between must not see an old time with the new phase
        values[_LENIENT] = lenient
        values[_PHASE] = phase

    def computed(self) -> None:
        """Count a micro-batch that is done."""
        self._values[_MICROS] += 1

    def begin(self) -> None:
        """Note that a micro-batch begins."""
        self.say(COMPUTING, lenient=self._values[_MICROS] == 0)

    def committed(self) -> None:
        self._values[_STEPS] += 1


class BeatPage:
    """The page, seen by the agent; the worker inherits the descriptor."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("weft-beat", 0)
        os.ftruncate(self.descriptor, PAGE_BYTES)
        self._values = memoryview(mmap.mmap(self.descriptor, PAGE_BYTES)).cast("d")

    def read(self) -> WorkerProgress:
        values = self._values
        return WorkerProgress(
            phase=int(values[_PHASE]),
            since=values[_SINCE],
            steps=int(values[_STEPS]),
            micros=int(values[_MICROS]),
            busy_s=values[_BUSY_S],
            lenient=bool(values[_LENIENT]),
        )

    def close(self) -> None:
        os.close(self.descriptor)
