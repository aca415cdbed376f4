"""Tensors whose bytes come and go while the tensors stay: parameters, gradients, optimizer state.

The storage is emptied and filled again, so that identity, views and version counters never change. Between its uses a
tensor has a class of its own, and whoever touches it meanwhile gets its bytes: torch asks that class first. A storage
that anybody else holds, a running node of autograd among them, is never emptied.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch
from torch import nn

from weft.errors import UsageError
from weft.lms.activations.saved import Kept
from weft.lms.device.slabs import Block
from weft.lms.device.storages import ALONE, flat_bytes, use_count
from weft.lms.device.transfer import Transfer
from weft.lms.paging.functions import LOOKS, writes_unseen

SMALL = 1 << 13  # bytes; what is smaller, such as biases and step counts, stays
_tensors: WeakValueDictionary[int, Page] = WeakValueDictionary()
_storages: WeakValueDictionary[int, Page] = WeakValueDictionary()
MINE = 2  # references to a tensor that only its page holds: that one, and the question
_saving: list[bool] = []
plain: Any = torch._C.DisableTorchFunctionSubclass  # tensors are looked at without asking their class


class Desk(Protocol):
    """Who is told of what comes and goes."""

    def came(self, page: Page) -> None: ...

    def went(self, page: Page) -> None: ...

    def want(self, pages: list[Page], what: str) -> None:
        """Bring pages that somebody touches, and make room for them."""
        ...


class Page:
    """One tensor, wherever its bytes are; `whole` is what it is this process's part of."""

    def __init__(
        self, tensor: torch.Tensor, transfer: Transfer, desk: Desk, kind: str, whole: Any = None
    ) -> None:
        self.tensor, self.transfer, self.desk, self.kind = tensor, transfer, desk, kind
        self.whole = whole
        self._ordinary: Any = type(whole)
        self.block: Block | None = None
        self.ticket: Any = None  # of the copy under way
        self.users = 0  # that need it where it is
        self.aliases = 0  # saved for the backward pass, which come back here for their bytes
        self._look()
        _tensors[id(tensor)] = self
        if whole is not None:
            _tensors[id(whole)] = self

    def _look(self) -> None:
        with plain():
            self.alias = self.tensor.detach()  # shares the version counter
            storage = self.alias.untyped_storage()
        self.bytes, self.key = storage.nbytes(), storage._cdata
        self.here, self.dirty, self.version = True, True, -1
        self.stream = self.transfer.stream()  # on which the memory was allocated, as far as one can tell
        _storages[self.key] = self
        self.desk.came(self)

    def __del__(self) -> None:
        if self.ticket is not None:
            self.transfer.wait(self.ticket)
        if self.block is not None:
            self.transfer.give_back_later(self.block)

    @property
    def stale(self) -> bool:
        """Whether the host has no copy, or an old one."""
        return self.block is None or self.dirty or self.alias._version != self.version

    @property
    def loose(self) -> bool:
        """Whether nobody needs its bytes where they are."""
        return self.here and self.users == 0 and not self._held()

    def _held(self) -> bool:
        return use_count(self.alias) > ALONE + 1 + self.aliases or self._is_saved()

    def _is_saved(self) -> bool:
        """By autograd itself, in a pass without hooks: it keeps a leaf as it is, which the storage does not show."""
        if self.kind != "parameter":
            return False
        with plain():
            tensor: Any = self.tensor
            # One is Python's, and one is there where gradients gather.
            return bool(tensor._use_count() > 1 + tensor.requires_grad)

    def bring(self) -> None:
        """Start the copy in."""
        if not self.here:
            assert self.block is not None
            self.alias.untyped_storage().resize_(self.bytes)
            self.stream = self.transfer.stream()
            self.ticket = self.transfer.copy_in(self.block, flat_bytes(self.alias))
            self.here = True
            self.desk.came(self)

    def ready(self) -> None:
        """Let the compute wait for it."""
        if self.ticket is not None:
            self.transfer.wait(self.ticket)
            self.ticket = None

    def send(self) -> None:
        """Start the copy out, if there is anything to copy; the memory is there until `leave`."""
        if self.here and self.stale:
            self.ready()
            if self.block is None:
                self.block = self.transfer.host(self.bytes)
            self.ticket = self.transfer.copy_out(flat_bytes(self.alias), self.block)
            self.version = self.alias._version
            self.dirty = self._held()  # by somebody who may write without being seen

    def leave(self) -> None:
        """Give the device's memory back, if nobody holds it."""
        self.check()
        if self.loose:
            self.send()
            self.ready()
            if self.stream != self.transfer.stream():  # which may hand the memory out at once
                self.transfer.wait(self.transfer.mark(), self.stream)
            self.alias.untyped_storage().resize_(0)
            self.here = False
            self.desk.went(self)

    def check(self) -> None:
        """Somebody may have given the tensor other memory: `tensor.data = ...`."""
        with plain():
            if self.tensor.untyped_storage()._cdata == self.key:
                return
        self.ready()
        if self.here:
            self.desk.went(self)
        if self.block is not None:
            self.transfer.give_back(self.block)
            self.block = None
        _storages.pop(self.key, None)  # which another storage may get
        self.aliases = 0
        self._look()
        if self.alias.device != self.transfer.device or self.alias.nbytes != self.bytes:
            self.users += 1  # not ours to move any more

    def forget(self) -> None:
        """It is nobody's page any more; whoever else holds the tensor has an ordinary one."""
        if self._kept():
            self.desk.want([self], "a tensor that somebody kept")
            self.show()
            self.users = 1  # it must not leave any more
        if self.here:
            self.desk.went(self)

    def _kept(self) -> bool:
        if self.whole is None:
            return sys.getrefcount(self.tensor) > MINE
        return sys.getrefcount(self.whole) > MINE or sys.getrefcount(self.tensor) > MINE + 1  # which it holds

    def show(self) -> None:
        """An ordinary tensor, for who knows that it is here."""
        self.tensor.__class__ = nn.Parameter if isinstance(self.tensor, nn.Parameter) else torch.Tensor
        if self.whole is not None:
            self.whole.__class__ = self._ordinary

    def hide(self) -> None:
        """A tensor that must be asked for."""
        away: Any = AwayParameter if isinstance(self.tensor, nn.Parameter) else AwayTensor
        self.tensor.__class__ = away
        if self.whole is not None:
            self.whole.__class__ = _away(self._ordinary)

    def host_copy(self) -> torch.Tensor:
        """Its bytes now, in ordinary host memory."""
        self.check()
        self.send()
        self.ready()
        assert self.block is not None
        self.transfer.settle()
        copied, like = self.block.tensor[: self.bytes].clone(), self.alias
        part = torch.empty(0, dtype=like.dtype).set_(
            copied.untyped_storage(), like.storage_offset(), like.size(), like.stride()
        )
        return part if self.whole is None else self._ordinary(part, self.whole._spec, requires_grad=False)


@contextmanager
def saved_from_host() -> Iterator[None]:
    """Around `state_dict`: what it takes of pages are copies in host memory, and none of them comes to the device."""
    _saving.append(True)
    try:
        yield
    finally:
        _saving.pop()


class KeptPage(Kept):
    """A parameter, or a view of one, that autograd saved."""

    __slots__ = ("key", "page")

    def __init__(self, tensor: torch.Tensor, page: Page) -> None:
        with plain():
            super().__init__(tensor)
        self.page, self.key = page, page.key
        page.aliases += 1

    def __del__(self) -> None:
        if self.key == self.page.key:  # or the page has other memory now
            self.page.aliases -= 1

    def value(self) -> torch.Tensor:
        self.page.desk.want([self.page], "the backward pass")
        return super().value().detach()  # whoever holds it is seen to


class _Away:
    """Asked by torch before anything is done with a tensor of a class that derives from it."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with plain():
            if func in LOOKS:
                return func(*args, **kwargs)
            pages = list(_pages_in((*args, *kwargs.values())))
            if _saving and func is torch.Tensor.detach and pages:
                return pages[0].host_copy()
            if pages:
                pages[0].desk.want(pages, getattr(func, "__name__", str(func)))
            for page in pages:
                page.dirty = page.dirty or writes_unseen(func)
                page.users += 1
            try:
                return func(*args, **kwargs)
            finally:
                for page in pages:
                    page.users -= 1

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        copied = memo[id(self)] = self.detach().clone()
        return copied


class AwayParameter(_Away, nn.Parameter):
    """A parameter whose bytes may be on the host."""

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Parameter:
        copied = nn.Parameter(self.detach().clone(), self.requires_grad)
        memo[id(self)] = copied
        return copied


class AwayTensor(_Away, torch.Tensor):
    """A gradient, or optimizer state, whose bytes may be on the host."""


@cache
def _away(kind: type) -> Any:
    """Of a tensor that is spread over several processes. Its own class asks nobody before it takes its part."""
    return type(f"Away{kind.__name__}", (_Away, kind), {})


def held(tensor: Any) -> torch.Tensor:
    """What of a tensor is in this process: its part of one that is spread over several."""
    part: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def page_of(tensor: torch.Tensor) -> Page | None:
    """The page that owns a tensor's storage."""
    if not _storages:
        return None
    with plain():
        if tensor.layout != torch.strided:
            return None
        return _storages.get(tensor.untyped_storage()._cdata)


def _pages_in(values: Iterable[Any]) -> Iterator[Page]:
    for value in values:
        if isinstance(value, _Away):
            page, part = _tensors.get(id(value)), held(value)
            if page is not None:
                yield page
            elif part.numel() and not part.untyped_storage().nbytes():
                raise UsageError(
                    "a parameter that lives on the host must be used while its model is there, got one whose model is "
                    "gone; keep the model, or a clone of the parameter"
                )
        elif isinstance(value, (list, tuple)):
            yield from _pages_in(value)
