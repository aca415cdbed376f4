"""One model's pages: what of them is on the device, and room for those that somebody touches."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import torch

from weft.errors import BudgetError
from weft.lms.paging.page import Page
from weft.lms.plan.residence import Residence, play
from weft.lms.plan.split import Split
from weft.text import format_size, round_up_size

if TYPE_CHECKING:
    from weft.lms.activations.session import Session
    from weft.lms.paging.gradients import GradientPages
    from weft.lms.paging.optimizer import Pager
    from weft.lms.paging.parameters import ParameterPages


class Keeper:
    """Knows all pages of a model. A budget knows it weakly: it goes with the model."""

    def __init__(self, session: Session, residence: Residence) -> None:
        self.session, self.residence = session, residence
        self.parameters: ParameterPages | None = None
        self.gradients: GradientPages | None = None
        self.pager: Pager | None = None
        self.here: dict[int, Page] = {}  # those touched last come last
        self.present = 0  # bytes of parameters and gradients among them
        self.split = Split()  # what of the budget is left to state
        self.bytes_in = 0
        session.keepers.add(self)

    def came(self, page: Page) -> None:
        self.here[id(page)] = page
        if page.kind != "state":
            self.present += page.bytes
        elif self.pager is not None:
            self.pager.came(page)
        if self.parameters is not None:
            self.parameters.came(page)

    def went(self, page: Page) -> None:
        if self.here.pop(id(page), None) is not None and page.kind != "state":
            self.present -= page.bytes
        if page.kind == "state" and self.pager is not None:
            self.pager.went(page)
        if self.parameters is not None:
            self.parameters.went(page)

    @property
    def unfilled(self) -> int:
        """Bytes that pages may still take, or less than none while more are here than need be."""
        parameters = self.residence.window if self.parameters is not None else 0
        gradients = self.residence.gradient_window if self.gradients is not None else 0
        leaving = 0 if self.pager is None else self.pager.leaving
        return parameters + gradients - self.present - leaving

    def pages_of(self, parameter: torch.Tensor) -> list[Page]:
        """What a step of a parameter takes, its state apart."""
        parts = (self.parameters, self.gradients)
        pages = [part.page_of(parameter) for part in parts if part is not None]
        return [page for page in pages if page is not None]

    def bring(self, page: Page) -> None:
        """Start a copy in; in a step that no plan foresaw, activations make room for it."""
        if not page.here:
            self.session.engine.expect(page.bytes)
            page.bring()
            self.bytes_in += page.bytes

    def want(self, pages: list[Page], what: str) -> None:
        """Bring pages that somebody touches."""
        for page in pages:
            page.check()
        parameters = [page for page in pages if page.kind == "parameter"]
        if parameters and self.parameters is not None and self.parameters.in_pass():
            with self.session.engine.moved_by_others():
                self.parameters.use(parameters)
        missing = [page for page in pages if not page.here]
        if missing:
            with self.session.engine.moved_by_others():
                self._make_room(sum(page.bytes for page in missing), pages, what)
                for page in missing:
                    self.bring(page)
        for page in pages:
            page.ready()
            if id(page) in self.here:
                self.here[id(page)] = self.here.pop(id(page))

    def make_room(self, wanted: int, but: Collection[Page] = ()) -> bool:
        """Let others leave, those touched longest ago first; whether there is room now."""
        for page in tuple(self.here.values()):
            if self.session.transfer.allocated() + wanted <= self.session.planning.budget:
                return True
            if page not in but:
                page.leave()
        return self.session.transfer.allocated() + wanted <= self.session.planning.budget

    def _make_room(self, wanted: int, but: Collection[Page], what: str) -> None:
        if self.make_room(wanted, but):
            return
        if self.session.is_open:
            self.session.engine.make_room(wanted)
        in_use = self.session.transfer.allocated()
        if in_use + wanted > self.session.limit:
            raise BudgetError(
                f"limit must hold what {what} takes at once, {format_size(wanted)} from the host beside "
                f"{format_size(in_use)} in use, got {format_size(self.session.limit)}; do it for fewer tensors at a "
                f"time, or write limit='{round_up_size(int(1.02 * (in_use + wanted)))}'",
                short=in_use + wanted - self.session.limit,
            )

    def explain(self, seconds: float) -> str:
        """What is paged, and what that costs a step of so many seconds."""
        played = None
        if self.parameters is not None:
            order, sizes = self.parameters.order, self.parameters.sizes
            played = play(order, sizes, self.residence.window, seconds, self.session.transfer.rates())
        return self.residence.explain(played, self.split.usual, self.split.last)

    def settle(self) -> None:
        """Before a forward pass: as it was left by whatever happened since the last one."""
        if self.pager is not None and (self.parameters is not None or self.gradients is not None):
            self.pager.let_go()
        if self.gradients is not None:
            self.gradients.settle()
        if self.parameters is not None:
            self.parameters.begin()
