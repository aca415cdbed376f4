"""Parameters that live on the host, and are on the device around their uses.

A module's forward pass brings its own; the backward pass, a recipe, or anybody else who touches one brings it, too.
What comes next is copied in behind the compute, in the order that was learnt in the step before: at first, the order
of the modules, and back.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch._compile import _disable_dynamo

from weft.lms.paging.bound import Bound
from weft.lms.paging.compiled import around_forward, is_compiled, units
from weft.lms.paging.model import Keeper
from weft.lms.paging.page import SMALL, AwayParameter, Page, held
from weft.lms.plan.residence import Order, Sizes, moves

MOST = 1 << 16  # uses that are remembered


class ParameterPages:
    """The pages of one model's parameters."""

    def __init__(self, model: nn.Module, keeper: Keeper) -> None:
        self.keeper = keeper
        self.pages: list[Page] = []
        self.here: set[int] = set()
        self.busy: set[int] = set()
        self._numbers: dict[int, int] = {}  # by the parameter's id
        self._place = -1
        self._log: list[int] = []
        self._went_back = False
        keeper.parameters = self
        guess: list[int] = []
        for module, parameters in owners(model):
            numbers = [self._number(parameter) for parameter in parameters if pageable(parameter)]
            if numbers:
                guess += numbers
                around_forward(module, _Door(self, numbers, True), _Door(self, numbers, False))
        self.sizes = {number: page.bytes for number, page in enumerate(self.pages)}
        self.order = Order((*guess, *reversed(guess)))
        self.begin()

    def _number(self, parameter: nn.Parameter) -> int:
        number = self._numbers.get(id(parameter))
        if number is None:
            number = self._numbers[id(parameter)] = len(self.pages)
            self.pages.append(Page(parameter, self.keeper.session.transfer, self.keeper, "parameter"))
        return number

    def page_of(self, parameter: torch.Tensor) -> Page | None:
        number = self._numbers.get(id(parameter))
        return None if number is None else self.pages[number]

    def came(self, page: Page) -> None:
        if id(page.tensor) in self._numbers:
            self.here.add(self._numbers[id(page.tensor)])

    def went(self, page: Page) -> None:
        self.here.discard(self._numbers.get(id(page.tensor), -1))

    def begin(self) -> None:
        """A pass begins. What the one before it did, if it came back, is what this one will do."""
        if self._went_back and self._log:
            self.order = Order(tuple(self._log))
        self._log, self._went_back, self._place = [], False, -1
        self.busy.clear()
        for page in self.pages:
            page.hide()
        self.use([])

    def in_pass(self) -> bool:
        """Whether a module's forward pass runs, or a backward pass: others may use as much room as there is."""
        return bool(self.busy) or torch._C._current_graph_task_id() != -1

    def use(self, pages: list[Page]) -> None:
        """These are wanted now: make sure that they are here, and others on their way."""
        wanted = [self._numbers[id(page.tensor)] for page in pages]
        self._went_back = self._went_back or (bool(wanted) and torch._C._current_graph_task_id() != -1)
        for number in wanted:
            place = self.order.next_use(number, self._place)
            if place < 1 << 60:
                self._place = place % len(self.order.uses)
            if len(self._log) < MOST:
                self._log.append(number)
        stuck = set(self.busy)
        while True:
            window = self.keeper.residence.window
            found = moves(self.order, self._place, wanted, self.here, stuck, self.sizes, window)
            held = [number for number in found.leave if not self.pages[number].loose]
            if not held:
                break
            stuck.update(held)
        for number in found.leave:
            self.pages[number].leave()
        for number in found.fetch:
            self.keeper.bring(self.pages[number])

    def enter(self, numbers: list[int]) -> None:
        """The forward pass of a module begins."""
        session = self.keeper.session
        hooked = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        if torch.is_grad_enabled() and not session.is_open and not hooked:
            session.begin()  # part of the model is called by itself
        pages = [self.pages[number] for number in numbers]
        self.busy.update(numbers)
        for page in pages:
            page.users += 1
            page.check()
        with session.engine.moved_by_others():
            self.use(pages)
        for page in pages:
            page.ready()
            page.show()

    def leave(self, numbers: list[int]) -> None:
        """It is over."""
        for number in numbers:
            page = self.pages[number]
            page.users = max(0, page.users - 1)
            if page.users == 0:
                self.busy.discard(number)
                page.hide()


class _Door(Bound):
    """Around a module's forward pass; a copy of the module has none. Part of a model may outlive it: pages stay."""

    def __init__(self, owner: ParameterPages, numbers: list[int], entering: bool) -> None:
        self._owner, self._numbers, self._entering = owner, numbers, entering

    @_disable_dynamo  # loads the compiler when called, not before
    def __call__(self, *_: object) -> None:
        (self._owner.enter if self._entering else self._owner.leave)(self._numbers)


def owners(model: nn.Module) -> Iterator[tuple[nn.Module, list[nn.Parameter]]]:
    """Modules and the parameters that come and go with them: their own, or all of a compiled one."""
    for module in units(model):
        own = list(module.parameters(recurse=is_compiled(module)))
        if own:
            yield module, own


def pageable(parameter: torch.Tensor) -> bool:
    """Whether a parameter's memory is all its own, and large enough to be worth moving."""
    plain = type(parameter) in (nn.Parameter, AwayParameter) and parameter.layout == torch.strided
    if not plain or parameter.nbytes <= SMALL:
        return False
    if isinstance(parameter, AwayParameter):
        return True
    return parameter.untyped_storage().nbytes() == parameter.nbytes


def sizes_of(model: nn.Module, state: float) -> Sizes:
    """A model's bytes; `state` for each byte of parameters that are trained."""
    found = [parameter for parameter in model.parameters() if pageable(parameter)]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = sum(map(_nbytes, trained))
    everything = sum(map(_nbytes, (*model.parameters(), *model.buffers())))
    paged = sum(map(_nbytes, found))
    return Sizes(
        fixed=everything - paged,
        parameters=paged,
        gradients=gradients,
        paged_gradients=sum(size for size in map(_nbytes, trained) if size > SMALL),
        state=int(state * gradients),
        unit=max(
            (sum(map(_nbytes, filter(pageable, parameters))) for _, parameters in owners(model)), default=0
        ),
        largest=max(map(_nbytes, trained), default=0),
    )


def _nbytes(tensor: torch.Tensor) -> int:
    return held(tensor).nbytes
