"""The cores that a worker computes on, as the kernel accounts for them: what it used, and what it could use beside."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

STARVED = 0.1  # threads that waited for a core longer than this share of the time they ran had none to spare
_TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class CoreUse:
    """Seconds that the threads of this process have run, and have waited for a core, up to a moment."""

    at_s: float
    ran_s: float
    waited_s: float

    @classmethod
    def now(cls) -> CoreUse:
        return cls(time.perf_counter(), time.process_time(), _waited_s())

    def cores_since(self, before: CoreUse, own_cores: float) -> tuple[float, float]:
        """Return the cores that were busy since then, and those of the worker's own that were to spare."""
        elapsed_s = max(1e-9, self.at_s - before.at_s)
        ran_s = self.ran_s - before.ran_s
        busy = ran_s / elapsed_s
        if self.waited_s - before.waited_s > STARVED * ran_s:
            return busy, 0.0
        return busy, max(0.0, own_cores - busy)


def own_cores(environ: Mapping[str, str]) -> float:
    """Return the cores of this worker: those it is pinned to, or its share of the host's."""
    allowed = len(os.sched_getaffinity(0))
    if allowed < (os.cpu_count() or 1):
        return float(allowed)
    return allowed / max(1, int(environ.get("LOCAL_WORLD_SIZE", "1")))


def _waited_s() -> float:
    """Return the seconds that threads of this process were ready to run and had no core; 0 where nobody counts."""
    waited_ns = 0
    with suppress(OSError):  # another kernel
        for task in _TASKS.iterdir():
            with suppress(OSError, ValueError, IndexError):  # a thread that has just ended
                waited_ns += int((task / "schedstat").read_text().split()[1])
    return waited_ns / 1e9
