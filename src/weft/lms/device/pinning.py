"""Pinned host memory, quickly.

To pin memory is to make its pages first, which takes one thread half a second for each GiB. Several threads make them
in a tenth of that, and large pages are fewer to pin; then the device is told of memory that is there already.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch

from weft.errors import BudgetError
from weft.text import format_size

cuda: Any = torch.cuda
THREADS = 8
PIECE = 32 << 20
HUGE = 14  # MADV_HUGEPAGE
WIPED = 18  # MADV_WIPEONFORK: a child, such as a DataLoader's, gets none of it, or it would all be copied
PORTABLE = 1  # for all devices
SMALL = 64 << 20  # bytes; below this torch's own way is as quick


def pinned(size: int) -> torch.Tensor:
    """A flat tensor of bytes that the device can copy to and from by itself; BudgetError if the host has too little."""
    try:
        found = _registered(size) if size >= SMALL else None
        return torch.empty(size, dtype=torch.uint8, pin_memory=True) if found is None else found
    except (RuntimeError, OSError, MemoryError) as error:
        raise BudgetError(
            f"host memory must be free for {format_size(size)} of pinned pages, got {error}; "
            "give a smaller host= or a larger limit="
        ) from None


def _registered(size: int) -> torch.Tensor | None:
    """None where the device does not take memory that it did not make."""
    pages = Pages(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for advice in (HUGE, WIPED):
        with suppress(OSError, ValueError):  # where the system knows nothing of it
            pages.madvise(advice)
    flat = torch.frombuffer(pages, dtype=torch.uint8)  # which holds on to the pages
    fill(flat.data_ptr(), size, min(THREADS, os.cpu_count() or 1))
    if pages.register(flat.data_ptr()):
        return flat
    with suppress(Exception):  # the refusal would be taken for that of whatever is launched next
        torch.zeros(1, device="cuda")
    return None


def fill(address: int, size: int, threads: int) -> None:
    """Make all pages, which is done when something is written to them; no thread holds up another."""

    def written(start: int) -> None:
        ctypes.memset(address + start, 0, min(PIECE, size - start))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(written, range(0, size, PIECE)))


class Pages(mmap.mmap):
    """Memory that the device lets go of before the system does."""

    _address: int | None = None
    _process = 0

    def register(self, address: int) -> bool:
        done = int(cuda.cudart().cudaHostRegister(address, len(self), PORTABLE)) == 0
        self._address, self._process = (address if done else None), os.getpid()
        return done

    def __del__(self) -> None:
        if self._address is not None and self._process == os.getpid():
            with suppress(Exception):
                cuda.synchronize()  # a copy may be under way
            with suppress(Exception):  # at the end of the process there may be no runtime any more
                cuda.cudart().cudaHostUnregister(self._address)
