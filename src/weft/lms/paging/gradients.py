"""Pages of gradients: they leave for the host as the backward pass makes them.

A gradient that is there already comes back before the next pass adds to it. For whatever touches gradients in between,
such as `clip_grad_norm_`, they come one after the other, and for the optimizer's step with their parameters.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from weakref import ref

import torch
from torch import nn

from weft.lms.device.storages import ALONE, use_count
from weft.lms.device.torch_private import outside_of_compiler, without_torch_function
from weft.lms.paging.page import Page
from weft.lms.paging.traffic import PageTraffic


class GradientPages:
    """The pages of one model's gradients."""

    def __init__(self, model: nn.Module, traffic: PageTraffic) -> None:
        self.traffic, self.engine = traffic, traffic.engine
        self.smallest = traffic.tuning.smallest_page_bytes
        self.pages: dict[int, Page] = {}  # by the parameter's id
        self.largest = traffic.usage.residence.sizes.largest  # bytes of the largest parameter
        self._parameters: dict[int, Any] = {}  # by id
        self._leaving: deque[Page] = deque()
        self._next: dict[int, int] = {}  # the parameter whose gradient came after another's, by ids
        self._last = 0
        traffic.usage.pages_gradients = True
        traffic.gradient_page = self.page_of
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.nbytes > self.smallest:
                self._parameters[id(parameter)] = parameter
                watched: Any = parameter
                watched.register_hook(_BeforeGradient(self, id(parameter)))
                watched.register_post_accumulate_grad_hook(_AfterGradient(self))
                self._adopt(parameter)

    def _adopt(self, parameter: torch.Tensor) -> None:
        """Page a gradient that was there before."""
        gradient = _gradient(parameter)
        page = None if gradient is None else self._new(parameter, gradient)
        del gradient  # or this frame would hold it
        if page is not None:
            page.leave()
            page.hide()

    def page_of(self, parameter: torch.Tensor) -> Page | None:
        """Return the page of the gradient that a parameter has now."""
        page = self.pages.get(id(parameter))
        if page is not None and _gradient(parameter) is not page.tensor:
            page.forget()  # somebody put another gradient there, or none
            del self.pages[id(parameter)]
            return None
        return page

    def before(self, key: int) -> None:
        """Bring a gradient that is about to be added to, and start to bring the one that followed it last time."""
        page = self.page_of(self._parameters[key])
        if page is None:
            return
        after = self._next.get(key)
        coming = None if after is None else self.page_of(self._parameters[after])
        with self.engine.moved_by_others():
            self.traffic.bring(page)
            page.users = 1
            if coming is not None:
                self.traffic.bring(coming)
        page.ready()
        page.show()

    def after(self, parameter: torch.Tensor) -> None:
        """Send a gradient that is done to the host; its memory is given back a little later, when the copy is over."""
        self._next[self._last], self._last = id(parameter), id(parameter)
        gradient = _gradient(parameter)
        page = self.page_of(parameter)
        with self.engine.moved_by_others():
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
        """Make a page of a gradient, or of a copy that has its memory to itself; None if it cannot be paged."""
        if type(gradient) is not torch.Tensor or gradient.layout != torch.strided or gradient.requires_grad:
            return None
        if gradient.nbytes <= self.smallest:
            return None
        shared = gradient.untyped_storage().nbytes() != gradient.nbytes or use_count(gradient) > ALONE
        if shared:  # with another gradient, or with whoever made it
            gradient = gradient.clone()
            with without_torch_function():
                parameter.grad = gradient
        page = Page(gradient, self.traffic.transfer, self.traffic.callbacks, "gradient")
        self.pages[id(parameter)] = page
        return page

    def settle(self) -> None:
        """Let all gradients leave, and forget the pages of those that were replaced or dropped."""
        self._leaving.clear()
        for key in tuple(self.pages):
            page = self.page_of(self._parameters[key])
            if page is not None:
                page.users = 0
                page.leave()
                page.hide()


def _gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    with without_torch_function():
        return parameter.grad


class _BeforeGradient:
    """A hook that autograd calls with a gradient that is about to be added."""

    def __init__(self, owner: GradientPages, key: int) -> None:
        self._owner, self._key = ref(owner), key

    @outside_of_compiler  # type: ignore[untyped-decorator]
    def __call__(self, _: torch.Tensor) -> None:
        owner = self._owner()
        if owner is not None:
            owner.before(self._key)


class _AfterGradient:
    """A hook that autograd calls with a parameter whose gradient is done."""

    def __init__(self, owner: GradientPages) -> None:
        self._owner = ref(owner)

    @outside_of_compiler  # type: ignore[untyped-decorator]
    def __call__(self, parameter: torch.Tensor) -> None:
        owner = self._owner()
        if owner is not None:
            owner.after(parameter)
