"""Moves the bytes of saved storages: to the host and back, or drops them and makes them again by a recipe.

Nothing here waits for the device, and nothing decides: the engine says what moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from weft.lms.activations.replay import Replay
from weft.lms.activations.saved import DeadStorage, Handle, Recipe, RecipeInput, SavedStorage
from weft.lms.device.transfer import Transfer


@dataclass
class SwapCounts:
    """Counts of moved storages and their bytes since the start, which `lms.stats()` shows."""

    swaps_out: int = 0
    bytes_out: int = 0
    swaps_in: int = 0
    bytes_in: int = 0
    late: int = 0  # copies back that were only started when they were wanted
    rebuilt: int = 0
    bytes_rebuilt: int = 0
    evicted: int = 0  # moved because memory ran short, not because a plan said so
    saved_bytes: int = 0  # saved by autograd, each storage once


class StorageMover:
    """Moves the bytes of the saved storages of one device."""

    def __init__(
        self, transfer: Transfer, counts: SwapCounts, expect: Callable[[SavedStorage], None]
    ) -> None:
        self.transfer, self.counts = transfer, counts
        self.expect = expect  # called before bytes come back that no plan expects
        self.quiet = Quiet()
        self.rebuilds_once = (
            False  # a plan is followed: what was rebuilt stays, and lets go of what it was made from
        )
        self.returned: list[int] = []  # sites of storages that came back to the device in this step
        self.dead: deque[DeadStorage] = deque()
        self.waits: list[tuple[Any, Any]] | None = None  # marks around each wait, if waits are measured

    def bury(self) -> None:
        """Give back the host memory of storages that died."""
        while self.dead:
            block, coming, _ = self.dead.popleft()
            if coming is not None:
                self.transfer.wait(coming)
            self.transfer.give_back(block)

    def send(self, storage: SavedStorage) -> None:
        """Start the copy to the host, if there is none yet; BudgetError if the host is full."""
        if storage.block is None and storage.tensor is not None:
            block = self.transfer.host(storage.bytes)
            storage.going = self.transfer.copy_out(storage.flat(), block)
            storage.block = block
            self.counts.swaps_out += 1
            self.counts.bytes_out += storage.bytes

    def drop(self, storage: SavedStorage) -> None:
        """Let the device memory go once no copy needs it any more."""
        for ticket in (storage.going, storage.coming):
            if ticket is not None:
                self._wait(ticket, storage.stream)
        storage.going = None  # waited for
        storage.drop()

    def fetch(self, storage: SavedStorage) -> None:
        """Start the copy back, unless the bytes are on the device or were never sent."""
        if storage.tensor is not None or storage.block is None:
            return
        survivor = storage.revive()
        if survivor is not None:
            self._come(storage, survivor)
            return
        target = torch.empty(storage.bytes, dtype=torch.uint8, device=self.transfer.device)
        with self.quiet:
            storage.coming = self.transfer.copy_in(storage.block, target)
        self._come(storage, target)
        storage.stream = self.transfer.stream()
        self.counts.swaps_in += 1
        self.counts.bytes_in += storage.bytes

    def _come(self, storage: SavedStorage, tensor: torch.Tensor) -> None:
        storage.come(tensor)
        self.returned.append(storage.site)

    def value(
        self, source: RecipeInput | Replay, memo: dict[int, torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Return the tensor behind a handle, a parameter, a recipe or a replay, on the device.

        A recipe that is part of a larger one in several places is carried out once, and noted in `memo`.
        """
        if isinstance(source, Handle):
            source.check()
            if source.storage is None:
                assert source.tensor is not None
                return source.tensor
            return source.view(self.here(source.storage))
        if isinstance(source, Recipe):
            memo = {} if memo is None else memo
            if id(source) not in memo:
                given = (None if each is None else self.value(each, memo) for each in source.inputs)
                memo[id(source)] = source.op(*given)
            return memo[id(source)]
        if isinstance(source, Replay):
            return source.run(self.value)
        assert source is not None
        return source.value()

    def here(self, storage: SavedStorage) -> torch.Tensor:
        """Return the bytes of a storage on the device, copied back or made again if need be."""
        if storage.tensor is None:
            survivor = storage.revive()
            if survivor is not None:
                self._come(storage, survivor)
        if storage.tensor is None:
            self.expect(storage)
            if storage.block is not None:
                self.counts.late += 1
                self.fetch(storage)
            else:
                self._rebuild(storage)
        assert storage.tensor is not None
        if storage.coming is not None:
            self._wait(storage.coming)
            storage.coming = None
        return storage.tensor

    def _rebuild(self, storage: SavedStorage) -> None:
        assert storage.recipe is not None
        self._come(storage, self.build(storage.recipe).detach())  # a view would hold its base
        if self.rebuilds_once:
            storage.recipe = None
        storage.stream = self.transfer.stream()
        self.counts.rebuilt += 1
        self.counts.bytes_rebuilt += storage.bytes

    def build(self, recipe: Recipe | Replay) -> torch.Tensor:
        """Carry a recipe out. Its inputs come first, so that nothing made on the way is held while they do."""
        for _, storage in sorted(recipe.storages().items()):
            self.here(storage)
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
    """A context in which bytes are moved: operations in it belong to no model, and no room is made for them."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
