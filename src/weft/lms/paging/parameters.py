"""Pages of parameters: they live on the host, and are on the device around their uses.

A module's forward pass brings its own parameters; the backward pass, a recipe, or anybody else who touches one brings
it, too. The parameters that are used next are copied in behind the compute, in the order that the step before had: at
first, the order of the modules, and back.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from weft.lms.device.torch_private import (
    NO_BACKWARD,
    backward_id,
    local_part,
    outside_of_compiler,
    top_saved_tensors_hooks,
)
from weft.lms.paging.hooks import BoundHook, around_forward, is_compiled, outer_modules
from weft.lms.paging.page import AwayParameter, Page
from weft.lms.paging.traffic import KindWatcher, PageTraffic
from weft.lms.planning.recording import NEVER
from weft.lms.planning.residence import ModelBytes, UseOrder, moves
from weft.lms.tuning import DEFAULTS, LmsTuning


class ParameterPages:
    """The pages of one model's parameters, by numbers."""

    def __init__(self, model: nn.Module, traffic: PageTraffic) -> None:
        self.traffic, self.tuning = traffic, traffic.tuning
        self.pages: list[Page] = []
        self.here: set[int] = set()  # numbers of pages on the device
        self.busy: set[int] = set()  # numbers of pages whose module runs
        self._numbers: dict[int, int] = {}  # by the parameter's id
        self._place = -1  # of the last use, in the order
        self._log: list[int] = []  # uses of this pass
        self._went_back = False  # a backward pass was seen
        traffic.usage.pages_parameters = True
        traffic.parameter_page = self.page_of
        traffic.use_parameters = self._touched
        traffic.watchers["parameter"] = KindWatcher(self._came, self._went)
        guess: list[int] = []
        for module, parameters in parameter_owners(model):
            numbers = [
                self._number(parameter) for parameter in parameters if pageable(parameter, self.tuning)
            ]
            if numbers:
                guess += numbers
                around_forward(module, _ForwardHook(self, numbers, True), _ForwardHook(self, numbers, False))
        self.sizes = traffic.usage.parameter_bytes = {
            number: page.bytes for number, page in enumerate(self.pages)
        }
        self._set_order(UseOrder((*guess, *reversed(guess))))
        self.begin()

    def _set_order(self, order: UseOrder) -> None:
        self.order = self.traffic.usage.use_order = order

    def _number(self, parameter: nn.Parameter) -> int:
        """Return the number of a parameter's page, which is made if need be."""
        number = self._numbers.get(id(parameter))
        if number is None:
            number = self._numbers[id(parameter)] = len(self.pages)
            self.pages.append(Page(parameter, self.traffic.transfer, self.traffic.callbacks, "parameter"))
        return number

    def page_of(self, parameter: torch.Tensor) -> Page | None:
        number = self._numbers.get(id(parameter))
        return None if number is None else self.pages[number]

    def _came(self, page: Page) -> None:
        if id(page.tensor) in self._numbers:
            self.here.add(self._numbers[id(page.tensor)])

    def _went(self, page: Page) -> None:
        self.here.discard(self._numbers.get(id(page.tensor), -1))

    def begin(self) -> None:
        """Begin a pass. It is expected to use parameters as the one before it, if that had a backward pass."""
        if self._went_back and self._log:
            self._set_order(UseOrder(tuple(self._log)))
        self._log, self._went_back, self._place = [], False, -1
        self.busy.clear()
        for page in self.pages:
            page.hide()
        self.use([])

    def _touched(self, pages: list[Page]) -> None:
        """Count a touch of parameters as a use while a module's forward pass or a backward pass runs.

        At other times whoever touches parameters may have as much room as there is.
        """
        if self.busy or backward_id() != NO_BACKWARD:
            with self.traffic.engine.moved_by_others():
                self.use(pages)

    def use(self, pages: list[Page]) -> None:
        """Have the parameters of these pages on the device or on their way, and the next ones behind them."""
        wanted = [self._numbers[id(page.tensor)] for page in pages]
        self._went_back = self._went_back or (bool(wanted) and backward_id() != NO_BACKWARD)
        for number in wanted:
            place = self.order.next_use(number, self._place)
            if place < NEVER:
                self._place = place % len(self.order.uses)
            if len(self._log) < self.tuning.max_logged_uses:
                self._log.append(number)
        stuck = set(self.busy)
        window = self.traffic.usage.residence.window
        while True:
            found = moves(self.order, self._place, wanted, self.here, stuck, self.sizes, window, self.tuning)
            held = [number for number in found.leave if not self.pages[number].loose]
            if not held:
                break
            stuck.update(held)
        for number in found.leave:
            self.pages[number].leave()
        for number in found.fetch:
            self.traffic.bring(self.pages[number])

    def enter(self, numbers: list[int]) -> None:
        """Bring a module's parameters before its forward pass."""
        step = self.traffic.step
        hooked = top_saved_tensors_hooks(True) is not None
        if torch.is_grad_enabled() and not step.is_open and not hooked:
            step.begin()  # part of the model is called by itself
        pages = [self.pages[number] for number in numbers]
        self.busy.update(numbers)
        for page in pages:
            page.users += 1
            page.check()
        with self.traffic.engine.moved_by_others():
            self.use(pages)
        for page in pages:
            page.ready()
            page.show()

    def leave(self, numbers: list[int]) -> None:
        """Let a module's parameters go after its forward pass."""
        for number in numbers:
            page = self.pages[number]
            page.users = max(0, page.users - 1)
            if page.users == 0:
                self.busy.discard(number)
                page.hide()


class _ForwardHook(BoundHook):
    """A hook before or after a module's forward pass. It holds the pages: part of a model may outlive the model."""

    def __init__(self, owner: ParameterPages, numbers: list[int], entering: bool) -> None:
        self._owner, self._numbers, self._entering = owner, numbers, entering

    @outside_of_compiler  # type: ignore[untyped-decorator]
    def __call__(self, *_: object) -> None:
        (self._owner.enter if self._entering else self._owner.leave)(self._numbers)


def parameter_owners(model: nn.Module) -> Iterator[tuple[nn.Module, list[nn.Parameter]]]:
    """Yield modules with the parameters that come and go with them: their own, or all of a compiled module."""
    for module in outer_modules(model):
        own = list(module.parameters(recurse=is_compiled(module)))
        if own:
            yield module, own


def pageable(parameter: torch.Tensor, tuning: LmsTuning = DEFAULTS) -> bool:
    """Return whether a parameter has its memory to itself and is large enough to be worth moving."""
    plain = type(parameter) in (nn.Parameter, AwayParameter) and parameter.layout == torch.strided
    if not plain or parameter.nbytes <= tuning.smallest_page_bytes:
        return False
    if isinstance(parameter, AwayParameter):
        return True
    return parameter.untyped_storage().nbytes() == parameter.nbytes


def model_bytes(model: nn.Module, state_factor: float, tuning: LmsTuning = DEFAULTS) -> ModelBytes:
    """Return the bytes of a model's parts; the optimizer keeps `state_factor` bytes per byte of trained parameters."""
    found = [parameter for parameter in model.parameters() if pageable(parameter, tuning)]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = sum(map(_nbytes, trained))
    everything = sum(map(_nbytes, (*model.parameters(), *model.buffers())))
    paged = sum(map(_nbytes, found))
    units = (
        sum(_nbytes(parameter) for parameter in parameters if pageable(parameter, tuning))
        for _, parameters in parameter_owners(model)
    )
    return ModelBytes(
        fixed=everything - paged,
        parameters=paged,
        gradients=gradients,
        paged_gradients=sum(size for size in map(_nbytes, trained) if size > tuning.smallest_page_bytes),
        state=int(state_factor * gradients),
        unit=max(units, default=0),
        largest=max(map(_nbytes, trained), default=0),
    )


def _nbytes(tensor: torch.Tensor) -> int:
    return local_part(tensor).nbytes
