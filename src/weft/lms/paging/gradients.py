"""Gradients that live on the host: they leave as the backward pass makes them.

One that is there already comes back before the next pass adds to it. For whatever touches them in between, such as
`clip_grad_norm_`, they come one after the other, and for the optimizer's step with their parameters.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from weakref import ref

import torch
from torch import nn
from torch._compile import _disable_dynamo

from weft.lms.device.storages import ALONE, use_count
from weft.lms.paging.model import Keeper
from weft.lms.paging.page import SMALL, Page, plain


class GradientPages:
    """The gradients of one model."""

    def __init__(self, model: nn.Module, keeper: Keeper) -> None:
        self.keeper = keeper
        self.pages: dict[int, Page] = {}  # by the parameter's id
        self.largest = keeper.residence.sizes.largest
        self._parameters: dict[int, Any] = {}
        self._leaving: deque[Page] = deque()
        self._next: dict[int, int] = {}  # whose gradient came after whose, by ids
        self._last = 0
        keeper.gradients = self
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.nbytes > SMALL:
                self._parameters[id(parameter)] = parameter
                watch: Any = parameter
                watch.register_hook(_Before(self, id(parameter)))
                watch.register_post_accumulate_grad_hook(_After(self))
                self._adopt(parameter)

    def _adopt(self, parameter: torch.Tensor) -> None:
        """One that was there before."""
        gradient = _gradient(parameter)
        page = None if gradient is None else self._new(parameter, gradient)
        del gradient  # or somebody would hold it
        if page is not None:
            page.leave()
            page.hide()

    def page_of(self, parameter: torch.Tensor) -> Page | None:
        """The page of the gradient that a parameter has now."""
        page = self.pages.get(id(parameter))
        if page is not None and _gradient(parameter) is not page.tensor:
            page.forget()  # somebody put another one there, or none
            del self.pages[id(parameter)]
            return None
        return page

    def before(self, key: int) -> None:
        """To what is there more will be added."""
        page = self.page_of(self._parameters[key])
        if page is None:
            return
        after = self._next.get(key)
        coming = None if after is None else self.page_of(self._parameters[after])
        with self.keeper.session.engine.moved_by_others():
            self.keeper.bring(page)
            page.users = 1
            if coming is not None:
                self.keeper.bring(coming)
        page.ready()
        page.show()

    def after(self, parameter: torch.Tensor) -> None:
        """A gradient is done: it leaves."""
        self._next[self._last], self._last = id(parameter), id(parameter)
        gradient = _gradient(parameter)
        page = self.page_of(parameter)
        with self.keeper.session.engine.moved_by_others():
            if page is None and gradient is not None:
                page = self._new(parameter, gradient)
            if page is None:
                return
            page.users = 0
            page.send()
            page.hide()
            self._leaving.append(page)
            while sum(each.bytes for each in self._leaving) > self.largest:
                self._leaving.popleft().leave()

    def _new(self, parameter: torch.Tensor, gradient: torch.Tensor) -> Page | None:
        if type(gradient) is not torch.Tensor or gradient.layout != torch.strided or gradient.requires_grad:
            return None
        if gradient.nbytes <= SMALL:
            return None
        shared = gradient.untyped_storage().nbytes() != gradient.nbytes or use_count(gradient) > ALONE
        if shared:  # with another gradient, or with whoever made it
            gradient = gradient.clone()
            with plain():
                parameter.grad = gradient
        page = self.pages[id(parameter)] = Page(
            gradient, self.keeper.session.transfer, self.keeper, "gradient"
        )
        return page

    def settle(self) -> None:
        """All leave, and those that nobody wants any more are forgotten."""
        self._leaving.clear()
        for key in tuple(self.pages):
            page = self.page_of(self._parameters[key])
            if page is not None:
                page.users = 0
                page.leave()
                page.hide()


def _gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    with plain():
        return parameter.grad


class _Before:
    """Called with a gradient that is about to be added."""

    def __init__(self, owner: GradientPages, key: int) -> None:
        self._owner, self._key = ref(owner), key

    @_disable_dynamo
    def __call__(self, _: torch.Tensor) -> None:
        owner = self._owner()
        if owner is not None:
            owner.before(self._key)


class _After:
    """Called with a parameter whose gradient is done."""

    def __init__(self, owner: GradientPages) -> None:
        self._owner = ref(owner)

    @_disable_dynamo
    def __call__(self, parameter: torch.Tensor) -> None:
        owner = self._owner()
        if owner is not None:
            owner.after(parameter)
