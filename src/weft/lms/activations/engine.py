"""Carries out a plan: what autograd's hooks call when a tensor is saved and when it is wanted again.

With no plan it watches the memory in use, and makes room when there is too little: it drops what it can rebuild and
swaps the rest, oldest first, since the backward pass wants those last. No step waits for the device to finish anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from weakref import WeakValueDictionary, ref

import torch

from weft.errors import BudgetError
from weft.lms.activations.counts import Counts
from weft.lms.activations.graph import Graph, fits_key, made_by
from weft.lms.activations.mover import Mover
from weft.lms.activations.recipes import Recipe
from weft.lms.activations.recorder import Recorder
from weft.lms.activations.saved import Handle, Kept, Record
from weft.lms.device.transfer import Transfer
from weft.lms.paging.page import KeptPage, page_of
from weft.lms.plan.plan import Plan
from weft.lms.plan.search import DEPTHS

Packed = Handle | Kept
DEPTH = DEPTHS[0]


def _nobody() -> None:
    """The record of a site that has none."""


class Engine:
    """One device's saved tensors."""

    def __init__(self, transfer: Transfer, smallest: int) -> None:
        self.transfer = transfer
        self.smallest = smallest  # bytes; what is smaller is kept
        self.limit = 1 << 62
        self.counts = Counts()
        self.mover = Mover(transfer, self.counts, self.expect)
        self.graph = Graph()
        self.plan: Plan | None = None
        self.recorder: Recorder | None = None
        self.lost = False  # the step turned out not to be the one that was planned
        self._records: WeakValueDictionary[int, Record] = WeakValueDictionary()
        self._sites: list[Callable[[], Record | None]] = []  # weak
        # Storages that a plan leaves where they are: the first handle on each, and all handles.
        self._staying: dict[int, ref[Handle]] = {}
        self._loose: list[ref[Handle]] = []
        self._event = 0
        self._oldest = 0
        self._largest = 0
        self._headroom = 0
        self._watching = False
        self.guarded = False  # room is asked for before each operation
        self.follow: Callable[[int], None] | None = None  # told of each event of a plan
        self._device = transfer.device
        self._nothing = torch.empty(0, device=transfer.device)

    @property
    def live(self) -> int:
        """Storages that autograd still waits for."""
        return len(self._records) + sum(weak() is not None for weak in self._staying.values())

    @property
    def event(self) -> int:
        return self._event

    def start(self, limit: int, plan: Plan | None, recorder: Recorder | None, headroom: int = 0) -> None:
        """Begin a step; with no plan, memory is watched."""
        self.limit, self.plan, self.recorder = limit, plan, recorder
        self.lost = self.guarded = False
        self._sites.clear()
        self._staying.clear()
        self._loose.clear()
        self._records.clear()  # storages of an earlier step keep their handles, and are found by them
        self.graph.clear(sees_changes=recorder is not None and recorder.tries_recipes)
        self._event = self._oldest = self._largest = 0
        self._headroom = headroom
        self._watching = plan is None
        if recorder is not None:
            recorder.open(self._sites)

    # What autograd calls.

    def pack(self, tensor: torch.Tensor) -> Packed:
        """A tensor is saved."""
        page = page_of(tensor)
        if page is not None or not self._manages(tensor):
            kept = Kept(tensor) if page is None else KeptPage(tensor, page)
            self.graph.note(tensor, kept)
            return kept
        if self.recorder is not None:
            self.recorder.close()
        handle = Handle(tensor, len(self._sites))
        self.graph.note(tensor, handle)
        fresh = not self._known(handle, tensor)
        self._act()
        if self.recorder is not None:
            assert handle.record is not None
            self.recorder.saved(handle.record, tensor, fresh, self._event)
        self._step_on()
        return handle

    def unpack(self, packed: Packed) -> torch.Tensor:
        """A tensor is wanted."""
        if self.graph.caught is not None:
            self.graph.caught.append(packed)
            return self._nothing
        if isinstance(packed, Kept):
            return packed.value()
        if torch._C._current_graph_task_id() == -1:  # somebody looks, outside of any backward pass
            return self.mover.value(packed)
        if self.recorder is not None:
            self.recorder.close()
        self._act()
        result = self.mover.value(packed)
        if self.recorder is not None:
            ours = packed.record is not None and self._site(packed.site) is packed.record
            self.recorder.wanted(packed.record if ours else None, self._event)
        self._step_on()
        return result

    # One event.

    def _manages(self, tensor: torch.Tensor) -> bool:
        if type(tensor) is not torch.Tensor or tensor.device != self._device:
            return False  # parameters, subclasses, what lives elsewhere
        if tensor._is_view():
            base = tensor._base
            if type(base) is torch.nn.Parameter or (base is not None and base.is_leaf and base.requires_grad):
                return False  # nn.Linear saves weight.t(), a plain tensor
        if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
            return False
        if tensor.is_leaf and tensor.requires_grad:
            return False
        return tensor.untyped_storage().nbytes() >= self.smallest

    def _known(self, handle: Handle, tensor: torch.Tensor) -> bool:
        """Whether the storage was saved before; if not, what becomes of it is decided."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if self._settled(handle, key):
            return True
        plan = self.plan
        if plan is not None:
            weak = self._staying.get(key)
            first = None if weak is None else weak()
            if first is not None and first.version == handle.version:
                self._stay(handle, first)
                return True
            if handle.site >= len(plan.keys) or not fits_key(
                plan.keys[handle.site], tensor, storage.nbytes()
            ):
                self.lose()
            elif plan.choices[handle.site] == "keep" and self.recorder is None:
                self.counts.saved_bytes += storage.nbytes()
                self._sites.append(_nobody)
                self._staying[key] = ref(handle)
                self._stay(handle, None)
                return False
        record = self._new_record(handle, key)
        self._sites.append(ref(record))
        self.counts.saved_bytes += record.bytes
        self._decide(record, tensor)
        return False

    def _settled(self, handle: Handle, key: int) -> bool:
        """Whether its storage has a record, which is the handle's then."""
        record = self._records.get(key)
        if record is None or record.version != handle.version:
            return False
        handle.settle(record)
        return True

    def _stay(self, handle: Handle, first: Handle | None) -> None:
        """It is to stay where it is: nothing need be known of it unless something is not as planned."""
        handle.first = first
        if first is not None:
            handle.site = first.site
        self._loose.append(ref(handle))

    def _new_record(self, handle: Handle, key: int) -> Record:
        record = self._records[key] = Record(handle, self.transfer.stream(), self.mover.dead)
        handle.settle(record)
        self._largest = max(self._largest, record.bytes)
        return record

    def _decide(self, record: Record, tensor: torch.Tensor) -> None:
        if self.recorder is not None and self.recorder.tries_recipes:
            record.recipe = self._tried_recipe(record, tensor)
        if self.plan is None:
            return
        choice = self.plan.choices[record.site]
        if choice == "swap":
            try:
                self.mover.send(record)
            except BudgetError:  # the host has no room in one piece
                if self.plan.recording.sites[record.site].recipe_s is None:
                    raise
                choice = "recipe"
        if choice == "recipe":
            record.recipe = record.recipe or self._recipe(record, tensor)
            if record.recipe is not None:
                record.drop()

    def lose(self) -> None:
        """Leave the plan for the rest of the step: what happens is not what was planned."""
        self.plan, self.lost, self._watching = None, True, True

    def _act(self) -> None:
        """Do what the plan has for this event."""
        if self.mover.dead:
            self.mover.bury()
        if self.plan is not None:
            timeline = self.plan.timeline
            for site in timeline.releases.get(self._event, ()):
                self._release(self._site(site))
            for site in timeline.fetches.get(self._event, ()):
                self._fetch(self._site(site))

    def _step_on(self) -> None:
        if self._watching:
            self.make_room(self._spare())
        elif self.follow is not None:
            self.follow(self._event)
        if self.recorder is not None:
            self.recorder.open(self._sites)
        self._event += 1

    def _spare(self) -> int:
        """Room that the next operation may want, where nobody knows: as much as any so far, or a few tensors' worth."""
        if self.guarded:
            return self._headroom
        growth = 0 if self.recorder is None else self.recorder.growth
        return max(self._headroom, growth + growth // 8, 4 * self._largest)

    def _site(self, site: int) -> Record | None:
        return self._sites[site]() if site < len(self._sites) else None

    def _release(self, record: Record | None) -> None:
        if record is not None and record.block is not None and record.tensor is not None:
            self.mover.drop(record)

    def _fetch(self, record: Record | None) -> None:
        if record is not None:
            self.mover.fetch(record)

    # Room.

    def is_quiet(self) -> bool:
        return self.mover.quiet.depth > 0

    def before_operation(self, wanted: int) -> None:
        """An operation that nobody planned takes so much."""
        if self.transfer.allocated() + wanted > self.limit:
            if self.recorder is not None:
                self.recorder.look()
            self.make_room(wanted)
            if self.recorder is not None:
                self.recorder.look_again(self._sites)

    def expect(self, size: int) -> None:
        """So many bytes come that no plan foresaw."""
        if self._watching:
            self.make_room(size + self._spare())

    @contextmanager
    def moved_by_others(self) -> Iterator[None]:
        """Around the coming and going of pages: a recording counts them as if all that may be here were."""
        recorder = self.recorder
        if recorder is None:
            with self.mover.quiet:
                yield
            return
        recorder.look()
        with self.mover.quiet, recorder.others():
            yield
        recorder.look_again(self._sites)

    def make_room(self, wanted: int) -> None:
        """Move what is oldest until this many bytes are free, or nothing is left to move."""
        with self.mover.quiet:
            self._make_room(wanted)

    def _make_room(self, wanted: int) -> None:
        over = self.transfer.allocated() + wanted - self.limit
        if over <= 0:
            return
        self._settle()
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
            if not self._droppable(record) and not self._sent(record) and record.recipe is None:
                continue
            self.mover.drop(record)
            self.counts.evicted += 1
            over -= record.bytes

    def _settle(self) -> None:
        """What was to stay may have to move after all."""
        for weak in self._loose:
            handle = weak()
            if handle is not None and handle.tensor is not None:
                key = handle.tensor.untyped_storage()._cdata
                if not self._settled(handle, key):
                    self._sites[handle.site] = ref(self._new_record(handle, key))
        self._loose.clear()
        self._staying.clear()

    def _sent(self, record: Record) -> bool:
        """Whether it is on the host, or on its way; if the host is full, perhaps something else can go."""
        try:
            self.mover.send(record)
        except BudgetError:
            return False
        return True

    def _droppable(self, record: Record) -> bool:
        """Whether to rebuild it will not mean to rebuild half the model first."""
        if record.recipe is None:
            return False
        sources = (self._site(site) for site in record.recipe.sources())
        gone = (source.depth for source in sources if source is not None and source.tensor is None)
        depth = 1 + max(gone, default=0)
        record.depth = depth if depth <= DEPTH else 0  # what is swapped instead is rebuilt from nothing
        return depth <= DEPTH

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
        for variant, tried in enumerate(recipe.whole(), recipe.first):
            if self._watching:
                self.make_room(2 * record.bytes + self._spare())
                if self.transfer.allocated() + record.bytes + record.bytes // 4 > self.limit:
                    return None  # what is worked on right now leaves no room to try it
            for source in tried.records().values():
                self.mover.here(source)
            pages = tried.pages()
            for page in pages:
                page.desk.want([page], "a recipe")
            build = partial(self.mover.build, tried)
            taken = self.recorder.try_recipe(record, tensor, build)
            if taken is not None:
                if self._watching:
                    self.make_room(record.bytes + taken)
                with self.mover.quiet:  # to ask for room takes time, which would be taken for the recipe's
                    like = (made_by(tensor), variant, tuple(tensor.shape), tensor.dtype, tried.likeness())
                    seconds = self.recorder.time_recipe(like, build)
                if seconds is None:
                    return None
                if pages:  # which may be away when it is used
                    size = sum(page.bytes for page in pages)
                    seconds, taken = seconds + size / self.transfer.rates().back, taken + size
                self.recorder.found(record, tried, variant, seconds, taken)
                return tried
        return None
