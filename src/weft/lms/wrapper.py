"""A model and its optimizer under a budget: every step is watched, and what must page to the host does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar
from weakref import WeakMethod, ref

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch.nn.parallel import DistributedDataParallel

from weft.errors import BudgetError, UsageError
from weft.lms.activations.session import Session
from weft.lms.api import session_for
from weft.lms.device.transfer import Transfer
from weft.lms.paging.bound import Bound
from weft.lms.paging.compiled import around_forward, put_around
from weft.lms.paging.gradients import GradientPages
from weft.lms.paging.model import Keeper
from weft.lms.paging.modules import name_modules
from weft.lms.paging.optimizer import Pager
from weft.lms.paging.page import saved_from_host
from weft.lms.paging.parameters import ParameterPages, owners, sizes_of
from weft.lms.plan.residence import Paging, Residence, decide, tighter

M = TypeVar("M", bound=nn.Module)
Rungs = Literal["all", "state", "windows"]  # what may be paged later that was not at first
STATE = 2.0  # bytes that an optimizer is expected to keep for each byte of parameters
SPARE = 0.06  # of the budget is kept free for whatever a pass wants next, while state is leaving
TRIES = 4
SHARED = (2, 4)  # steps after which the budget is shared out between activations and state


def wrap(
    model: M,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    limit: str | int | float = "auto",
    host: str | int | float | None = None,
    page: Paging = "auto",
    transfer: Transfer | None = None,
) -> tuple[M, torch.optim.Optimizer | None]:
    """Put a model, and its optimizer, under a budget; gives both back, changed in place.

    A forward pass begins a step; one that runs out of memory is tried again with more room. Optimizer state, then
    gradients, then parameters live on the host if they leave too little room for activations (`page="auto"`): a guess
    at first, and more of them where no plan keeps the budget otherwise. Or all of them always, or never.
    """
    session = session_for(limit, host, transfer)
    sharded = sharing(model)
    residence = decide(sizes_of(model, STATE if optimizer is not None else 0.0), session.limit, page)
    if sharded and (residence.parameters or residence.gradients):
        if page == "always":
            raise UsageError(
                f"parameters and gradients must belong to the model alone to be paged, got {sharded}; write "
                "page='auto', which pages optimizer state, or page='never'"
            )
        residence = Residence(sizes=residence.sizes, state=residence.state)
    # What ranks do together before a forward pass must not be done again by one that tries its own again.
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    name_modules(inner)
    rungs: Rungs = "windows" if page != "auto" else "state" if sharded else "all"
    wrapped = Wrapped(inner, session, optimizer, Residence(sizes=residence.sizes), rungs)
    wrapped.page(residence)
    if optimizer is not None:
        optimizer.register_step_pre_hook(wrapped.before_step)
        optimizer.register_step_post_hook(wrapped.after_step)
    return model, optimizer


def sharing(model: nn.Module) -> str:
    """What shares a model's parameters with other processes, if anything does."""
    if any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        return "DistributedDataParallel"
    return "DTensor" if any(hasattr(parameter, "to_local") for parameter in model.parameters()) else ""


def _meets_others(model: nn.Module) -> bool:
    """Whether processes wait for each other in a forward pass, which none can repeat by itself."""
    return bool(sharing(model)) or any(isinstance(module, nn.SyncBatchNorm) for module in model.modules())


class Wrapped:
    """What happens around a model's forward pass."""

    def __init__(
        self,
        model: nn.Module,
        session: Session,
        optimizer: torch.optim.Optimizer | None,
        residence: Residence,
        rungs: Rungs,
    ) -> None:
        self.model, self.session = model, session
        self.keeper: Keeper | None = None
        self._optimizer, self._residence, self._rungs = optimizer, residence, rungs
        self._closures = 0  # of the optimizer's that run
        self._short = 0  # bytes, where no plan kept the budget
        self._calls = self._last_calls = 0  # forward passes since the optimizer's step, and before it
        self._steps = 0  # of the optimizer
        self._replicated = False  # inside of DistributedDataParallel
        self._parameters = list(model.parameters())  # to go through a model's modules takes long
        self.original: Callable[..., Any] = model.forward
        if model._compiled_call_impl is None:
            model.forward = _Forward(self)
        else:  # with `forward` inside
            self.original = model._compiled_call_impl
            put_around(model, _Forward(self))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._begin()
        if not torch.is_grad_enabled():
            if self.keeper is not None and self.keeper.pager is not None:
                self.keeper.pager.let_go()  # nobody knows what this pass will take
            return self.original(*args, **kwargs)
        self._calls += 1
        state = _State(self.model)
        attempt = 0
        while True:
            self.session.begin(self._makes_gradients(), self._left)
            try:
                result = self.original(*args, **kwargs)
                self._after_forward()
                return result
            except torch.OutOfMemoryError:
                self.session.end(failed=True)
                attempt, short = attempt + 1, 0
                if attempt == TRIES or self._must_not_repeat(_meets_others(self.model)):
                    raise
            except BudgetError as error:
                self.session.end(failed=True)
                attempt, short = attempt + self._in_step, error.short
                if attempt == TRIES or self._tighter(short) is None:
                    raise
                if self._must_not_repeat(_meets_others(self.model)):
                    raise
            self._more_room(state, short)  # not in the handler: the exception held the frames

    def _makes_gradients(self) -> bool:
        """Whether a pass makes gradients, or adds to those of passes before it, which are there from its beginning."""
        return all(parameter.grad is None for parameter in self._parameters)

    def _must_not_repeat(self, together: bool) -> bool:
        """Whether others would wait for what ran out of memory; the next step leaves more room."""
        if together:
            self.session.tighten()
        return together

    def _after_forward(self) -> None:
        """What follows, the loss and the backward pass, asks for no room: all that it will take must be there."""
        pager = None if self.keeper is None else self.keeper.pager
        if pager is not None:
            pager.shape = self.session.shape
            pager.make_room()

    def _begin(self) -> None:
        self._replicated = self._replicated or DistributedDataParallel._active_ddp_module is not None
        if torch.is_grad_enabled():
            self.end()
            if not self._in_step:
                self._give_way(self._short)
        if self.keeper is None:
            return
        if self.keeper.parameters is not None or self.keeper.gradients is not None:
            self._check_alone()
        self.keeper.settle()
        if self.keeper.pager is not None:
            self.keeper.pager.begin()
            if self.session.steps < 4:
                self.keeper.pager.let_go()  # steps that are recorded should see how it will be

    def _check_alone(self) -> None:
        shared = "DistributedDataParallel" if self._replicated else sharing(self.model)
        if shared:
            raise UsageError(
                f"a model whose parameters or gradients are paged must not share them with other processes, got "
                f"{shared}; share it first and give the result to lms.wrap, which pages optimizer state alone then"
            )

    def end(self) -> None:
        """The passes are over. If no plan keeps the budget, something gives way to activations before the next one."""
        try:
            self.session.end()
        except BudgetError as error:
            if self._tighter(error.short) is None:
                raise
            self._short = error.short  # not now: the optimizer may be about to step what would be paged

    def _tighter(self, short: int) -> Residence | None:
        """What to page beside what is paged already; None where that would not help."""
        if short <= 0 or self._rungs == "windows":
            return self._residence.smaller() if short > 0 else None
        found = tighter(self._residence, self.session.limit, short)
        shared = self._rungs == "state" or self._replicated or sharing(self.model)
        return None if found is not None and shared and (found.gradients or found.parameters) else found

    @property
    def _steps_alone(self) -> bool:
        """Whether the optimizer steps all that it finds at once, without a pager."""
        return self.keeper is None or self.keeper.pager is None

    @property
    def _in_step(self) -> bool:
        """Whether such an optimizer has called a closure: what it will step afterwards must stay."""
        return self._closures > 0 and self._steps_alone

    def after_step(self, *_: object) -> None:
        """What could not be paged in the midst of a step can be now."""
        if self._steps_alone:
            self._give_way(self._short)

    def _give_way(self, short: int) -> None:
        self._short = 0
        before, now = self._residence, self._tighter(short)
        if now is not None:
            self.page(now)
            if now.kinds != before.kinds:
                self.session.planning.shapes.forget_all()

    def before_step(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The passes are over; those of a closure are to come, and can be tried again."""
        self.end()
        optimizer, *given = args
        if given and given[0] is not None:
            return (optimizer, self.tried(given[0]), *given[1:]), kwargs
        if kwargs.get("closure") is not None:
            return args, kwargs | {"closure": self.tried(kwargs["closure"])}
        return None

    def tried(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure that starts again, with more room, if its backward pass runs out of memory."""

        def several_times() -> Any:
            state = _State(self.model)
            for attempt in range(TRIES):
                self._closures += 1
                try:
                    result = closure()
                    self.end()
                    return result
                except torch.OutOfMemoryError:
                    self.session.end(failed=True)
                    together = self._replicated or _meets_others(self.model)
                    if attempt == TRIES - 1 or self._must_not_repeat(together):
                        raise
                finally:
                    self._closures -= 1
                self._more_room(state)
                self.model.zero_grad(set_to_none=True)  # some were made
            raise AssertionError

        return several_times

    def _more_room(self, state: _State, short: int = 0) -> None:
        self.session.tighten()
        if self.keeper is not None and self.keeper.pager is not None:
            self.keeper.pager.let_go()
        smaller = self._residence.smaller()
        if short > 0 and self._in_step:
            self._short = short
            self.session.planning.shapes.forget_all()  # this pass does what it can without a plan
        elif short > 0:
            self._give_way(short)
        elif smaller is not None:
            self.page(smaller)
        if self.keeper is not None:
            self.keeper.settle()
        state.restore()

    def page(self, residence: Residence) -> None:
        """Keep on the host what is to live there."""
        if not any(residence.kinds):
            return
        keeper = self.keeper = self.keeper or Keeper(self.session, residence)
        keeper.residence = residence
        if self._optimizer is not None and keeper.pager is None:
            pager = Pager(self._optimizer, keeper, spare=int(SPARE * self.session.limit))
            self._page_state(self._optimizer, pager)
            pager.loaded()  # what it has already
        if residence.gradients and keeper.gradients is None:
            GradientPages(self.model, keeper)
        if residence.parameters and keeper.parameters is None:
            ParameterPages(self.model, keeper)
            self.model.state_dict = _Saved(self.model)  # type: ignore[method-assign]
        self._residence = residence

    def _page_state(self, optimizer: torch.optim.Optimizer, pager: Pager) -> None:
        optimizer.step = self._stepper(pager)  # type: ignore[method-assign]
        self._calls = 0
        optimizer.register_state_dict_post_hook(lambda _, state: pager.saved(state))
        optimizer.register_load_state_dict_post_hook(lambda _: pager.loaded())
        for module, _ in owners(self.model):
            around_forward(module, _Call(self._on_module))
        parameters: list[Any] = list(self.model.parameters())
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(_Call(self._on_gradient))

    def _stepper(self, pager: Pager) -> Callable[..., Any]:
        def stepped(closure: Callable[[], Any] | None = None) -> Any:
            self.end()
            self._last_calls, self._calls = self._calls, 0
            result = pager.step(None if closure is None else self.tried(closure))
            self._share(pager)
            return result

        # Schedulers take a method apart and call its function themselves.
        stepped.__func__ = lambda _, closure=None: stepped(closure)  # type: ignore[attr-defined]
        if hasattr(pager.original, "_wrapped_by_lr_sched"):  # or it warns that its own was replaced
            stepped._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        return stepped

    def _share(self, pager: Pager) -> None:
        """How much room state should have is known when a step was seen whole, and better when it was measured."""
        self._steps += 1
        if self._steps in SHARED and pager.lazy and self._last_calls:
            self.session.planning.share(pager, self._last_calls)

    def _on_module(self) -> None:
        """Memory of state that has left is given back as the forward pass needs it."""
        if self.keeper is not None and self.keeper.pager is not None and torch.is_grad_enabled():
            if self.session.brings:
                self.keeper.pager.bring_early()
            else:
                self.keeper.pager.make_room()

    @property
    def _left(self) -> int:
        """Passes after this one before the optimizer's step, if it has as many as the one before."""
        return self._last_calls - self._calls

    def _on_gradient(self) -> None:
        """Before a step, in the last backward passes, state comes in where there is room; before that it leaves."""
        pager = None if self.keeper is None else self.keeper.pager
        if pager is None:
            return
        if self._left == 0 or self.session.brings:
            pager.bring_early()
        else:
            pager.make_room()


class _Forward(Bound):
    """What a model's `forward` becomes; a copy of the model has its own again."""

    def __init__(self, wrapped: Wrapped) -> None:
        self.wrapped = wrapped

    @property
    def original(self) -> Callable[..., Any]:
        return self.wrapped.original

    @_disable_dynamo  # what is compiled inside stays so
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.forward(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _own("forward", memo[id(self.wrapped.model)])


def _own(name: str, model: nn.Module) -> Callable[..., Any]:
    return partial(getattr(type(model), name), model)


class _Call(Bound):
    """A hook that does not keep its model alive, and is nothing in a copy of it."""

    def __init__(self, method: Callable[[], None]) -> None:
        self._method = WeakMethod(method)

    @_disable_dynamo
    def __call__(self, *_: object) -> None:
        method = self._method()
        if method is not None:
            method()


class _Saved(Bound):
    """`state_dict` of a model whose parameters are paged: copies in host memory of those that live there."""

    def __init__(self, model: nn.Module) -> None:
        self._model = ref(model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = self._model()
        assert model is not None
        with saved_from_host():
            return type(model).state_dict(model, *args, **kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        model = self._model()
        return _own("state_dict", memo[id(model)])


class _State:
    """What a forward pass changes, so that it can be tried again: random numbers and buffers."""

    def __init__(self, model: nn.Module) -> None:
        self._random = torch.get_rng_state()
        self._device = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        self._buffers = [
            (buffer, buffer.detach().clone()) for buffer in model.buffers() if buffer.numel() < 1 << 20
        ]

    def restore(self) -> None:
        torch.set_rng_state(self._random)
        if self._device is not None:
            torch.cuda.set_rng_state(self._device)
        with torch.no_grad():
            for buffer, before in self._buffers:
                buffer.copy_(before)
