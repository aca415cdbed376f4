"""The pages of one model that are on the device, and room for those that somebody touches."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch

from weft.errors import BudgetError
from weft.lms.activations.step import RunningStep
from weft.lms.budget import ModelUsage
from weft.lms.paging.page import Page, PageCallbacks, PageKind
from weft.lms.planning.residence import Residence
from weft.text import format_size, round_up_size

PageFinder = Callable[[torch.Tensor], Page | None]


@dataclass(frozen=True)
class KindWatcher:
    """Calls for each page of one kind that comes to the device or leaves it."""

    came: Callable[[Page], None]
    went: Callable[[Page], None]


class PageTraffic:
    """Brings the pages of one model to the device and lets them leave, within the model's budget.

    `ParameterPages`, `GradientPages` and `StatePages` own the pages; each enters here what the others must know.
    """

    def __init__(self, step: RunningStep, residence: Residence) -> None:
        self.step, self.engine, self.budget = step, step.engine, step.budget
        self.transfer, self.tuning = self.budget.transfer, self.budget.tuning
        self.usage = ModelUsage(residence)
        self.budget.models.add(self.usage)
        self.callbacks = PageCallbacks(self._came, self._went, self.want)
        self.here: dict[int, Page] = {}  # pages on the device, by id; the one touched last comes last
        self.watchers: dict[PageKind, KindWatcher] = {}
        self.parameter_page: PageFinder | None = None
        self.gradient_page: PageFinder | None = None
        self.use_parameters: Callable[[list[Page]], None] | None = (
            None  # called with parameters that are touched
        )

    def _came(self, page: Page) -> None:
        self.here[id(page)] = page
        if page.kind != "state":
            self.usage.on_device += page.bytes
        if page.kind in self.watchers:
            self.watchers[page.kind].came(page)

    def _went(self, page: Page) -> None:
        if self.here.pop(id(page), None) is not None and page.kind != "state":
            self.usage.on_device -= page.bytes
        if page.kind in self.watchers:
            self.watchers[page.kind].went(page)

    def pages_of(self, parameter: torch.Tensor) -> list[Page]:
        """The pages of a parameter and of its gradient, which an optimizer's step needs besides its state."""
        finders = (self.parameter_page, self.gradient_page)
        pages = [find(parameter) for find in finders if find is not None]
        return [page for page in pages if page is not None]

    def bring(self, page: Page) -> None:
        """Start the copy of a page to the device; in a step without a plan, activations make room for it."""
        if not page.here:
            self.engine.expect(page.bytes)
            page.bring()
            self.usage.bytes_in += page.bytes

    def want(self, pages: list[Page], what: str) -> None:
        """Have pages on the device for an operation named `what`, which is about to run."""
        for page in pages:
            page.check()
        parameters = [page for page in pages if page.kind == "parameter"]
        if parameters and self.use_parameters is not None:
            self.use_parameters(parameters)
        missing = [page for page in pages if not page.here]
        if missing:
            with self.engine.moved_by_others():
                self._make_room(sum(page.bytes for page in missing), pages, what)
                for page in missing:
                    self.bring(page)
        for page in pages:
            page.ready()
            if id(page) in self.here:
                self.here[id(page)] = self.here.pop(id(page))

    def make_room(self, wanted: int, but: Collection[Page] = ()) -> bool:
        """Let pages leave until `wanted` bytes are free, the one touched longest ago first; return whether they are."""
        for page in tuple(self.here.values()):
            if self.budget.free >= wanted:
                return True
            if page not in but:
                page.leave()
        return self.budget.free >= wanted

    def _make_room(self, wanted: int, but: Collection[Page], what: str) -> None:
        if self.make_room(wanted, but):
            return
        if self.step.is_open:
            self.engine.make_room(wanted)
        in_use, limit = self.transfer.allocated(), self.budget.limit
        if in_use + wanted > limit:
            raise BudgetError(
                f"limit must hold what {what} takes at once, {format_size(wanted)} from the host beside "
                f"{format_size(in_use)} in use, got {format_size(limit)}; do it for fewer tensors at a "
                f"time, or write limit='{round_up_size(int(1.02 * (in_use + wanted)))}'",
                short=in_use + wanted - limit,
            )
