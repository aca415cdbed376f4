"""A device and its link, simulated on the CPU: an arena with a byte limit, links with a rate, a clock of its own.

Every operation on CPU tensors is seen; the bytes of live storages are the memory in use, and operations take the time
that their bytes and products would take at the given rates. Copies take effect when somebody waits for them or when
the clock has passed their end, not before: a target that is read too early, or copied from memory that was freed, is
full of 0xFF bytes, and a target freed too early is an error, so that an engine that forgets to wait fails its tests.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from weft.lms.device.host_memory import Block, CopyCounter, CopyTicket, Slabs
from weft.lms.device.storages import WeakStorage
from weft.lms.device.torch_private import (
    FUNCTIONALIZE,
    FakeTensor,
    TorchDispatchMode,
    exclude_dispatch_keys,
    local_part,
    no_dispatch,
)
from weft.lms.device.transfer import host_waits_for
from weft.lms.planning.recording import Rates

ATTENTION = "scaled_dot_product"
# `no_dispatch` stands around what the link does: that is no work of the device, nor of another device, nor of a tracer
# during whose run a copy happens to be finished by garbage collection.


@dataclass
class _Copy:
    """A copy that has been started."""

    done: float  # on the device's clock
    make: Callable[[], None]  # knows its device memory by a weak reference: the engine must keep that alive
    finished: bool = False


@dataclass
class SimulatedTransfer:
    """A device of CPU tensors with a clock of its own. Rates are bytes and products a second."""

    limit: int | None = None  # torch.OutOfMemoryError above it
    host_limit: int = 1 << 40
    link: float = 1e9
    memory_rate: float = 1e11
    product_rate: float = 1e13
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    is_launched: bool = False

    def __post_init__(self) -> None:
        self._arena = SimulatedArena(self)
        self._slabs = Slabs(self.host_limit, self._host_bytes, slab=1 << 20)
        self._copies = CopyCounter()
        self._links: dict[str, deque[_Copy]] = {"out": deque(), "back": deque()}
        self._free = {"out": 0.0, "back": 0.0}
        self.clock = self.stall_s = 0.0

    def watching(self) -> AbstractContextManager[object]:
        return self._arena

    def adopt(self, *tensors: torch.Tensor) -> None:
        """Count tensors that were made outside of `watching`."""
        for tensor in tensors:
            self._arena.count(tensor)

    def _host_bytes(self, size: int) -> torch.Tensor:
        with no_dispatch():
            return torch.empty(size, dtype=torch.uint8)

    def allocated(self) -> int:
        return self._arena.allocated()

    def peak(self) -> int:
        return max(self._arena.peak, self.allocated())

    def levels(self) -> tuple[int, int]:
        return self.allocated(), self.peak()

    def reset_peak(self) -> None:
        self._arena.peak = self._arena.allocated()

    def capacity(self) -> int:
        return self.limit or 1 << 40

    def rates(self) -> Rates:
        return Rates(out=self.link, back=self.link)

    def mark(self) -> float:
        return self.clock

    def busy(self, seconds: float | None = None) -> None:
        pass

    def passed(self, mark: float) -> bool:
        return mark <= self.clock

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def stream(self) -> Any:
        return None

    def host(self, size: int) -> Block:
        with no_dispatch():
            return self._slabs.take(size)

    def give_back(self, block: Block) -> None:
        self._slabs.give_back(block)

    def give_back_later(self, block: Block) -> None:
        self._slabs.later.append(block)

    def copy_out(self, source: torch.Tensor, block: Block) -> CopyTicket:
        storage = WeakStorage(source.untyped_storage())

        def make() -> None:
            alive = storage.flat()
            if alive is None:
                block.tensor.fill_(255)  # by now the memory is another's
            else:
                block.tensor.copy_(alive[: block.size])

        return self._start("out", block, make)

    def copy_in(self, block: Block, target: torch.Tensor) -> CopyTicket:
        with no_dispatch():
            target.fill_(255)
        storage = WeakStorage(target.untyped_storage())

        def make() -> None:
            alive = storage.flat()
            assert alive is not None, "a target was freed before its copy was waited for"
            alive.copy_(block.tensor)

        return self._start("back", block, make)

    def _start(self, way: str, block: Block, make: Callable[[], None]) -> CopyTicket:
        for ticket in block.last:
            self._finish(ticket.done)
        self._free[way] = max(self.clock, self._free[way]) + block.size / self.link
        copy = _Copy(self._free[way], make)
        self._links[way].append(copy)
        ticket = self._copies.ticket(way, copy)
        block.last = (ticket,)
        return ticket

    def wait(self, ticket: Any, stream: Any = None) -> None:
        end: float = ticket.done.done
        self.stall_s += max(0.0, end - self.clock)
        self.clock = max(self.clock, end)
        self._finish(ticket.done)

    def _finish(self, copy: _Copy) -> None:
        if not copy.finished:
            copy.finished = True
            with no_dispatch(), torch.no_grad(), exclude_dispatch_keys(FUNCTIONALIZE):
                copy.make()

    def advance(self, seconds: float) -> None:
        """Let time pass, and finish the copies that end meanwhile."""
        self.clock += seconds
        for copies in self._links.values():
            while copies and copies[0].done <= self.clock:
                self._finish(copies.popleft())

    def wait_for_copies_out(self) -> None:
        """Let the host wait for a number, which comes behind all copies out that were started before."""
        waited_s = max(0.0, self._free["out"] - self.clock)
        self.stall_s += waited_s
        self.advance(waited_s)

    def settle(self) -> None:
        for copies in self._links.values():
            while copies:
                self._finish(copies.popleft())

    def pinned(self) -> tuple[int, int]:
        self._slabs.collect()
        return self._slabs.held, self._slabs.used


class SimulatedArena(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that counts the storages of all tensors that operations give or take, from their making to their death."""

    def __init__(self, transfer: SimulatedTransfer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._transfer = transfer
        self._sizes: dict[int, int] = {}  # bytes of storages that are alive, by key
        self._alive: dict[int, weakref.ref[Any]] = {}  # references to them, which note their death
        self._dead: deque[int] = deque()  # a storage may die at any moment: it is counted out later
        self._total = self.peak = 0
        _CountedResize.installed().arenas.add(self)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # compiled code runs compiled, as on a device, and its operations are seen

    def count(self, tensor: torch.Tensor) -> None:
        if tensor.device == self._transfer.device or tensor.device.type == "meta":
            self._bury()  # before a dead storage's key is taken for this one's
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._sizes:
                self._alive[key] = weakref.ref(storage, partial(_died, self._dead, key))
            self._measure(key, storage)

    def resized(self, storage: torch.UntypedStorage) -> None:
        self._bury()
        if storage._cdata in self._sizes:
            self._measure(storage._cdata, storage)

    def _measure(self, key: int, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        self._total += size - self._sizes.get(key, 0)
        self._sizes[key] = size

    def allocated(self) -> int:
        self._bury()
        return self._total

    def _bury(self) -> None:
        while self._dead:
            key = self._dead.popleft()
            self._total -= self._sizes.pop(key)
            del self._alive[key]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        taken, given = _tensors((*args, *(kwargs or {}).values())), _tensors((result,))
        if any(isinstance(tensor, FakeTensor) for tensor in (*taken, *given)):
            return result  # a graph that is captured meanwhile has no bytes
        moved = 0
        for tensor in taken:
            self.count(tensor)
            moved += tensor.nbytes
        for tensor in given:
            self.count(tensor)
            moved += tensor.nbytes
        allocated = self.allocated()
        limit = self._transfer.limit
        if limit is not None and allocated > limit:
            raise torch.OutOfMemoryError(
                f"the simulated device must hold {allocated} bytes for {func}, got {limit}"
            )
        self.peak = max(self.peak, allocated)
        if not func.is_view:
            name = func._schema.name.partition("::")[2]
            self._transfer.advance(
                moved / self._transfer.memory_rate
                + _products(name, args, given) / self._transfer.product_rate
            )
            if host_waits_for(func, args, kwargs or {}):
                self._transfer.wait_for_copies_out()
        return result


def _died(dead: deque[int], key: int, _: object) -> None:
    dead.append(key)


_storage: Any = torch.UntypedStorage


class _CountedResize:
    """`UntypedStorage.resize_` while there are arenas: it is no operation, so no mode sees it."""

    def __init__(self, original: Any) -> None:
        self._original = original
        self.arenas: weakref.WeakSet[SimulatedArena] = weakref.WeakSet()

    @classmethod
    def installed(cls) -> _CountedResize:
        """Return the one that stands in torch's class, put there if need be; it leaves after the last arena."""
        found = vars(_storage).get("resize_")
        if not isinstance(found, cls):
            found = _storage.resize_ = cls(_storage.resize_)
        return found

    def __get__(self, storage: Any, owner: Any = None) -> Any:
        return self if storage is None else partial(self, storage)

    def __call__(self, storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        self._original(storage, size)
        for arena in tuple(self.arenas):
            arena.resized(storage)
        if not self.arenas and vars(_storage).get("resize_") is self:
            del _storage.resize_  # which torch's class inherits
        return storage


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(local_part(value))
        elif isinstance(value, (list, tuple)):
            found.extend(_tensors(value))
    return found


def _products(name: str, args: Sequence[Any], given: Sequence[torch.Tensor]) -> float:
    """Return the multiplications and additions of an operation: rough, so that products are dear and the rest cheap."""
    if name in ("addmm", "mm", "bmm", "baddbmm"):
        return 2.0 * given[0].numel() * int(args[1 if name in ("addmm", "baddbmm") else 0].shape[-1])
    if name == "convolution":
        return 2.0 * given[0].numel() * float(args[1].numel() / max(1, args[1].shape[0]))
    if name == "convolution_backward":
        return 4.0 * float(args[0].numel() * args[2].numel() / max(1, args[2].shape[0]))
    if ATTENTION in name:
        query = next(tensor for tensor in _tensors(args) if tensor.dim() == 4)
        return (10.0 if "backward" in name else 4.0) * query.numel() * query.shape[-2]
    return 0.0
