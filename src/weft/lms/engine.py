"""Carries out a plan: what autograd's hooks call when a tensor is saved and when it is wanted again.

With no plan it watches the memory in use, and makes room when there is too little: it drops what it can rebuild and
swaps the rest, oldest first, since the backward pass wants those last. No step waits for the device to finish anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakValueDictionary, ref

import torch

from weft.errors import BudgetError
from weft.lms.counts import Counts
from weft.lms.graph import Graph, fits_key
from weft.lms.planner import DEPTHS
from weft.lms.plans import Plan
from weft.lms.recipes import Input, Recipe
from weft.lms.recorder import Recorder
from weft.lms.records import Dead, Handle, Kept, Record
from weft.lms.transfer import Transfer

Packed = Handle | Kept
DEPTH = DEPTHS[0]


class Engine:
    """One device's saved tensors."""

    def __init__(self, transfer: Transfer, smallest: int) -> None:
        self.transfer = transfer
        self.smallest = smallest  # bytes; what is smaller is kept
        self.limit = 1 << 62
        self.counts = Counts()
        self.graph = Graph()
        self.plan: Plan | None = None
        self.recorder: Recorder | None = None
        self.lost = False  # the step turned out not to be the one that was planned
        self._records: WeakValueDictionary[int, Record] = WeakValueDictionary()
        self._sites: list[ref[Record]] = []
        self._dead: deque[Dead] = deque()
        self._event = 0
        self._oldest = 0
        self._largest = 0
        self._headroom = 0
        self._watching = False
        self._nothing = torch.empty(0, device=transfer.device)

    @property
    def live(self) -> int:
        """Storages that autograd still waits for."""
        return len(self._records)

    @property
    def event(self) -> int:
        return self._event

    def start(self, limit: int, plan: Plan | None, recorder: Recorder | None, headroom: int = 0) -> None:
        """Begin a step; with no plan, memory is watched."""
        self.limit, self.plan, self.recorder, self.lost = limit, plan, recorder, False
        self._sites.clear()
        self._records.clear()  # storages of an earlier step keep their handles, and are found by them
        self.graph.clear()
        self._event = self._oldest = self._largest = 0
        self._headroom = headroom
        self._watching = plan is None
        if recorder is not None:
            recorder.open(self._sites)

    # What autograd calls.

    def pack(self, tensor: torch.Tensor) -> Packed:
        """A tensor is saved."""
        if not self._manages(tensor):
            kept = Kept(tensor)
            self.graph.note(tensor, kept)
            return kept
        if self.recorder is not None:
            self.recorder.close()
        key = tensor.untyped_storage()._cdata
        record = self._records.get(key)
        fresh = record is None or record.version != tensor._version
        if fresh or record is None:
            record = self._records[key] = Record(tensor, len(self._sites), self.transfer.stream(), self._dead)
            self._sites.append(ref(record))
        handle = Handle(record, tensor)
        self.graph.note(tensor, handle)
        if fresh:
            self._decide(record, tensor)
        self._act()
        if self.recorder is not None:
            self.recorder.saved(record, tensor, fresh, self._event)
        self._step_on()
        return handle

    def unpack(self, packed: Packed) -> torch.Tensor:
        """A tensor is wanted."""
        if self.graph.catches(packed):
            return self._nothing
        if isinstance(packed, Kept):
            return packed.value()
        in_backward = torch._C._current_graph_task_id() != -1
        if in_backward:
            if self.recorder is not None:
                self.recorder.close()
            self._act()
        result = self.value(packed)
        if in_backward:
            if self.recorder is not None:
                self.recorder.wanted(packed.record, self._event)
            self._step_on()
        return result

    # One event.

    def _manages(self, tensor: torch.Tensor) -> bool:
        if tensor.device != self.transfer.device or type(tensor) is not torch.Tensor:
            return False  # parameters, subclasses, what lives elsewhere
        if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
            return False
        base = tensor._base if tensor._is_view() else None
        if base is not None and (
            isinstance(base, torch.nn.Parameter) or (base.is_leaf and base.requires_grad)
        ):
            return False  # nn.Linear saves weight.t(), a plain tensor
        if tensor.is_leaf and tensor.requires_grad:
            return False
        return tensor.untyped_storage().nbytes() >= self.smallest

    def _decide(self, record: Record, tensor: torch.Tensor) -> None:
        self.counts.saved_bytes += record.bytes
        self._largest = max(self._largest, record.bytes)
        if self.recorder is not None and self.recorder.tries_recipes:
            record.recipe = self._tried_recipe(record, tensor)
        plan = self.plan
        if plan is None:
            return
        if record.site >= len(plan.keys) or not fits_key(plan.keys[record.site], tensor, record.bytes):
            self.lose()
            return
        choice = plan.choices[record.site]
        if choice == "recipe":
            record.recipe = record.recipe or self._recipe(record, tensor)
            if record.recipe is not None:
                record.drop()
        elif choice == "swap":
            self._send(record)

    def lose(self) -> None:
        """Leave the plan for the rest of the step: what happens is not what was planned."""
        self.plan, self.lost, self._watching = None, True, True

    def _act(self) -> None:
        """Do what the plan has for this event."""
        self.bury()
        if self.plan is not None:
            timeline = self.plan.timeline
            for site in timeline.releases.get(self._event, ()):
                self._release(self._site(site))
            for site in timeline.fetches.get(self._event, ()):
                self._fetch(self._site(site))

    def bury(self) -> None:
        """Give back the host memory of records that died."""
        while self._dead:
            block, coming, _ = self._dead.popleft()
            if coming is not None:
                self.transfer.wait(coming)
            self.transfer.give_back(block)

    def _step_on(self) -> None:
        if self._watching:
            self.make_room(self._spare())
        if self.recorder is not None:
            self.recorder.open(self._sites)
        self._event += 1

    def _spare(self) -> int:
        """Room that the next operation may want, where nobody knows: as much as any so far, or a few tensors' worth."""
        growth = 0 if self.recorder is None else self.recorder.growth
        return max(self._headroom, growth + growth // 8, 4 * self._largest)

    def _site(self, site: int) -> Record | None:
        return self._sites[site]() if site < len(self._sites) else None

    # Moving bytes.

    def _send(self, record: Record) -> bool:
        """Start the copy to the host, if there is none yet."""
        if record.block is None and record.tensor is not None:
            try:
                block = self.transfer.host(record.bytes)
            except BudgetError:
                if self._watching:
                    return False  # perhaps something else can go
                raise
            record.going = self.transfer.copy_out(record.flat(), block)
            record.block = block
            self.counts.swaps_out += 1
            self.counts.bytes_out += record.bytes
        return record.block is not None

    def _release(self, record: Record | None) -> None:
        if record is not None and record.block is not None and record.tensor is not None:
            self._drop(record)

    def _drop(self, record: Record) -> None:
        """Let device memory go once no copy needs it any more."""
        for ticket in (record.going, record.coming):
            if ticket is not None:
                self.transfer.wait(ticket, record.stream)
        record.drop()

    def _fetch(self, record: Record | None) -> None:
        if record is None or record.tensor is not None or record.block is None:
            return
        survivor = record.revive()
        if survivor is not None:
            record.tensor = survivor
            return
        target = torch.empty(record.bytes, dtype=torch.uint8, device=self.transfer.device)
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
            return source.view(self._here(source.record))
        if isinstance(source, Recipe):
            memo = {} if memo is None else memo
            if id(source) not in memo:
                given = (None if each is None else self.value(each, memo) for each in source.inputs)
                memo[id(source)] = source.op(*given)
            return memo[id(source)]
        assert source is not None
        return source.value()

    def _here(self, record: Record) -> torch.Tensor:
        if record.tensor is None:
            record.tensor = record.revive()
        if record.tensor is None:
            if self._watching:
                self.make_room(record.bytes + self._spare())
            if record.block is not None:
                self.counts.late += 1
                self._fetch(record)
            else:
                self._rebuild(record)
        assert record.tensor is not None
        if record.coming is not None:
            self.transfer.wait(record.coming)
            record.coming = None
        return record.tensor

    def _rebuild(self, record: Record) -> None:
        assert record.recipe is not None
        with torch.no_grad(), self._as_saved():
            record.tensor = self.value(record.recipe)
        record.stream = self.transfer.stream()
        self.counts.rebuilt += 1
        self.counts.bytes_rebuilt += record.bytes

    def make_room(self, wanted: int) -> None:
        """Move what is oldest until this many bytes are free, or nothing is left to move."""
        over = self.transfer.allocated() + wanted - self.limit
        for index in range(self._oldest, len(self._sites)):
            if over <= 0:
                return
            record = self._site(index)
            if record is None or record.tensor is None:
                if index == self._oldest and record is None:
                    self._oldest += 1
                continue
            if record.held_elsewhere():
                continue
            if not self._droppable(record) and not self._send(record) and record.recipe is None:
                continue
            self._drop(record)
            self.counts.evicted += 1
            over -= record.bytes

    def _droppable(self, record: Record) -> bool:
        """Whether to rebuild it will not mean to rebuild half the model first."""
        if record.recipe is None:
            return False
        sources = (self._site(site) for site in record.recipe.sources())
        gone = (source.depth for source in sources if source is not None and source.tensor is None)
        record.depth = 1 + max(gone, default=0)
        return record.depth <= DEPTH

    # Recipes.

    def _recipe(self, record: Record, tensor: torch.Tensor) -> Recipe | None:
        """A recipe that was tried when the step was recorded."""
        recipe = self.graph.recipe(tensor)
        if recipe is None or self.plan is None:
            return None
        return recipe.whole()[self.plan.recording.sites[record.site].variant]

    def _tried_recipe(self, record: Record, tensor: torch.Tensor) -> Recipe | None:
        """A recipe that gives the same bits, here and now."""
        recipe = self.graph.recipe(tensor)
        if recipe is None or record.site in recipe.sources() or self.recorder is None:
            return None
        for variant, tried in enumerate(recipe.whole()):
            if self._watching:
                self.make_room(2 * record.bytes + self._spare())
            cost = self.recorder.try_recipe(record, tensor, self._building(tried))
            if cost is not None:
                self.recorder.found(record, tried, variant, cost)
                return tried
        return None

    def _as_saved(self) -> AbstractContextManager[Any]:
        """Inputs have the types they were used with: autocast, which made them so, must not do it again."""
        kind = self.transfer.device.type
        return nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)

    def _building(self, recipe: Recipe) -> Callable[[], torch.Tensor]:
        def build() -> torch.Tensor:
            with torch.no_grad(), self._as_saved():
                return self.value(recipe)

        return build
