"""One thread is enough for a collective: the ranks of a host share its memory's bandwidth anyway.

To wake torch's other threads for every piece costs more than they help, and where cores are shared it costs
milliseconds. `torch.set_num_threads` would hold for threads that start later, too; OpenMP's own call holds for the
calling thread alone.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

_Result = TypeVar("_Result")


@functools.cache
def _set_threads() -> Callable[[int], object] | None:
    """OpenMP's `omp_set_num_threads`, of the runtime that torch has loaded."""
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    for path in sorted(loaded, key=lambda path: "torch" not in path):  # others bring their own
        if Path(path).name.startswith(("libgomp", "libiomp", "libomp")):
            call = ctypes.CDLL(path).omp_set_num_threads
            call.argtypes, call.restype = (ctypes.c_int,), None
            return call
    return None


def on_one_thread(work: Callable[[], _Result]) -> _Result:
    """Call `work`, and have torch use no other thread for it."""
    threads = torch.get_num_threads()
    if threads == 1 or (set_threads := _set_threads()) is None:
        return work()
    set_threads(1)
    try:
        return work()
    finally:
        set_threads(threads)
