"""The engine that carries out a plan: it is what autograd's hooks call when a tensor is saved and when it is wanted.

The walk of a saved tensor: `pack` makes a `Handle` for it, and by the plan's choice for its site leaves the storage
where it is, sends it to the host (`StorageMover`), or drops it and keeps a `Recipe`. At later events the plan releases
device memory whose copy out is done, and starts copies back. `unpack` gives the tensor back, wherever its bytes were.

With no plan the engine watches the memory in use, and makes room when there is too little: it drops what it can rebuild
and swaps the rest, oldest first, since the backward pass wants those last. No step waits for the device to finish
anything.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from weakref import WeakValueDictionary, ref

import torch

from weft.errors import BudgetError
from weft.lms.activations.graph import AutogradGraph, Packed, fits_key, made_by
from weft.lms.activations.mover import StorageMover, SwapCounts
from weft.lms.activations.recipes import RULES
from weft.lms.activations.recorder import RecipeTrial, StepRecorder
from weft.lms.activations.replay import Replay, replay
from weft.lms.activations.saved import Handle, Kept, KeptPage, Recipe, SavedStorage
from weft.lms.activations.tape import Tape
from weft.lms.device.torch_private import (
    CHECKPOINT_FILE,
    NO_BACKWARD,
    backward_id,
    without_torch_dispatch,
)
from weft.lms.device.transfer import Transfer
from weft.lms.paging.page import page_of
from weft.lms.planning.plan import Plan
from weft.lms.tuning import DEFAULTS, LmsTuning

UNPLANNED = 1 << 40  # the numbers of storages that a plan does not have begin here


def _no_storage() -> None:
    """The weak reference of a site whose storage a plan leaves where it is."""


class ActivationEngine:
    """The saved tensors of one device: where each is, and what happens to it at which event."""

    def __init__(self, transfer: Transfer, smallest: int, tuning: LmsTuning = DEFAULTS) -> None:
        self.transfer, self.tuning = transfer, tuning
        self.smallest = smallest  # bytes; smaller tensors are kept
        self.limit = self._ceiling = 1 << 62
        self.counts = SwapCounts()
        self.mover = StorageMover(transfer, self.counts, self.expect_storage)
        self.graph = AutogradGraph(RULES, tuning.max_recipe_nesting)
        self.tape = Tape()
        self.taped = False  # the tape sees the operations of this step,
        self.alone = False  # and no other mode needs to see what is done in between
        self.plan: Plan | None = None
        self.recorder: StepRecorder | None = None
        self.lost = False  # the step turned out not to be the one that was planned
        self.varied = False  # its sizes did: tensors find their places by the operations that made them
        self.watched = False  # memory is looked at where the plan comes close to the limit
        self._storages: WeakValueDictionary[int, SavedStorage] = WeakValueDictionary()  # by storage key
        self._sites: list[Callable[[], SavedStorage | None]] = []  # weak references, by site
        # Storages that a plan leaves where they are: the first handle on each, and all handles.
        self._staying: dict[int, ref[Handle]] = {}
        self._loose: list[ref[Handle]] = []
        self._unplanned: list[Callable[[], SavedStorage | None]] = []  # storages that the plan does not have
        self._event = 0
        self._acted = -1  # the last event whose releases and fetches were carried out
        self._listed = 0  # sites that are, or were, among
        self._movable: list[
            int
        ] = []  # the sites that may be on the device, as far as room was made, the oldest first
        self._moves: deque[int] | None = None  # where storages note that their bytes come or go
        self._largest = 0  # bytes of the largest storage saved
        self._strangers = 0  # tensors in a row that have no place in the plan
        self._headroom = 0  # bytes to keep free, from earlier steps
        self._evicted_bytes = 0  # since the start
        self.evicted_bytes = 0  # in this step, because memory ran short
        # Where sizes follow the data: bytes by which saved tensors are larger than planned, by site and in total, and
        # the most bytes by which one is larger. In the first such step, the largest ratio of a size to the planned one.
        self._surplus: dict[int, int] = {}
        self._surplus_bytes = 0
        self.largest_surplus = 0
        self._largest_ratio, self._varies_anew = 1.0, True
        self._watching = False  # memory is watched, for want of a plan
        self._sees_graph = True  # recipes by the rules of autograd's nodes may be asked for
        self.guarded = False  # room is asked for before each operation
        self.operation_bytes: dict[object, int] = {}  # by operation and shapes, as far as a guard asked
        self.after_event: Callable[[int], None] | None = None  # called after each event of a plan
        self._device = transfer.device
        self._nothing = torch.empty(0, device=transfer.device)

    @property
    def live(self) -> int:
        """The number of storages that autograd still holds."""
        return len(self._storages) + sum(weak() is not None for weak in self._staying.values())

    @property
    def event(self) -> int:
        return self._event

    def start(
        self,
        limit: int,
        plan: Plan | None,
        recorder: StepRecorder | None,
        headroom: int = 0,
        *,
        ceiling: int | None = None,
        watched: bool = False,
        varied: bool = False,
        largest_surplus: int = 0,
    ) -> None:
        """Begin a step under `limit` bytes. With no plan, memory is watched; with one it is kept below `ceiling`, where
        the plan is `watched` or the sizes are expected to be others than the recorded ones.
        """
        self.limit, self.plan, self.recorder = limit, plan, recorder
        self._ceiling = limit if ceiling is None else ceiling
        self.mover.rebuilds_once = plan is not None
        self.lost = self.guarded = self.taped = False
        self.varied, self.watched, self.evicted_bytes = varied, watched or varied, 0
        self._unplanned.clear()
        self._surplus.clear()
        self._surplus_bytes, self.largest_surplus, self._largest_ratio = 0, largest_surplus, 1.0
        self._varies_anew = not varied
        self._strangers = 0
        self._acted = -1
        # Where sizes follow the data, some operations may be missing, and numbers say nothing.
        self.tape.clear(None if plan is None or varied else plan.replayed)
        self._sites.clear()
        self._staying.clear()
        self._loose.clear()
        self._storages.clear()  # handles of an earlier step still hold their storages
        self.graph.clear(sees_changes=recorder is not None and recorder.tries_recipes)
        self._event = self._listed = self._largest = 0
        self._movable.clear()
        self.mover.returned.clear()
        self._headroom = headroom
        self._watching = plan is None
        self._sees_graph = plan is None or plan.asks_graph
        self._moves = None if recorder is None or not recorder.memory else recorder.moves
        if recorder is not None:
            recorder.open(self._sites)

    # Hooks that autograd calls.

    def pack(self, tensor: torch.Tensor) -> Packed:
        """Take a tensor that autograd saves, and return what it keeps in its place."""
        by_node = self._sees_graph and sys._getframe(1).f_code.co_filename != CHECKPOINT_FILE
        page = page_of(tensor)
        if page is not None or not self._manages(tensor):
            kept = Kept(tensor) if page is None else KeptPage(tensor, page)
            if self._sees_graph:
                self.graph.note(tensor, kept, by_node)
            if self.taped and page is None:
                self.tape.saved(tensor, kept)
            return kept
        if not self.taped:
            return self._save(tensor, by_node)
        self.tape.paused = True  # what is done here is no work of the step
        try:
            if self.alone:
                with without_torch_dispatch():
                    return self._save(tensor, by_node)
            return self._save(tensor, by_node)
        finally:
            self.tape.paused = False

    def _save(self, tensor: torch.Tensor, by_node: bool) -> Handle:
        if self.recorder is not None:
            self.recorder.close()
        handle = Handle(tensor, len(self._sites))
        if self._sees_graph:
            self.graph.note(tensor, handle, by_node)
        if self.taped:
            self.tape.saved(tensor, handle)
        fresh = not self._known(handle, tensor)
        self._act()
        if self.recorder is not None:
            assert handle.storage is not None
            self.recorder.saved(handle.storage, tensor, fresh, self._event)
        self._next_event()
        return handle

    def unpack(self, packed: Packed) -> torch.Tensor:
        """Return the tensor behind what `pack` gave, which autograd wants now."""
        if self.graph.caught is not None:
            self.graph.caught.append(packed)
            return self._nothing
        if isinstance(packed, Kept):
            return packed.value()
        if backward_id() == NO_BACKWARD:  # somebody looks at a node's saved tensors
            return self.mover.value(packed)
        if self.varied:
            self._find_event(packed)
        if self.recorder is not None:
            self.recorder.close()
        self._act()
        result = self.mover.value(packed)
        if self.recorder is not None:
            ours = packed.storage is not None and self._site(packed.site) is packed.storage
            self.recorder.wanted(packed.storage if ours else None, self._event)
        self._next_event()
        return result

    # One event.

    def _manages(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor may be moved or rebuilt."""
        if type(tensor) is not torch.Tensor or tensor.device != self._device:
            return False  # parameters, subclasses, tensors of another device
        if tensor._is_view():
            base = tensor._base
            if type(base) is torch.nn.Parameter or (base is not None and base.is_leaf and base.requires_grad):
                return False  # nn.Linear saves weight.t(), a plain tensor
        if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
            return False
        if tensor.is_leaf and tensor.requires_grad:
            return False
        size = tensor.untyped_storage().nbytes()
        if tensor.nbytes < size and not tensor._is_view():
            return False  # a part that counts its own changes, as of `unsafe_chunk`: those of the rest are unseen
        return size >= self.smallest

    def _known(self, handle: Handle, tensor: torch.Tensor) -> bool:
        """Return whether a tensor's storage was saved before in this step; if not, decide what becomes of it."""
        memory = tensor.untyped_storage()
        key = memory._cdata
        if self._settled(handle, key):
            return True
        plan = self.plan
        if plan is not None:
            weak = self._staying.get(key)
            first = None if weak is None else weak()
            if first is not None and first.version == handle.version:
                self._stay(handle, first)
                return True
            if handle.site >= len(plan.keys) or not fits_key(plan.keys[handle.site], tensor, memory.nbytes()):
                if made_by(tensor) not in plan.operations:
                    self.lose()  # the step takes another way
                elif not self._find_site(handle, tensor):
                    return self._save_unplanned(handle, key)
            elif self.varied:
                self._event = plan.recording.sites[handle.site].pack
            if self.varied and self.plan is not None:
                self._note_size(handle.site, memory.nbytes())
            if self.plan is not None and plan.choices[handle.site] == "keep" and self.recorder is None:
                self.counts.saved_bytes += memory.nbytes()
                self._sites.append(_no_storage)
                self._staying[key] = ref(handle)
                self._stay(handle, None)
                return False
        storage = self._new_storage(handle, key)
        self._sites.append(ref(storage))
        self.counts.saved_bytes += storage.bytes
        self._decide(storage, tensor)
        return False

    def _find_site(self, handle: Handle, tensor: torch.Tensor) -> bool:
        """Find the place in the plan of a tensor that is not the one expected next, by the operation that made it;
        return whether there is one nearby.

        Sizes may follow the data: an expert gets more tokens or fewer, so a tensor has other bytes than in the recorded
        step, and one that is too small to be managed is missing.
        """
        plan = self.plan
        assert plan is not None
        if not self.varied:
            self.varied = self.watched = True
            self.tape.stop()  # it knows by their numbers which operations it needs
            self._ceiling = min(
                self._ceiling, self.limit
            )  # what operations take is not known to the byte now
            if self.recorder is not None:
                self.recorder.vary()
        op, first = made_by(tensor), handle.site
        reach = self.tuning.places_looked_at * (
            1 + self._strangers // 4
        )  # further, the longer nothing was found
        for site in range(first, min(first + reach, len(plan.keys))):
            if plan.keys[site][0] == op:
                self._sites += [_no_storage] * (site - first)
                handle.site, self._event = site, plan.recording.sites[site].pack
                self._strangers = 0
                return True
        return False

    def _save_unplanned(self, handle: Handle, key: int) -> bool:
        """Save a tensor that has no place in the plan: it stays until memory runs short. After many of them in a row
        the step is another one than was planned.
        """
        assert self.plan is not None
        self._strangers += 1
        if self._strangers > min(self.tuning.most_strangers, len(self.plan.keys) // 2):
            self.lose()
        handle.site = UNPLANNED + len(self._unplanned)
        storage = self._new_storage(handle, key)
        self._unplanned.append(ref(storage))
        self.counts.saved_bytes += storage.bytes
        self._surplus[handle.site] = storage.bytes
        self._surplus_bytes += storage.bytes
        self._event -= 1  # it is no event of the plan
        return False

    def _note_size(self, site: int, size: int) -> None:
        """Note by how much a saved tensor is larger than planned."""
        assert self.plan is not None
        planned = self.plan.recording.sites[site].bytes
        self.largest_surplus = max(self.largest_surplus, size - planned)
        if self._varies_anew:
            self._largest_ratio = max(self._largest_ratio, size / max(1, planned))
        if self.plan.choices[site] == "keep":
            self._surplus[site] = size - planned
            self._surplus_bytes += size - planned

    def _find_event(self, packed: Handle) -> None:
        """Go to the event at which the recorded step used a tensor that is wanted now."""
        plan = self.plan
        self._surplus_bytes -= self._surplus.pop(packed.site, 0)
        if plan is None or packed.site >= len(plan.choices):
            return
        uses = plan.recording.sites[packed.site].uses
        self._event = next((use for use in uses if use >= self._event), self._event)

    def _settled(self, handle: Handle, key: int) -> bool:
        """Make a handle a view of the saved storage with this key; return whether there is one."""
        storage = self._storages.get(key)
        if storage is None or storage.version != handle.version:
            return False
        handle.settle(storage)
        return True

    def _stay(self, handle: Handle, first: Handle | None) -> None:
        """Leave a tensor where it is; its handle is looked at again only if the step is not as planned."""
        handle.first = first
        if first is not None:
            handle.site = first.site
        self._loose.append(ref(handle))

    def _new_storage(self, handle: Handle, key: int) -> SavedStorage:
        storage = self._storages[key] = SavedStorage(
            handle, self.transfer.stream(), self.mover.dead, self._moves
        )
        handle.settle(storage)
        self._largest = max(self._largest, storage.bytes)
        return storage

    def _decide(self, storage: SavedStorage, tensor: torch.Tensor) -> None:
        """Do with a storage that was just saved what the plan chose for it."""
        if self.recorder is not None and self.recorder.tries_recipes:
            storage.recipe = self._tried_recipe(storage, tensor)
        if self.plan is None:
            return
        choice = self.plan.choices[storage.site]
        if choice == "swap":
            try:
                self.mover.send(storage)
            except BudgetError:  # the host has no room in one piece
                if self.plan.recording.sites[storage.site].recipe_s is None:
                    raise
                choice = "recipe"
        if choice == "recipe":
            storage.recipe = storage.recipe or self._recipe(storage, tensor)
            if storage.recipe is not None:
                storage.drop()

    def lose(self) -> None:
        """Leave the plan for the rest of the step: the tensors saved are not those that were planned."""
        self.plan, self.lost, self._watching = None, True, True

    def _act(self) -> None:
        """Carry out the releases and fetches that the plan has for this event."""
        if self.mover.dead:
            self.mover.bury()
        if self.plan is not None:
            timeline = self.plan.timeline
            for event in range(self._acted + 1, self._event + 1) if self.varied else (self._event,):
                for site in timeline.releases.get(event, ()):
                    self._release(self._site(site))
                for site in timeline.fetches.get(event, ()):
                    self._fetch(self._site(site))
            self._acted = max(self._acted, self._event)

    def _next_event(self) -> None:
        """End an event: make room for the next operation, and let the recorder time it."""
        if self._watching or (self.watched and self._is_close()):
            self.make_room(self._spare())
        if self.after_event is not None and not self._watching:
            self.after_event(self._event)
        if self.recorder is not None:
            self.recorder.open(self._sites, self._event)
        self._event += 1

    def _is_close(self) -> bool:
        """Return whether the plan comes close to the limit after this event: asking for memory in use takes time."""
        assert self.plan is not None
        levels = self.plan.timeline.levels
        level = levels[min(self._event + 1, len(levels) - 1)]
        if self.varied:
            level += max(0, self._surplus_bytes) + self._spare()
        return level + (self._ceiling >> self.tuning.close_shift) > self._ceiling

    def _spare(self) -> int:
        """Return the bytes that the next operation may take, where no plan tells: the most that one took so far, or
        those of a few large tensors.
        """
        if self.guarded:
            return self._headroom
        if self.plan is not None:
            recording, event = self.plan.recording, min(self._event + 1, self.plan.recording.events)
            most = max(0, recording.other[event] - (recording.rest[event] if recording.rest else 0))
            if not self.varied:
                return most
            return (most >> self.tuning.varied_margin_shift) + self._more_than(most)
        growth = 0 if self.recorder is None else self.recorder.growth
        growth += growth >> self.tuning.growth_margin_shift
        return max(self._headroom, growth, self.tuning.largest_tensors_spare * self._largest)

    def _more_than(self, planned: int) -> int:
        """Return the bytes that an operation may take which is planned to take so many, where sizes follow the data."""
        larger = planned + self.tuning.largest_tensors_spare * self.largest_surplus if planned else 0
        return max(larger, int(self._largest_ratio * planned))

    def _site(self, site: int) -> SavedStorage | None:
        if site >= UNPLANNED:
            return self._unplanned[site - UNPLANNED]()
        return self._sites[site]() if site < len(self._sites) else None

    def _release(self, storage: SavedStorage | None) -> None:
        if storage is not None and storage.block is not None and storage.tensor is not None:
            self.mover.drop(storage)

    def _fetch(self, storage: SavedStorage | None) -> None:
        if storage is not None:
            self.mover.fetch(storage)

    # Room for operations and pages.

    def is_quiet(self) -> bool:
        return self.mover.quiet.depth > 0

    def host_waits(self) -> None:
        """Note that the host waits for the device here, which a plan must know."""
        if self.recorder is not None:
            self.recorder.host_waits()

    def before_operation(self, wanted: int) -> None:
        """Make room for an operation that is in no plan and takes `wanted` bytes."""
        if self.transfer.allocated() + wanted <= self.limit:
            return
        if self.recorder is None:
            self.make_room(wanted)
            return
        self.recorder.look()
        with self.recorder.others():  # a planned step does not wait for this
            self.make_room(wanted)
        self.recorder.look_again(self._sites)

    def expect(self, size: int) -> None:
        """Make room for `size` bytes that come to the device outside of any plan."""
        if self._watching:
            self.make_room(size + self._spare())
        elif self.watched and self._is_close():
            self.make_room(size)

    def expect_storage(self, storage: SavedStorage) -> None:
        """Make room for a storage that comes back late or is rebuilt, and for what rebuilding takes on the way."""
        if self._watching:
            self.make_room(storage.bytes + self._spare())
        elif self.watched and self._is_close():
            assert self.plan is not None
            sites = self.plan.recording.sites
            way = (
                sites[storage.site].recipe_bytes if storage.block is None and storage.site < len(sites) else 0
            )
            self.make_room(storage.bytes + self._more_than(way))

    @contextmanager
    def moved_by_others(self) -> Iterator[None]:
        """Around the moves of pages: a recording counts pages as if all that may be on the device were there."""
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
        """Move the oldest storages until `wanted` bytes are free, or none is left to move."""
        with self.mover.quiet:
            self._make_room(wanted)

    def _make_room(self, wanted: int) -> None:
        over = self.transfer.allocated() + wanted - (self.limit if self.plan is None else self._ceiling)
        if over <= 0:
            return
        self._settle()
        movable = self._list_movable()
        left: list[int] = []
        for place, index in enumerate(movable):
            if over <= 0:
                left += movable[place:]
                break
            storage = self._site(index)
            if storage is None or storage.tensor is None:
                continue
            if storage.held_elsewhere() or not self._can_leave(storage):
                left.append(index)
                continue
            self.mover.drop(storage)
            self.counts.evicted += 1
            self._evicted_bytes += storage.bytes
            self.evicted_bytes += storage.bytes
            over -= storage.bytes
        self._movable = [index for index in left if index < UNPLANNED]

    def _list_movable(self) -> list[int]:
        """Return the sites that may be on the device: those left by the last time, and what was saved or came since."""
        sites = self._movable
        if self.mover.returned:
            sites = sorted({*sites, *self.mover.returned})
            self.mover.returned.clear()
        sites += range(self._listed, len(self._sites))
        self._listed = len(self._sites)
        return [*sites, *range(UNPLANNED, UNPLANNED + len(self._unplanned))]

    def _can_leave(self, storage: SavedStorage) -> bool:
        return self._droppable(storage) or self._sent(storage) or storage.recipe is not None

    def _settle(self) -> None:
        """Make saved storages of all tensors that were to stay, since they may have to move after all."""
        for weak in self._loose:
            handle = weak()
            if handle is not None and handle.tensor is not None:
                # Autograd may be working on the tensor itself, which is not to lose its bytes.
                handle.tensor = handle.tensor.detach()
                key = handle.tensor.untyped_storage()._cdata
                if not self._settled(handle, key):
                    self._sites[handle.site] = ref(self._new_storage(handle, key))
        self._loose.clear()
        self._staying.clear()

    def _sent(self, storage: SavedStorage) -> bool:
        """Send a storage to the host; return whether the host has room for it."""
        try:
            self.mover.send(storage)
        except BudgetError:
            return False
        return True

    def _droppable(self, storage: SavedStorage) -> bool:
        """Return whether a storage can be rebuilt without a long chain of other storages being rebuilt first."""
        if storage.recipe is None:
            return False
        sources = (self._site(site) for site in storage.recipe.sources())
        gone = (source.depth for source in sources if source is not None and source.tensor is None)
        depth = 1 + max(gone, default=0)
        most = self.tuning.recipe_depths[0]
        storage.depth = depth if depth <= most else 0  # it is swapped instead, and depends on no recipe
        return depth <= most

    # Recipes.

    def _recipe(self, storage: SavedStorage, tensor: torch.Tensor) -> Recipe | Replay | None:
        """Return the variant of a recipe that gave the right bits when the step was recorded."""
        if self.plan is None:
            return None
        site = self.plan.recording.sites[storage.site]
        if site.replayed:
            return self._replay(tensor) if self.taped else None
        recipe = self.graph.recipe(tensor)
        return None if recipe is None else recipe.all_variants()[site.variant]

    def _replay(self, tensor: torch.Tensor) -> Replay | None:
        return replay(self.tape.state(tensor), self.tuning.max_replayed_operations)

    def _tried_recipe(self, storage: SavedStorage, tensor: torch.Tensor) -> Recipe | Replay | None:
        """Find a recipe that gives the same bits here and now, and let the recorder time it."""
        again = self._replay(tensor) if self.taped else None
        work = None if again is None else again.likeness()
        by_rule = self._tried(storage, tensor, self.graph.recipe(tensor), work)
        return by_rule or self._tried(storage, tensor, again, work)

    def _tried(
        self, storage: SavedStorage, tensor: torch.Tensor, recipe: Recipe | Replay | None, work: Hashable
    ) -> Recipe | Replay | None:
        """Return the variant of a recipe that gives the right bits. `work` is equal for tensors that were made by
        operations with the same settings: of those that are alike in all, the first ones are tried.
        """
        recorder = self.recorder
        if recipe is None or storage.site in recipe.sources() or recorder is None:
            return None
        variants: tuple[Recipe | Replay, ...] = recipe.all_variants()
        for variant, tried in enumerate(variants, recipe.first):
            like = (made_by(tensor), variant, tuple(tensor.shape), tensor.dtype, tried.likeness(), work)
            trial = recorder.trial(like) if work is not None else None
            if trial is None:
                trial = self._trial(storage, tensor, tried, like)
            if trial is None:  # there is no room to try it in
                recorder.postpone(storage, tried, variant, like)
                return None
            if trial.gives_same_bits:
                recorder.found(storage, tried, variant, trial.seconds, trial.taken)
                return tried
        return None

    def _trial(
        self, storage: SavedStorage, tensor: torch.Tensor, tried: Recipe | Replay, like: Hashable
    ) -> RecipeTrial | None:
        """Carry a recipe out and time it; None if there is no room for that."""
        recorder = self.recorder
        assert recorder is not None
        margin = storage.bytes >> self.tuning.recipe_trial_shift
        way = max(storage.bytes, tried.bytes_on_the_way() if isinstance(tried, Replay) else 0) + margin
        if self._watching:
            self.make_room(max(2 * storage.bytes + self._spare(), way))
            if self.transfer.allocated() + way > self.limit:
                return None
        for source in tried.storages().values():
            self.mover.here(source)
        if self._watching and self.transfer.allocated() + way > self.limit:
            return None
        pages = tried.pages()
        for page in pages:
            page.callbacks.want([page], "a recipe")
        build = partial(self.mover.build, tried)
        evicted = self._evicted_bytes
        taken = recorder.try_recipe(storage, tensor, build)
        if taken is None:
            return recorder.tried(like, RecipeTrial(gives_same_bits=False))
        evicted = self._evicted_bytes - evicted
        if self._watching:
            self.make_room(storage.bytes + taken + evicted)
        with self.mover.quiet:  # asking for room takes time, which would be counted as the recipe's
            if evicted:  # room was made on the way, which a planned step does not do
                fits = self.transfer.allocated() + storage.bytes + taken + evicted <= self.limit
                again = recorder.try_recipe(storage, tensor, build) if fits else None
                taken = taken + evicted if again is None else again
            seconds = recorder.time_recipe(like, build)
        if seconds is None:
            return None
        if pages:  # which may be away when the recipe is used
            size = sum(page.bytes for page in pages)
            seconds, taken = seconds + size / self.transfer.rates().back, taken + size
        return recorder.tried(like, RecipeTrial(seconds=seconds, taken=taken))
