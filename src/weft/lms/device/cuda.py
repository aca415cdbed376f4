"""The transfer of a CUDA device: two copy streams, events between them and the compute, pinned slabs of host memory."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from weft.lms.device.available import available_host_bytes
from weft.lms.device.host_memory import Block, CopyCounter, CopyTicket, Slabs, pinned
from weft.lms.device.torch_private import (
    current_device_index,
    current_stream_id,
    empty_host_cache,
    keep_device_busy,
    memory_stats,
    reset_peak_memory,
    set_stream,
)
from weft.lms.planning.recording import Rates
from weft.lms.tuning import DEFAULTS, LmsTuning

cuda: Any = torch.cuda


class CudaTransfer:
    """Copies beside the compute of one CUDA device; copies wait for the compute and the compute for copies.

    Memory that one stream frees is of no use to another, so targets are allocated on the compute's stream, and nothing
    is freed before that stream has been told to wait for its copy. `record_stream` is not used: with it memory comes
    back at a moment that nobody can foresee.
    """

    is_launched = True

    def __init__(self, device: torch.device, host: int | None, tuning: LmsTuning = DEFAULTS) -> None:
        self.device, self.tuning = device, tuning
        self._out = cuda.Stream(device)
        self._back = cuda.Stream(device)
        self.host_limit = int(available_host_bytes() * tuning.pinned_share) if host is None else host
        self._slabs = Slabs(self.host_limit, pinned)
        self._copies = CopyCounter()
        self._rates: Rates | None = None
        self._index = cuda.current_device() if device.index is None else device.index
        self._streams: dict[tuple[int, int, int], Any] = {}  # by their ids

    def watching(self) -> AbstractContextManager[object]:
        return nullcontext()

    def allocated(self) -> int:
        return memory_stats(self._index)["current"]

    def peak(self) -> int:
        return memory_stats(self._index)["peak"]

    def levels(self) -> tuple[int, int]:
        stats = memory_stats(self._index)
        return stats["current"], stats["peak"]

    def reset_peak(self) -> None:
        reset_peak_memory(self._index)

    def capacity(self) -> int:
        free, _ = cuda.mem_get_info(self.device)
        return int(free) + int(cuda.memory_reserved(self.device))

    def rates(self) -> Rates:
        if self._rates is None:
            self._rates = self._measure()
        return self._rates

    def _measure(self) -> Rates:
        size = self.tuning.rate_probe_bytes
        block = self.host(size)
        target = torch.empty(size, dtype=torch.uint8, device=self.device)
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
            found.append(2 * size / (start.elapsed_time(end) / 1e3))
        self.give_back(block)
        return Rates(out=found[0], back=found[1]).times(self.tuning.rate_margin)

    def mark(self) -> Any:
        event = cuda.Event(enable_timing=True)
        event.record(self.stream())
        return event

    def busy(self, seconds: float | None = None) -> None:
        seconds = self.tuning.busy_s if seconds is None else seconds
        keep_device_busy(int(seconds * self.tuning.busy_cycles_per_s))

    def passed(self, mark: Any) -> bool:
        return bool(mark.query())

    def seconds(self, start: Any, end: Any) -> float:
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def stream(self) -> Any:
        number = current_stream_id(self._index)
        if number not in self._streams:
            self._streams[number] = cuda.current_stream(self.device)
        return self._streams[number]

    def host(self, size: int) -> Block:
        return self._slabs.take(size)

    def give_back(self, block: Block) -> None:
        self._slabs.give_back(block)

    def give_back_later(self, block: Block) -> None:
        self._slabs.later.append(block)

    def _on(self, stream: Any) -> AbstractContextManager[Any]:
        here = current_device_index() == self._index
        return _OnStream(stream, self._index) if here else cuda.stream(stream)

    def copy_out(self, source: torch.Tensor, block: Block) -> CopyTicket:
        self._follow(self._out, block)
        with self._on(self._out):
            block.tensor.copy_(source, non_blocking=True)
        return self._ticket("out", self._out, block)

    def copy_in(self, block: Block, target: torch.Tensor) -> CopyTicket:
        self._follow(self._back, block)
        with self._on(self._back):
            target.copy_(block.tensor, non_blocking=True)
        return self._ticket("back", self._back, block)

    def _follow(self, stream: Any, block: Block) -> None:
        """Let a copy wait for the compute so far, and for the copies that used its host memory before."""
        stream.wait_stream(self.stream())
        for ticket in block.last:
            stream.wait_event(ticket.done)

    def _ticket(self, queue: str, stream: Any, block: Block) -> CopyTicket:
        """Return the ticket of the copy that was just started, which waited for all that used the block before."""
        event = cuda.Event()
        event.record(stream)
        ticket = self._copies.ticket(queue, event)
        block.last = (ticket,)
        return ticket

    def wait(self, ticket: Any, stream: Any = None) -> None:
        event = ticket.done if isinstance(ticket, CopyTicket) else ticket
        (stream or self.stream()).wait_event(event)

    def settle(self) -> None:
        cuda.synchronize(self.device)

    def pinned(self) -> tuple[int, int]:
        self._slabs.collect()
        return self._slabs.held, self._slabs.used

    def release(self) -> None:
        """Give pinned memory back, unless some of it is in use."""
        self.settle()
        self._slabs.release()
        empty_host_cache()  # or torch would keep the pages pinned


class _OnStream(AbstractContextManager[None]):
    """A context in which work goes to another stream; entering `torch.cuda.stream` takes ten times as long."""

    __slots__ = ("_before", "_index", "_stream")

    def __init__(self, stream: Any, index: int) -> None:
        self._stream, self._index = stream, index

    def __enter__(self) -> None:
        self._before = current_stream_id(self._index)
        set_stream(self._stream.stream_id, self._stream.device_index, self._stream.device_type)

    def __exit__(self, *_: object) -> None:
        set_stream(*self._before)


def warm_up(transfer: CudaTransfer, size: int) -> float:
    """Pin `size` bytes ahead of time; return the seconds that this took."""
    began = time.perf_counter()
    blocks = [transfer.host(256 << 20) for _ in range(-(-size // (256 << 20)))]
    for block in blocks:
        transfer.give_back(block)
    return time.perf_counter() - began
