"""`lms.wrap`: a model and its optimizer under a budget. Each forward pass begins a step, and what must be paged is.

A pass that runs out of memory is run again with more room; where no plan keeps the budget, more of the model is paged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar
from weakref import WeakMethod, ref

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from weft.errors import BudgetError, UsageError
from weft.lms.activations.session import BudgetSession
from weft.lms.api import session_for
from weft.lms.device.torch_private import outside_of_compiler, replicates_now
from weft.lms.device.transfer import Transfer
from weft.lms.paging.hooks import BoundHook, around_forward, replace_call
from weft.lms.paging.model import ModelPages
from weft.lms.paging.optimizer import StatePages
from weft.lms.paging.page import saved_from_host
from weft.lms.paging.parameters import model_bytes, parameter_owners
from weft.lms.planning.residence import Paging, Residence, decide, tighter
from weft.lms.planning.split import OptimizerStep
from weft.lms.tuning import DEFAULTS

M = TypeVar("M", bound=nn.Module)
# What may be paged later that is not at first: every kind, optimizer state alone, or nothing but a smaller window.
LaterPaging = Literal["all", "state", "windows"]


def wrap(
    model: M,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    limit: str | int | float = "auto",
    host: str | int | float | None = None,
    page: Paging = "auto",
    transfer: Transfer | None = None,
) -> tuple[M, torch.optim.Optimizer | None]:
    """Put a model, and its optimizer, under a budget; return both, changed in place.

    A forward pass begins a step; one that runs out of memory is run again with more room. With `page="auto"` optimizer
    state, then gradients, then parameters live on the host if they leave too little room for activations: a guess at
    first, and more of them where no plan keeps the budget otherwise. With "always" all of them do, with "never" none.
    """
    session = session_for(limit, host, transfer)
    tuning = session.tuning
    sharded = shared_by(model)
    sizes = model_bytes(model, tuning.state_factor if optimizer is not None else 0.0, tuning)
    residence = decide(sizes, session.limit, page, tuning)
    if sharded and (residence.parameters or residence.gradients):
        if page == "always":
            raise UsageError(
                f"parameters and gradients must belong to the model alone to be paged, got {sharded}; write "
                "page='auto', which pages optimizer state, or page='never'"
            )
        residence = Residence(sizes=residence.sizes, state=residence.state, tuning=tuning)
    # Collectives before a forward pass must not be repeated by one rank that runs its own pass again.
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    session.names.add(inner)
    later: LaterPaging = "windows" if page != "auto" else "state" if sharded else "all"
    unpaged = Residence(sizes=residence.sizes, tuning=tuning)
    wrapped = WrappedModel(inner, session, optimizer, unpaged, later)
    wrapped.page(residence)
    if optimizer is not None:
        optimizer.register_step_pre_hook(wrapped.before_step)
        optimizer.register_step_post_hook(wrapped.after_step)
    return model, optimizer


def shared_by(model: nn.Module) -> str:
    """Return the name of what shares a model's parameters with other processes; empty if nothing does."""
    if any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        return "DistributedDataParallel"
    return "DTensor" if any(hasattr(parameter, "to_local") for parameter in model.parameters()) else ""


def _meets_others(model: nn.Module) -> bool:
    """Return whether processes wait for each other in a forward pass: then none can repeat it by itself."""
    return bool(shared_by(model)) or any(isinstance(module, nn.SyncBatchNorm) for module in model.modules())


class WrappedModel:
    """A model under a budget: the steps around its forward passes, and its pages."""

    def __init__(
        self,
        model: nn.Module,
        session: BudgetSession,
        optimizer: torch.optim.Optimizer | None,
        residence: Residence,
        later: LaterPaging,
    ) -> None:
        self.model, self.session, self.tuning = model, session, session.tuning
        self.pages: ModelPages | None = None
        self._optimizer, self._residence, self._later = optimizer, residence, later
        self._closures = 0  # of the optimizer that run now
        self._short = 0  # bytes that the last plan was over the budget
        self._passes = self._last_passes = 0  # forward passes since the optimizer's step, and before that
        self._steps = 0  # of the optimizer
        self._replicated = False  # inside of DistributedDataParallel
        self._parameters = list(model.parameters())  # going through a model's modules takes long
        self.original: Callable[..., Any] = model.forward
        if model._compiled_call_impl is None:
            model.forward = _Forward(self)
        else:  # with `forward` inside
            self.original = model._compiled_call_impl
            replace_call(model, _Forward(self))

    @property
    def state_pages(self) -> StatePages | None:
        return None if self.pages is None else self.pages.state

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run a forward pass as a step under the budget, again with more room if memory runs out."""
        self._begin()
        if not torch.is_grad_enabled():
            if self.state_pages is not None:
                self.state_pages.let_go()  # nobody knows what this pass will take
            return self.original(*args, **kwargs)
        self._passes += 1
        before = _PassState(self.model)
        attempt = 0
        while True:
            self.session.begin(self._makes_gradients(), self._passes_left)
            try:
                result = self.original(*args, **kwargs)
                self._after_forward()
                return result
            except torch.OutOfMemoryError:
                self.session.end(failed=True)
                attempt, short = attempt + 1, 0
                if attempt == self.tuning.forward_tries or self._must_not_repeat(_meets_others(self.model)):
                    raise
            except BudgetError as error:
                self.session.end(failed=True)
                attempt, short = attempt + self._in_step, error.short
                if attempt == self.tuning.forward_tries or self._tighter(short) is None:
                    raise
                if self._must_not_repeat(_meets_others(self.model)):
                    raise
            self._more_room(
                before, short
            )  # outside of the handlers: the exception holds frames and their memory

    def _makes_gradients(self) -> bool:
        """Return whether a pass makes gradients; else it adds to those that are there from its beginning."""
        return all(parameter.grad is None for parameter in self._parameters)

    def _must_not_repeat(self, together: bool) -> bool:
        """Return `together`: whether other processes take part in a pass; then the next step leaves more room."""
        if together:
            self.session.leave_more_room()
        return together

    def _after_forward(self) -> None:
        """Let state leave for all that the loss and the backward pass will take: these ask for no room."""
        state = self.state_pages
        if state is not None:
            state.shape = self.session.step.usual_shape
            state.make_room()

    def _begin(self) -> None:
        """End the step before, page more if no plan kept the budget, and bring the pages into order."""
        self._replicated = self._replicated or replicates_now()
        if torch.is_grad_enabled():
            self.end()
            if not self._in_step:
                self._give_way(self._short)
        if self.pages is None:
            return
        if self.pages.parameters is not None or self.pages.gradients is not None:
            self._check_alone()
        self.pages.settle()
        if self.state_pages is not None:
            self.state_pages.begin()
            if self.session.steps < self.tuning.settling_steps:
                self.state_pages.let_go()  # steps that are recorded should see the memory of later ones

    def _check_alone(self) -> None:
        """Raise if a model whose parameters or gradients are paged was shared with other processes after `wrap`."""
        shared = "DistributedDataParallel" if self._replicated else shared_by(self.model)
        if shared:
            raise UsageError(
                f"a model whose parameters or gradients are paged must not share them with other processes, got "
                f"{shared}; share it first and give the result to lms.wrap, which pages optimizer state alone then"
            )

    def end(self) -> None:
        """End the passes. If no plan keeps the budget, more is paged before the next pass."""
        try:
            self.session.end()
        except BudgetError as error:
            if self._tighter(error.short) is None:
                raise
            self._short = error.short  # later: the optimizer may be about to step what would be paged

    def _tighter(self, short: int) -> Residence | None:
        """Return a residence with `short` bytes more on the host; None where that would not help."""
        if short <= 0 or self._later == "windows":
            return self._residence.smaller() if short > 0 else None
        found = tighter(self._residence, self.session.limit, short)
        shared = self._later == "state" or self._replicated or shared_by(self.model)
        return None if found is not None and shared and (found.gradients or found.parameters) else found

    @property
    def _steps_alone(self) -> bool:
        """Whether the optimizer steps all parameters at once, since its state is not paged."""
        return self.state_pages is None

    @property
    def _in_step(self) -> bool:
        """Whether such an optimizer has called a closure: what it steps afterwards must stay on the device."""
        return self._closures > 0 and self._steps_alone

    def after_step(self, *_: object) -> None:
        """Page what could not be paged while the optimizer's step ran."""
        if self._steps_alone:
            self._give_way(self._short)

    def _give_way(self, short: int) -> None:
        """Page `short` bytes more, so that activations have room."""
        self._short = 0
        before, now = self._residence, self._tighter(short)
        if now is not None:
            self.page(now)
            if now.kinds != before.kinds:
                self.session.planning.shapes.forget_all()

    def before_step(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """End the passes before the optimizer's step; passes of its closure may be run again."""
        self.end()
        optimizer, *given = args
        if given and given[0] is not None:
            return (optimizer, self.repeatable(given[0]), *given[1:]), kwargs
        if kwargs.get("closure") is not None:
            return args, kwargs | {"closure": self.repeatable(kwargs["closure"])}
        return None

    def repeatable(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure that runs again, with more room, if its backward pass runs out of memory."""

        def several_times() -> Any:
            before = _PassState(self.model)
            for attempt in range(self.tuning.forward_tries):
                self._closures += 1
                try:
                    result = closure()
                    self.end()
                    return result
                except torch.OutOfMemoryError:
                    self.session.end(failed=True)
                    together = self._replicated or _meets_others(self.model)
                    if attempt == self.tuning.forward_tries - 1 or self._must_not_repeat(together):
                        raise
                finally:
                    self._closures -= 1
                self._more_room(before)
                self.model.zero_grad(set_to_none=True)  # the backward pass had made some
            raise AssertionError

        return several_times

    def _more_room(self, before: _PassState, short: int = 0) -> None:
        """Make more room, and restore the state before a pass, so that it can run again."""
        self.session.leave_more_room()
        if self.state_pages is not None:
            self.state_pages.let_go()
        smaller = self._residence.smaller()
        if short > 0 and self._in_step:
            self._short = short
            self.session.planning.shapes.forget_all()  # this pass runs without a plan
        elif short > 0:
            self._give_way(short)
        elif smaller is not None:
            self.page(smaller)
        if self.pages is not None:
            self.pages.settle()
        before.restore()

    def page(self, residence: Residence) -> None:
        """Page what is to live on the host, and is not paged yet."""
        if not any(residence.kinds):
            return
        pages = self.pages = self.pages or ModelPages(self.session.step, residence)
        pages.set_residence(residence)
        if self._optimizer is not None and pages.state is None:
            state = pages.page_state(self._optimizer)
            self._hook_optimizer(self._optimizer, state)
            state.loaded()  # what the optimizer has already
        if pages.page_gradients_and_parameters(self.model):
            self.model.state_dict = _StateDict(self.model)  # type: ignore[method-assign]
        self._residence = residence

    def _hook_optimizer(self, optimizer: torch.optim.Optimizer, state: StatePages) -> None:
        """Replace the optimizer's step, and call us where state may come and go: at modules and at gradients."""
        optimizer.step = self._stepper(state)  # type: ignore[method-assign]
        self._passes = 0
        optimizer.register_state_dict_post_hook(lambda _, found: state.saved(found))
        optimizer.register_load_state_dict_post_hook(lambda _: state.loaded())
        for module, _ in parameter_owners(self.model):
            around_forward(module, _WeakHook(self._on_module))
        parameters: list[Any] = list(self.model.parameters())
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(_WeakHook(self._on_gradient))

    def _stepper(self, state: StatePages) -> Callable[..., Any]:
        """Return the function that takes the place of the optimizer's `step`."""

        def stepped(closure: Callable[[], Any] | None = None) -> Any:
            self.end()
            self._last_passes, self._passes = self._passes, 0
            result = state.step(None if closure is None else self.repeatable(closure))
            self._share(state)
            return result

        # Schedulers take a method apart and call its function themselves.
        stepped.__func__ = lambda _, closure=None: stepped(closure)  # type: ignore[attr-defined]
        if hasattr(
            state.original, "_wrapped_by_lr_sched"
        ):  # or a scheduler warns that its function was replaced
            stepped._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        return stepped

    def _share(self, state: StatePages) -> None:
        """Split the budget between activations and state, after a step was seen whole and again after it was timed."""
        self._steps += 1
        shape = state.shape
        if shape is None or shape.guessed or not self._last_passes:
            return
        if self._steps in self.tuning.share_after_steps and state.lazy:
            gradients, passes = self._residence.sizes.gradients, self._last_passes
            step = OptimizerStep(
                passes=passes, state=state.bytes, gradients=gradients, seconds=state.seconds()
            )
            self.session.planning.share(state.traffic.usage, shape, step)

    def _on_module(self) -> None:
        """Before a module's forward pass: let state leave as the pass needs memory, or come if it leaves room."""
        if self.state_pages is not None and torch.is_grad_enabled():
            if self.session.step.brings_state:
                self.state_pages.bring_early()
            else:
                self.state_pages.make_room()

    @property
    def _passes_left(self) -> int:
        """Passes after this one before the optimizer's step, if that has as many as the one before."""
        return self._last_passes - self._passes

    def _on_gradient(self) -> None:
        """After a gradient: let state come in the last backward passes before the optimizer's step, else leave."""
        state = self.state_pages
        if state is None:
            return
        if self._passes_left == 0 or self.session.step.brings_state:
            state.bring_early()
        else:
            state.make_room()


class _Forward(BoundHook):
    """The `forward` of a wrapped model; a copy of the model has its own again."""

    def __init__(self, wrapped: WrappedModel) -> None:
        self.wrapped = wrapped

    @property
    def original(self) -> Callable[..., Any]:
        return self.wrapped.original

    @outside_of_compiler  # type: ignore[untyped-decorator]  # modules that are compiled inside stay so
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped.forward(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _own("forward", memo[id(self.wrapped.model)])


def _own(name: str, model: nn.Module) -> Callable[..., Any]:
    """Return a method of a model as its class defines it."""
    return partial(getattr(type(model), name), model)


class _WeakHook(BoundHook):
    """A hook that does not keep its model alive, and is nothing in a copy of it."""

    def __init__(self, method: Callable[[], None]) -> None:
        self._method = WeakMethod(method)

    @outside_of_compiler  # type: ignore[untyped-decorator]
    def __call__(self, *_: object) -> None:
        method = self._method()
        if method is not None:
            method()


class _StateDict(BoundHook):
    """The `state_dict` of a model whose parameters are paged: with copies of these in host memory."""

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


class _PassState:
    """The state that a forward pass changes, kept so that the pass can run again: random numbers and buffers."""

    def __init__(self, model: nn.Module, most: int = DEFAULTS.restored_buffer_elements) -> None:
        self._random = torch.get_rng_state()
        self._device = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        self._buffers = [
            (buffer, buffer.detach().clone()) for buffer in model.buffers() if buffer.numel() < most
        ]

    def restore(self) -> None:
        torch.set_rng_state(self._random)
        if self._device is not None:
            torch.cuda.set_rng_state(self._device)
        with torch.no_grad():
            for buffer, before in self._buffers:
                buffer.copy_(before)
