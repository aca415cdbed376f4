"""The transfer of a CUDA device: two copy streams, events between them and the compute, pinned slabs."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from weft.lms.device.pinning import pinned
from weft.lms.device.slabs import Block, Slabs, tickets
from weft.lms.plan.recording import Rates

cuda: Any = torch.cuda
SHARE = 0.75  # of the host's free memory may be pinned unless the caller says otherwise
PROBE = 128 << 20
SAFE = 0.98  # of the measured rate is counted on
BUSY = 2e-3  # seconds: to launch a recipe takes less
CYCLES = 1_600_000_000  # of its clock a second, about


class CudaTransfer:
    """Copies beside the compute of one device. Buffers are the compute's own; copies wait for it and it for them.

    A block of memory that one stream frees is of no use to another, so targets are allocated on the compute's stream,
    and nothing is freed before that stream has been told to wait for its copy: `record_stream`, whose memory comes back
    at a moment nobody can foresee, is not used.
    """

    def __init__(self, device: torch.device, host: int | None) -> None:
        self.device = device
        self._out = cuda.Stream(device)
        self._back = cuda.Stream(device)
        self.host_limit = int(available_host_bytes() * SHARE) if host is None else host
        self._slabs = Slabs(self.host_limit, pinned)
        self._rates: Rates | None = None
        self._index = cuda.current_device() if device.index is None else device.index
        self._streams: dict[tuple[int, int, int], Any] = {}  # by what torch calls them

    def watching(self) -> AbstractContextManager[object]:
        return nullcontext()

    def allocated(self) -> int:
        return self._stats()["current"]

    def peak(self) -> int:
        return self._stats()["peak"]

    def levels(self) -> tuple[int, int]:
        stats = self._stats()
        return stats["current"], stats["peak"]

    def _stats(self) -> dict[str, int]:
        # torch.cuda.memory_allocated would flatten some hundred figures first.
        stats: Any = torch._C._cuda_memoryStats(self._index)
        found: dict[str, int] = stats["allocated_bytes"]["all"]
        return found

    def reset_peak(self) -> None:
        torch._C._cuda_resetPeakMemoryStats(self._index)

    def capacity(self) -> int:
        free, _ = cuda.mem_get_info(self.device)
        return int(free) + int(cuda.memory_reserved(self.device))

    def rates(self) -> Rates:
        if self._rates is None:
            self._rates = self._measure()
        return self._rates

    def _measure(self) -> Rates:
        block = self.host(PROBE)
        target = torch.empty(PROBE, dtype=torch.uint8, device=self.device)
        found = []
        ways: tuple[tuple[Any, Any], ...] = (
            (self._out, lambda: block.tensor.copy_(target, non_blocking=True)),
            (self._back, lambda: target.copy_(block.tensor, non_blocking=True)),
        )
        for stream, copy in ways:
            start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            stream.wait_stream(cuda.current_stream(self.device))
            with cuda.stream(stream):
                copy()
                start.record(stream)
                copy()
                copy()
                end.record(stream)
            end.synchronize()
            found.append(2 * PROBE / (start.elapsed_time(end) / 1e3))
        self.give_back(block)
        return Rates(out=found[0] * SAFE, back=found[1] * SAFE)

    def mark(self) -> Any:
        event = cuda.Event(enable_timing=True)
        event.record(self.stream())
        return event

    def busy(self, seconds: float = BUSY) -> None:
        cuda._sleep(int(seconds * CYCLES))

    def passed(self, mark: Any) -> bool:
        return bool(mark.query())

    def seconds(self, start: Any, end: Any) -> float:
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def stream(self) -> Any:
        # torch.cuda.current_stream would make a new object of the same stream each time.
        named = torch._C._cuda_getCurrentStream(self._index)
        if named not in self._streams:
            self._streams[named] = cuda.current_stream(self.device)
        return self._streams[named]

    def host(self, size: int) -> Block:
        return self._slabs.take(size)

    def give_back(self, block: Block) -> None:
        self._slabs.give_back(block)

    def give_back_later(self, block: Block) -> None:
        self._slabs.later.append(block)

    def _on(self, stream: Any) -> AbstractContextManager[Any]:
        here = torch._C._cuda_getDevice() == self._index
        return _On(stream, self._index) if here else cuda.stream(stream)

    def copy_out(self, source: torch.Tensor, block: Block) -> Any:
        self._follow(self._out, block)
        with self._on(self._out):
            block.tensor.copy_(source, non_blocking=True)
        return self._ticket(self._out, block)

    def copy_in(self, block: Block, target: torch.Tensor) -> Any:
        self._follow(self._back, block)
        with self._on(self._back):
            target.copy_(block.tensor, non_blocking=True)
        return self._ticket(self._back, block)

    def _follow(self, stream: Any, block: Block) -> None:
        """A copy waits for the compute so far, and for whatever used the host memory before it."""
        stream.wait_stream(self.stream())
        for ticket in tickets(block.ticket):
            stream.wait_event(ticket)

    def _ticket(self, stream: Any, block: Block) -> Any:
        event = cuda.Event()
        event.record(stream)
        block.ticket = event
        return event

    def wait(self, ticket: Any, stream: Any = None) -> None:
        (stream or self.stream()).wait_event(ticket)

    def settle(self) -> None:
        cuda.synchronize(self.device)

    def pinned(self) -> tuple[int, int]:
        self._slabs.collect()
        return self._slabs.held, self._slabs.used

    def release(self) -> None:
        """Give pinned memory back; only when nothing is swapped."""
        self.settle()
        self._slabs.release()
        empty = getattr(torch._C, "_host_emptyCache", None)  # or torch would keep the pages pinned
        if empty is not None:
            empty()


class _On(AbstractContextManager[None]):
    """Work goes to another stream of the current device meanwhile; torch.cuda.stream takes ten times as long to say."""

    __slots__ = ("_before", "_index", "_stream")

    def __init__(self, stream: Any, index: int) -> None:
        self._stream, self._index = stream, index

    def __enter__(self) -> None:
        self._before = torch._C._cuda_getCurrentStream(self._index)
        _set_stream(self._stream.stream_id, self._stream.device_index, self._stream.device_type)

    def __exit__(self, *_: object) -> None:
        _set_stream(*self._before)


def _set_stream(number: int, index: int, kind: int) -> None:
    torch._C._cuda_setStream(stream_id=number, device_index=index, device_type=kind)


def available_host_bytes() -> int:
    """What the system says programs may still take, and what a container leaves of it."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/proc/meminfo") as lines:  # noqa: PTH123
            for line in lines:
                if line.startswith("MemAvailable:"):
                    found = int(line.split()[1]) * 1024
    except OSError:
        pass
    return found


def warm_up(transfer: CudaTransfer, size: int) -> float:
    """Pin this much ahead of time; gives the seconds it took."""
    began = time.perf_counter()
    blocks = [transfer.host(256 << 20) for _ in range(-(-size // (256 << 20)))]
    for block in blocks:
        transfer.give_back(block)
    return time.perf_counter() - began
