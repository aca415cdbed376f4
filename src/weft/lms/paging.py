"""Optimizer state that lives on the host, and visits the device for its step.

An optimizer's step goes through its parameters in chunks. A chunk's state is copied in while the chunk before it is
stepped, and back out after it. Where there is room the copies start during the backward pass, as activations leave,
and memory is given back when the next passes need it, and no sooner: then they cost nothing. Every other step goes
through the chunks backwards, since those that were stepped last are the likeliest to be still there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from weft.errors import UsageError
from weft.lms.slabs import Block
from weft.lms.storages import flat_bytes
from weft.lms.transfer import Transfer

CHUNK = 512 << 20  # bytes of state that travel together
SMALL = 1 << 13  # bytes; what is smaller, such as step counts, stays


class Page:
    """A tensor whose bytes come and go; the tensor itself stays, so that the optimizer never knows."""

    def __init__(self, tensor: torch.Tensor, transfer: Transfer) -> None:
        self.tensor, self.transfer = tensor, transfer
        self.bytes = tensor.untyped_storage().nbytes()
        self.block: Block | None = None
        self.ticket: Any = None
        self.here = True
        self.leaving = False

    def bring(self) -> None:
        """Start the copy in."""
        if self.leaving:  # it is still there, and still right
            self.leaving = False
        elif not self.here:
            assert self.block is not None
            self.tensor.untyped_storage().resize_(self.bytes)
            self.ticket = self.transfer.copy_in(self.block, flat_bytes(self.tensor))
            self.here = True

    def ready(self) -> None:
        """Let the compute wait for it."""
        if self.ticket is not None:
            self.transfer.wait(self.ticket)
            self.ticket = None

    def send(self) -> None:
        """Start the copy out; the memory is there until `leave`."""
        self.ready()
        if self.block is None:
            self.block = self.transfer.host(self.bytes)
        self.ticket = self.transfer.copy_out(flat_bytes(self.tensor), self.block)
        self.leaving = True

    def leave(self) -> None:
        """Give the device's memory back."""
        if self.leaving:
            self.ready()
            self.tensor.untyped_storage().resize_(0)
            self.here = self.leaving = False


class Pager:
    """Steps an optimizer whose state is on the host."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        transfer: Transfer,
        room: Callable[[], int],
        spare: int = 2 * CHUNK,
    ) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UsageError(
                "paging must be able to step parameters a few at a time, got LBFGS, whose step takes them together; "
                "use another optimizer or wrap the model alone"
            )
        self.optimizer, self.transfer, self.room = optimizer, transfer, room
        self.spare = spare  # bytes that a pass may want at any moment
        self.pages: dict[int, list[Page]] = {}  # by parameter
        self._leaving: deque[Page] = deque()
        self._step = optimizer.step
        self._next = 0  # chunk to bring in
        self._backwards = False

    @property
    def leaving_bytes(self) -> int:
        """Bytes on the device that will go when they are asked to."""
        return sum(page.bytes for page in self._leaving if page.leaving)

    def chunks(self) -> list[list[torch.nn.Parameter]]:
        """Parameters in the order in which they are stepped next, a chunk's worth of state at a time."""
        found: list[list[torch.nn.Parameter]] = []
        size = CHUNK
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if size >= CHUNK:
                    found.append([])
                    size = 0
                found[-1].append(parameter)
                size += 2 * parameter.nbytes
        return found[::-1] if self._backwards else found

    def bring_early(self) -> None:
        """During the backward pass: the next chunk, if there is room for it and for what is going on."""
        chunks = self.chunks() if self.pages else []
        if self._next < len(chunks) and self.room() > self.spare + need(chunks[self._next]):
            self._bring(chunks[self._next])
            self._next += 1

    def _bring(self, chunk: list[torch.nn.Parameter]) -> None:
        for parameter in chunk:
            for page in self.pages.get(id(parameter), ()):
                page.bring()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The optimizer's step, chunk by chunk."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        chunks = self.chunks()
        groups = [(group, group["params"]) for group in self.optimizer.param_groups]
        try:
            for index, chunk in enumerate(chunks):
                for ahead in chunks[index : index + 2]:
                    self.make_room(need(ahead))
                    self._bring(ahead)
                self._step_some({id(parameter) for parameter in chunk}, groups)
                for page in self._pages_of(chunk):
                    page.send()
                    self._leaving.append(page)
        finally:
            for group, parameters in groups:
                group["params"] = parameters
            self._next, self._backwards = 0, not self._backwards
        return loss

    def _step_some(
        self, chosen: set[int], groups: list[tuple[dict[str, Any], list[torch.nn.Parameter]]]
    ) -> None:
        for group, parameters in groups:
            group["params"] = [parameter for parameter in parameters if id(parameter) in chosen]
            for parameter in group["params"]:
                for page in self.pages.get(id(parameter), ()):
                    page.ready()
        self._step()

    def _pages_of(self, chunk: list[torch.nn.Parameter]) -> Iterator[Page]:
        """The state of a chunk; that which its first step has just made becomes pages now."""
        for parameter in chunk:
            if id(parameter) not in self.pages and parameter in self.optimizer.state:
                tensors = self.optimizer.state[parameter].values()
                self.pages[id(parameter)] = [
                    Page(value, self.transfer)
                    for value in tensors
                    if isinstance(value, torch.Tensor)
                    and value.device == self.transfer.device
                    and value.nbytes > SMALL
                ]
            yield from self.pages.get(id(parameter), ())

    def make_room(self, wanted: int | None = None) -> None:
        """Give memory back until so much is free, those first that left first."""
        wanted = self.spare if wanted is None else wanted
        while self._leaving and self.room() < wanted:
            self._leaving.popleft().leave()

    def let_go(self) -> None:
        """Give all memory back."""
        while self._leaving:
            self._leaving.popleft().leave()

    def everything(self) -> None:
        """Bring all state to the device, for `state_dict` and its like."""
        self.let_go()
        for pages in self.pages.values():
            for page in pages:
                page.bring()
                page.ready()


def need(chunk: list[torch.nn.Parameter]) -> int:
    """Bytes that stepping a chunk may take: its state, and as much again for what an optimizer makes on the way."""
    return 4 * sum(parameter.nbytes for parameter in chunk)
