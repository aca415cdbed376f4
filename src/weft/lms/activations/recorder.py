"""A recorder measures a step while it runs: the time and memory between each event and the next, and recipes.

An event is the moment at which autograd saves a tensor or asks for one back; see `planning/recording.py` for the
result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch

from weft.lms.activations.graph import made_by
from weft.lms.activations.replay import Replay
from weft.lms.activations.saved import Recipe, SavedStorage
from weft.lms.device.storages import flat_bytes
from weft.lms.device.transfer import Transfer
from weft.lms.planning.recording import NEVER, Recording, SavedSite
from weft.lms.tuning import DEFAULTS, LmsTuning


@dataclass(frozen=True, kw_only=True)
class RecipeTrial:
    """The findings of carrying a recipe out."""

    gives_same_bits: bool = True
    seconds: float = 0.0
    taken: int = 0  # bytes on the way, besides the result


class StepRecorder:
    """The measurements of one step. Work that the engine does between `close` and `open` is in none of them."""

    def __init__(
        self,
        transfer: Transfer,
        tries_recipes: bool,
        memory: bool = True,
        unfilled: Callable[[], int] = lambda: 0,
        module_name: Callable[[SavedStorage], str] = lambda _: "",
        tuning: LmsTuning = DEFAULTS,
    ) -> None:
        self.transfer, self.tuning = transfer, tuning
        self.unfilled = unfilled  # gives bytes that pages may take later where they do not now
        self.module_name = module_name  # gives the path of the module that runs while a storage is saved
        self.memory = memory  # whether memory is measured: times alone are more exact
        self.tries_recipes = tries_recipes
        self.growth = 0  # the most bytes that memory rose within one interval: the next one may want as much
        self._base = transfer.allocated() + unfilled()
        self._marks: list[tuple[Any, Any]] = []
        self._timed: dict[Hashable, list[float]] = {}  # seconds of recipes that do the same work
        self._trials: dict[Hashable, list[RecipeTrial]] = {}  # of those
        self._postponed: list[tuple[Hashable, dict[str, Any], dict[str, Any]]] = []
        self._pauses: list[tuple[int, Any, Any]] = []  # the interval, and marks at both ends
        self._other: list[int] = []  # see `Recording`
        self._rest: list[int] = []
        self._labels: list[str] = []
        self._waits: set[int] = set()  # intervals in which the host waits for the device
        self._sites: list[dict[str, Any]] = []
        self._holding: list[tuple[int, ref[SavedStorage]]] = []  # sites that others held at the last event
        self.moves: deque[int] = deque()  # sites whose bytes came, went or died since they were counted last
        self._here: dict[int, int] = {}  # bytes of the sites that are on the device,
        self._lingering: set[int] = set()  # those among them that only others hold,
        self._here_bytes = 0  # and of all of them
        self._open: Any = None  # the mark at which the interval began
        self._within = self._paused = False
        self.varied = False  # the step has other sizes than its plan: times alone are measured,
        self._places: list[int] = []  # and the events of the plan at which each interval begins
        self.highest = 0  # bytes
        # Bytes: of saved storages now and when the interval began, of everything then, the most besides saved ones,
        # and those that pages might still have taken.
        self._ours = self._at_open = self._level = self._seen = self._room = 0

    def vary(self) -> None:
        """Go on measuring times alone, since the sizes of this step are not those of its plan."""
        self.varied, self.memory = True, False

    def open(self, sites: Sequence[Callable[[], SavedStorage | None]], event: int = -1) -> None:
        """Begin an interval, after an event."""
        self._within = True
        self._places.append(event)
        if not self.memory:
            self._open = self.transfer.mark()
            return
        self._ours = self._at_open = self._on_device(sites, len(self._other) - 1)
        self._level, peak = self.transfer.levels()
        self._room = self.unfilled()
        self.highest = max(self.highest, peak)
        self.transfer.reset_peak()
        self._open = self.transfer.mark()

    def close(self) -> None:
        """End an interval: an event has come."""
        if not self.memory:
            self._other.append(0)
            self._rest.append(0)
            self._marks.append((self._open, self.transfer.mark()))
            self._within = False
            return
        self.look()
        self._other.append(self._seen)
        self._rest.append(max(0, self._level - self._at_open + self._room))
        self._marks.append((self._open, self.transfer.mark()))
        self._within, self._seen = False, 0
        event = len(self._other) - 1
        for site, weak in tuple(self._holding):
            storage = weak()
            if storage is None or not storage.held_elsewhere():
                self._sites[site]["held"] = event
                self._holding.remove((site, weak))

    @contextmanager
    def others(self) -> Iterator[None]:
        """Around moves of pages within an interval: the time that they wait is not the step's."""
        if not self._within or self._paused:
            yield
            return
        self._paused, start = True, self.transfer.mark()
        try:
            yield
        finally:
            self._paused = False
        if self._within:
            self._pauses.append((len(self._marks), start, self.transfer.mark()))

    def host_waits(self) -> None:
        """Note that the host waits for the device in this interval."""
        if self._within:
            self._waits.add(len(self._marks))

    def look(self) -> None:
        """Take in the peak so far. Call it before saved storages move within an interval: the peak was with those."""
        if self._within and self.memory:
            peak = self.transfer.peak()
            self.highest = max(self.highest, peak)
            self.growth = max(self.growth, peak - self._level)
            self._seen = max(self._seen, peak - self._ours + self.unfilled())

    def look_again(self, sites: Sequence[Callable[[], SavedStorage | None]]) -> None:
        """Count the saved storages on the device anew, after some moved within an interval."""
        if self._within and self.memory:
            self._ours = self._on_device(sites, len(self._other))
            self.transfer.reset_peak()

    def _on_device(self, sites: Sequence[Callable[[], SavedStorage | None]], event: int) -> int:
        """Return the bytes of saved storages that are on the device, held by us or by others. What autograd let go of
        since then is gone before an event.
        """
        moved = set(self._lingering)
        while self.moves:
            moved.add(self.moves.popleft())
        for site in moved:
            storage = sites[site]() if site < len(sites) else None
            if storage is None and site < len(self._sites) and "gone" not in self._sites[site]:
                self._sites[site]["gone"] = event
            there = storage is not None and (storage.tensor is not None or not storage.weak.dead)
            size = storage.bytes if storage is not None and there else 0
            self._here_bytes += size - self._here.get(site, 0)
            self._here[site] = size
            if storage is not None and there and storage.tensor is None:
                self._lingering.add(site)
            else:
                self._lingering.discard(site)
        return self._here_bytes

    def saved(self, storage: SavedStorage, tensor: torch.Tensor, fresh: bool, event: int) -> None:
        """Note a tensor that was saved; `fresh` if its storage was saved for the first time."""
        if self.varied:
            return
        module = self.module_name(storage)
        op = made_by(tensor)
        if fresh:
            entry = self._entry(storage.site)
            entry.update(op=op, module=module, bytes=storage.bytes, pack=event, uses=[], held=NEVER)
            self._holding.append((storage.site, ref(storage)))
        self._labels.append(f"the forward of {module or 'the model'} after {op}")

    def wanted(self, storage: SavedStorage | None, event: int) -> None:
        """Note a tensor that autograd asked for; None for the storage of one that an earlier step saved."""
        if self.varied:
            return
        if storage is not None:
            entry = self._sites[storage.site]
            entry["uses"].append(event)
            self._labels.append(
                f"the backward of what follows {entry['op']} in {entry['module'] or 'the model'}"
            )
        else:
            self._labels.append("the backward of an earlier step")

    def _entry(self, site: int) -> dict[str, Any]:
        while len(self._sites) <= site:
            self._sites.append({})
        return self._sites[site]

    def found(
        self, storage: SavedStorage, recipe: Recipe | Replay, variant: int, seconds: float, taken: int
    ) -> None:
        """Note a recipe that gives the right bits, its seconds, and the bytes that it takes on the way."""
        self._entry(storage.site).update(recipe_s=seconds, recipe_bytes=taken, **_noted(recipe, variant))

    def try_recipe(
        self, storage: SavedStorage, tensor: torch.Tensor, build: Callable[[], torch.Tensor]
    ) -> int | None:
        """Carry out a recipe, and return the bytes that it takes on the way; None if it fails or gives other bits."""
        level, peak = self.transfer.levels()
        self.highest = max(self.highest, peak)
        self.transfer.reset_peak()
        result: Any
        try:
            result = build()
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return None
        if not isinstance(result, torch.Tensor):
            return None  # a result that an operation gives in training alone
        taken = self.transfer.peak() - level - storage.bytes
        if result.untyped_storage().nbytes() != storage.bytes or result.dtype != tensor.dtype:
            return None
        if result.untyped_storage()._cdata == tensor.untyped_storage()._cdata:
            return None  # a view of the storage that it is to replace
        return max(0, taken) if same_bits(flat_bytes(tensor), flat_bytes(result)) else None

    def postpone(self, storage: SavedStorage, recipe: Recipe | Replay, variant: int, like: Hashable) -> None:
        """Note a recipe that there was no room to try: one that does the same work may be tried later."""
        self._postponed.append((like, self._entry(storage.site), _noted(recipe, variant)))

    def trial(self, like: Hashable) -> RecipeTrial | None:
        """Return what recipes that do the same work gave, once enough of them were tried; None before."""
        known = self._trials.get(like, [])
        return known[-1] if len(known) >= self.tuning.alike_recipes_timed else None

    def tried(self, like: Hashable, trial: RecipeTrial) -> RecipeTrial:
        """Note a trial; one recipe that gives other bits speaks against all that do the same work."""
        known = self._trials.setdefault(like, [])
        known.append(known[-1] if known and not known[-1].gives_same_bits else trial)
        return trial

    def time_recipe(self, like: Hashable, build: Callable[[], torch.Tensor]) -> float | None:
        """Return the seconds that a recipe takes; None if there is no memory for it any more.

        Waiting for the device takes longer than most recipes, so of those with the same key `like` the first are timed.
        """
        known = self._timed.setdefault(like, [])
        if len(known) < self.tuning.alike_recipes_timed:
            self.transfer.busy()
            start = self.transfer.mark()
            try:
                build()
            except torch.OutOfMemoryError:
                return None
            known.append(self.transfer.seconds(start, self.transfer.mark()))
        return min(known)

    def finish_times(self) -> list[tuple[int, float]]:
        """End a step of other sizes than planned, and return its intervals: the event of the plan after which each
        began, and its seconds.
        """
        return list(zip(self._places, self._finish_seconds(), strict=False))

    def _finish_seconds(self) -> list[float]:
        self.close()
        seconds = [self.transfer.seconds(start, end) for start, end in self._marks]
        for interval, start, end in self._pauses:
            seconds[interval] = max(0.0, seconds[interval] - self.transfer.seconds(start, end))
        return seconds

    def finish(self) -> Recording:
        """End the step, and return its recording."""
        seconds = self._finish_seconds()
        for like, entry, noted in self._postponed:
            trials = self._trials.get(like, [])
            if trials and trials[-1].gives_same_bits:
                entry.update(recipe_s=trials[-1].seconds, recipe_bytes=trials[-1].taken, **noted)
        last = len(seconds) - 1
        sites = []
        for entry in self._sites:
            entry["uses"] = tuple(entry["uses"])
            entry["held"] = min(entry["held"], last)
            sites.append(SavedSite(**entry))
        return Recording(
            sites=tuple(sites),
            seconds=tuple(seconds),
            other=tuple(self._other),
            rest=tuple(self._rest),
            labels=(*self._labels, "the end of the step"),
            waits=tuple(sorted(self._waits)),
            base=self._base,
        )


def _noted(recipe: Recipe | Replay, variant: int) -> dict[str, Any]:
    """Return what a recording says about a recipe besides its cost."""
    replayed = tuple(op.number for op in recipe.ops) if isinstance(recipe, Replay) else ()
    return {"needs": tuple(sorted(recipe.sources())), "variant": variant, "replayed": replayed}


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two flat tensors have the same bits.

    Eight bytes are compared at a time where possible, because the result of a comparison takes memory, too.
    """
    if first.device.type == "meta":
        return True  # an estimate has no bits to compare
    if first.numel() % 8 == 0:
        first, second = first.view(torch.int64), second.view(torch.int64)
    return torch.equal(first, second)
