"""Measures a step while it runs: one interval between each event and the next, and recipes tried on the way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch

from weft.lms.activations.graph import made_by
from weft.lms.activations.recipes import Recipe
from weft.lms.activations.saved import Record
from weft.lms.device.storages import flat_bytes
from weft.lms.device.transfer import Transfer
from weft.lms.paging.modules import current_module
from weft.lms.plan.recording import Recording, Site

TIMED = 2  # of recipes that are alike


class Recorder:
    """One step's measurements. What the engine itself does between `close` and `open` is in none of them."""

    def __init__(
        self,
        transfer: Transfer,
        tries_recipes: bool,
        memory: bool = True,
        unfilled: Callable[[], int] = lambda: 0,
    ) -> None:
        self.transfer = transfer
        self.unfilled = unfilled  # bytes that pages may take later where they do not now
        self.memory = memory  # or times alone, which are better without
        self.tries_recipes = tries_recipes
        self.growth = 0  # the most that memory rose within one interval: what room the next one may want
        self._base = transfer.allocated() + unfilled()
        self._marks: list[tuple[Any, Any]] = []
        self._timed: dict[Hashable, list[float]] = {}  # seconds of recipes that are alike
        self._pauses: list[tuple[int, Any, Any]] = []  # in which interval, and from when to when
        self._other: list[int] = []
        self._rest: list[int] = []
        self._labels: list[str] = []
        self._sites: list[dict[str, Any]] = []
        self._holding: list[tuple[int, ref[Record]]] = []
        self._living: set[int] = set()
        self._open: Any = None
        self._within = self._paused = False
        self.highest = 0
        self._ours = self._at_open = self._level = self._seen = self._room = 0

    def open(self, sites: Sequence[Callable[[], Record | None]]) -> None:
        """An interval begins."""
        self._within = True
        if not self.memory:
            self._open = self.transfer.mark()
            return
        alive = [record for record in (weak() for weak in sites) if record is not None]
        living = {record.site for record in alive}
        for site in self._living - living:
            if site < len(self._sites):
                self._sites[site]["gone"] = len(self._other) - 1
        self._living = living
        self._ours = self._at_open = _on_device(alive)
        self._level, peak = self.transfer.levels()
        self._room = self.unfilled()
        self.highest = max(self.highest, peak)
        self.transfer.reset_peak()
        self._open = self.transfer.mark()

    def close(self) -> None:
        """It is over: an event has come."""
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
            record = weak()
            if record is None or not record.held_elsewhere():
                self._sites[site]["held"] = event
                self._holding.remove((site, weak))

    @contextmanager
    def others(self) -> Iterator[None]:
        """Around what others move within an interval: to wait for that is none of the step's time."""
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

    def look(self) -> None:
        """What was highest so far counts with what was there so far: call before anything is moved in an interval."""
        if self._within and self.memory:
            peak = self.transfer.peak()
            self.highest = max(self.highest, peak)
            self.growth = max(self.growth, peak - self._level)
            self._seen = max(self._seen, peak - self._ours + self.unfilled())

    def look_again(self, sites: Sequence[Callable[[], Record | None]]) -> None:
        """And call this after it."""
        if self._within and self.memory:
            self._ours = _on_device([record for record in (weak() for weak in sites) if record is not None])
            self.transfer.reset_peak()

    def saved(self, record: Record, tensor: torch.Tensor, fresh: bool, event: int) -> None:
        module = current_module()
        op = made_by(tensor)
        if fresh:
            entry = self._entry(record.site)
            entry.update(op=op, module=module, bytes=record.bytes, pack=event, uses=[], held=1 << 60)
            self._holding.append((record.site, ref(record)))
        self._labels.append(f"the forward of {module or 'the model'} after {op}")

    def wanted(self, record: Record | None, event: int) -> None:
        """A record of this step, or something that an earlier one saved."""
        if record is not None:
            entry = self._sites[record.site]
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

    def found(self, record: Record, recipe: Recipe, variant: int, seconds: float, taken: int) -> None:
        needs = tuple(sorted(recipe.sources()))
        self._entry(record.site).update(recipe_s=seconds, recipe_bytes=taken, needs=needs, variant=variant)

    def try_recipe(
        self, record: Record, tensor: torch.Tensor, build: Callable[[], torch.Tensor]
    ) -> int | None:
        """Bytes that rebuilding takes on the way; None if it fails or gives other bits."""
        level, peak = self.transfer.levels()
        self.highest = max(self.highest, peak)
        self.transfer.reset_peak()
        try:
            result = build()
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return None
        taken = self.transfer.peak() - level - record.bytes
        if result.untyped_storage().nbytes() != record.bytes or result.dtype != tensor.dtype:
            return None
        if result.untyped_storage()._cdata == tensor.untyped_storage()._cdata:
            return None  # a view of what it is to replace
        return max(0, taken) if same_bits(flat_bytes(tensor), flat_bytes(result)) else None

    def time_recipe(self, like: Hashable, build: Callable[[], torch.Tensor]) -> float | None:
        """Seconds to rebuild, once it is known how; None if there is no memory for it any more.

        To wait for the device takes longer than most recipes, so of those alike the first ones tell for all.
        """
        known = self._timed.setdefault(like, [])
        if len(known) < TIMED:
            self.transfer.busy()
            start = self.transfer.mark()
            try:
                build()
            except torch.OutOfMemoryError:
                return None
            known.append(self.transfer.seconds(start, self.transfer.mark()))
        return min(known)

    def finish(self) -> Recording:
        """The step is over."""
        self.close()
        seconds = [self.transfer.seconds(start, end) for start, end in self._marks]
        for interval, start, end in self._pauses:
            seconds[interval] = max(0.0, seconds[interval] - self.transfer.seconds(start, end))
        last = len(seconds) - 1
        sites = []
        for entry in self._sites:
            entry["uses"] = tuple(entry["uses"])
            entry["held"] = min(entry["held"], last)
            sites.append(Site(**entry))
        return Recording(
            sites=tuple(sites),
            seconds=tuple(seconds),
            other=tuple(self._other),
            rest=tuple(self._rest),
            labels=(*self._labels, "the end of the step"),
            base=self._base,
        )


def _on_device(records: Sequence[Record]) -> int:
    return sum(record.bytes for record in records if record.tensor is not None or not record.weak.dead)


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Compared eight bytes at a time where that is possible: the answer of a comparison takes memory, too."""
    if first.device.type == "meta":
        return True  # an estimate has no bits to compare
    if first.numel() % 8 == 0:
        first, second = first.view(torch.int64), second.view(torch.int64)
    return torch.equal(first, second)
