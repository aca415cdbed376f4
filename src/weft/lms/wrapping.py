"""A model and its optimizer under a budget: every step is watched, and optimizer state pages to the host if it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from weft.errors import UsageError
from weft.lms.api import session_for
from weft.lms.modules import name_modules
from weft.lms.paging import Pager
from weft.lms.session import Session
from weft.lms.transfer import Transfer

M = TypeVar("M", bound=nn.Module)
ROOM = 0.25  # of the budget should be left for activations, or state is paged
SPARE = 0.06  # of the budget is kept free for whatever a pass wants next, while state is leaving
TRIES = 4


def wrap(
    model: M,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    limit: str | int | float = "auto",
    host: str | int | float | None = None,
    page: Literal["auto", "always", "never"] = "auto",
    transfer: Transfer | None = None,
) -> tuple[M, torch.optim.Optimizer | None]:
    """Put a model, and its optimizer, under a budget; gives both back, changed in place.

    A forward pass begins a step; one that runs out of memory is tried again with more room. Optimizer state lives on
    the host if it would leave too little room for activations (`page="auto"`), or always, or never.
    """
    if page not in ("auto", "always", "never"):
        raise UsageError(f"page must be 'auto', 'always' or 'never', got {page!r}; leave it out for 'auto'")
    session = session_for(limit, host, transfer)
    name_modules(model)
    wrapped = Wrapped(model, session)
    if optimizer is not None and pages_state(model, session.limit, page):
        wrapped.page(optimizer)
    if optimizer is not None:
        optimizer.register_step_pre_hook(wrapped.before_step)
    return model, optimizer


def pages_state(model: nn.Module, limit: int, page: str) -> bool:
    """Decide: parameters, gradients and two numbers of state for each, and what is left of the budget."""
    size = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
    fixed = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    return page == "always" or (page == "auto" and fixed + 3 * size > (1 - ROOM) * limit)


class Wrapped:
    """What happens around a model's forward pass."""

    def __init__(self, model: nn.Module, session: Session) -> None:
        self.model, self.session = model, session
        self.pager: Pager | None = None
        self._forward = model.forward
        self._calls = self._last_calls = 0  # forward passes since the optimizer's step, and before it
        model.forward = self.forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._forward(*args, **kwargs)
        self._calls += 1
        if self.pager is not None and self.session.steps < 4:
            self.pager.let_go()  # steps that are recorded should see how it will be
        state = _State(self.model)
        for attempt in range(TRIES):
            self.session.begin()
            try:
                return self._forward(*args, **kwargs)
            except torch.OutOfMemoryError:
                self.session.end(failed=True)
                if attempt == TRIES - 1:
                    raise
            self._more_room(state)  # not in the handler: the exception held the frames, and they the memory
        raise AssertionError

    def before_step(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The passes are over; those of a closure are to come, and can be tried again."""
        self.session.end()
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
                try:
                    result = closure()
                    self.session.end()
                    return result
                except torch.OutOfMemoryError:
                    self.session.end(failed=True)
                    if attempt == TRIES - 1:
                        raise
                self._more_room(state)
                self.model.zero_grad(set_to_none=True)  # some were made
            raise AssertionError

        return several_times

    def _more_room(self, state: _State) -> None:
        self.session.tighten()
        if self.pager is not None:
            self.pager.let_go()
        state.restore()

    def page(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep the optimizer's state on the host."""
        session = self.session

        def room() -> int:
            return session.budget - session.transfer.allocated()

        pager = self.pager = Pager(optimizer, session.transfer, room, spare=int(SPARE * session.limit))
        session.ignored = lambda: pager.leaving_bytes
        optimizer.step = self._stepper(pager)  # type: ignore[method-assign]
        optimizer.register_state_dict_pre_hook(lambda *_: pager.everything())
        for module in self.model.modules():
            if next(module.parameters(recurse=False), None) is not None:
                module.register_forward_pre_hook(self._on_module)
        parameters: list[Any] = list(self.model.parameters())
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def _stepper(self, pager: Pager) -> Callable[..., Any]:
        def stepped(closure: Callable[[], Any] | None = None) -> Any:
            self.session.end()
            self._last_calls, self._calls = self._calls, 0
            return pager.step(None if closure is None else self.tried(closure))

        # Schedulers take a method apart and call its function themselves.
        stepped.__func__ = lambda _, closure=None: stepped(closure)  # type: ignore[attr-defined]
        return stepped

    def _on_module(self, *_: object) -> None:
        """Memory of state that has left is given back as the forward pass needs it."""
        if self.pager is not None and torch.is_grad_enabled():
            self.pager.make_room()

    def _on_gradient(self, _: torch.Tensor) -> None:
        """In the last backward pass before a step, state comes in where there is room; before that it leaves."""
        if self.pager is None:
            return
        if self._calls == self._last_calls:
            self.pager.bring_early()
        else:
            self.pager.make_room()


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
