"""Where the bytes of a record are, and how they get there: to the host and back, or dropped and made again.

Nothing here waits for the device, and nothing decides: the engine says what moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from weft.lms.activations.counts import Counts
from weft.lms.activations.recipes import Input, Recipe
from weft.lms.activations.saved import Dead, Handle, Record
from weft.lms.device.transfer import Transfer


class Mover:
    """Moves the bytes of one device's records."""

    def __init__(self, transfer: Transfer, counts: Counts, room: Callable[[int], None]) -> None:
        self.transfer, self.counts = transfer, counts
        self.room = room  # asked before bytes come back that no plan expects
        self.quiet = Quiet()
        self.dead: deque[Dead] = deque()
        self.waits: list[tuple[Any, Any]] | None = None  # marks around each wait, if they are to be measured

    def bury(self) -> None:
        """Give back the host memory of records that died."""
        while self.dead:
            block, coming, _ = self.dead.popleft()
            if coming is not None:
                self.transfer.wait(coming)
            self.transfer.give_back(block)

    def send(self, record: Record) -> None:
        """Start the copy to the host, if there is none yet; BudgetError if the host is full."""
        if record.block is None and record.tensor is not None:
            block = self.transfer.host(record.bytes)
            record.going = self.transfer.copy_out(record.flat(), block)
            record.block = block
            self.counts.swaps_out += 1
            self.counts.bytes_out += record.bytes

    def drop(self, record: Record) -> None:
        """Let device memory go once no copy needs it any more."""
        for ticket in (record.going, record.coming):
            if ticket is not None:
                self._wait(ticket, record.stream)
        record.going = None  # nobody need wait for it again
        record.drop()

    def fetch(self, record: Record) -> None:
        """Start the copy back, if there is one and it is not here."""
        if record.tensor is not None or record.block is None:
            return
        survivor = record.revive()
        if survivor is not None:
            record.tensor = survivor
            return
        target = torch.empty(record.bytes, dtype=torch.uint8, device=self.transfer.device)
        with self.quiet:
            record.coming = self.transfer.copy_in(record.block, target)
        record.tensor = target
        record.stream = self.transfer.stream()
        self.counts.swaps_in += 1
        self.counts.bytes_in += record.bytes

    def value(self, source: Input, memo: dict[int, torch.Tensor] | None = None) -> torch.Tensor:
        """The tensor behind a handle, a parameter or a recipe; on the device when this returns.

        A recipe that is part of a larger one in several places is carried out once.
        """
        if isinstance(source, Handle):
            source.check()
            if source.record is None:
                assert source.tensor is not None
                return source.tensor
            return source.view(self.here(source.record))
        if isinstance(source, Recipe):
            memo = {} if memo is None else memo
            if id(source) not in memo:
                given = (None if each is None else self.value(each, memo) for each in source.inputs)
                memo[id(source)] = source.op(*given)
            return memo[id(source)]
        assert source is not None
        return source.value()

    def here(self, record: Record) -> torch.Tensor:
        """A record's bytes, brought or made again if they are not on the device."""
        if record.tensor is None:
            record.tensor = record.revive()
        if record.tensor is None:
            self.room(record.bytes)
            if record.block is not None:
                self.counts.late += 1
                self.fetch(record)
            else:
                self._rebuild(record)
        assert record.tensor is not None
        if record.coming is not None:
            self._wait(record.coming)
            record.coming = None
        return record.tensor

    def _rebuild(self, record: Record) -> None:
        assert record.recipe is not None
        record.tensor = self.build(record.recipe).detach()  # a view would hold what it is a view of
        record.stream = self.transfer.stream()
        self.counts.rebuilt += 1
        self.counts.bytes_rebuilt += record.bytes

    def build(self, recipe: Recipe) -> torch.Tensor:
        """Carry a recipe out; what it needs comes first, so that nothing made on the way is held meanwhile."""
        for _, record in sorted(recipe.records().items()):
            self.here(record)
        if not torch.is_grad_enabled() and not self._casts():  # as it is in a backward pass
            return self.value(recipe)
        kind = self.transfer.device.type
        # Inputs have the types they were used with: autocast, which made them so, must not do it again.
        with torch.no_grad(), torch.autocast(kind, enabled=False) if self._casts() else nullcontext():
            return self.value(recipe)

    def _casts(self) -> bool:
        kind = self.transfer.device.type
        return kind != "meta" and torch.is_autocast_enabled(kind)

    def _wait(self, ticket: Any, stream: Any = None) -> None:
        start = None if self.waits is None else self.transfer.mark()
        with self.quiet:
            self.transfer.wait(ticket, stream)
        if self.waits is not None:
            self.waits.append((start, self.transfer.mark()))


class Quiet:
    """Whether bytes are being moved: what that takes itself is nobody's operation, and needs no room."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
