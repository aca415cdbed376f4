"""A page: a parameter, gradient or optimizer state whose bytes come and go while the tensor itself stays.

The tensor's storage is emptied and filled again, so that its identity, its views and its version counter never change.
Between its uses the tensor has a class of its own (`AwayParameter`, `AwayTensor`): torch asks that class before it does
anything with the tensor, and the class has the bytes brought first. A storage that anybody else holds, such as a node
of autograd that runs, is never emptied.

    Page -> PageTraffic (what is on the device) -> ParameterPages, GradientPages, StatePages -> ModelPages
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal
from weakref import WeakValueDictionary

import torch
from torch import nn

from weft.errors import UsageError
from weft.lms.device.host_memory import Block
from weft.lms.device.storages import ALONE, flat_bytes, use_count
from weft.lms.device.torch_private import local_part, tensor_use_count, without_torch_function
from weft.lms.device.transfer import Transfer
from weft.lms.paging.functions import READS_NO_BYTE, writes_unseen

# What sys.getrefcount says of a tensor that its page alone holds: the page's reference, and that of the call itself.
PAGE_REFERENCES = 2
PageKind = Literal["parameter", "gradient", "state"]


class PageTable:
    """All pages of this process, by the tensors and by the storages that they own."""

    __slots__ = ("saving", "storages", "tensors")

    def __init__(self) -> None:
        self.tensors: WeakValueDictionary[int, Page] = WeakValueDictionary()  # by id
        self.storages: WeakValueDictionary[int, Page] = (
            WeakValueDictionary()
        )  # by the address of the C++ object
        self.saving = 0  # calls of `state_dict` that run: these read pages without bringing them


# One for the process: torch calls `__torch_function__` with a tensor and nothing else, so a page has to be found by it.
PAGES = PageTable()


@dataclass(frozen=True)
class PageCallbacks:
    """Calls that a page makes to whoever keeps count of the device's memory; see `PageTraffic`."""

    came: Callable[[Page], None]  # its bytes are on the device now, or will be when the copy ends
    went: Callable[[Page], None]  # its device memory was given back
    want: Callable[
        [list[Page], str], None
    ]  # bring these pages, for what the text names, and make room for them


class Page:
    """One tensor whose bytes are on the device or on the host; `whole` is the DTensor of which it is the local part."""

    def __init__(
        self,
        tensor: torch.Tensor,
        transfer: Transfer,
        callbacks: PageCallbacks,
        kind: PageKind,
        whole: Any = None,
    ) -> None:
        self.tensor, self.transfer, self.callbacks, self.kind = tensor, transfer, callbacks, kind
        self.whole = whole
        self._ordinary: Any = type(whole)
        self.block: Block | None = None  # its place in host memory
        self.ticket: Any = None  # of the copy under way
        self.users = 0  # uses under way that need the bytes on the device
        self.aliases = 0  # saved for the backward pass (`KeptPage`): these ask this page for the bytes
        self._take_storage()
        PAGES.tensors[id(tensor)] = self
        if whole is not None:
            PAGES.tensors[id(whole)] = self

    def _take_storage(self) -> None:
        """Own the storage that the tensor has now."""
        with without_torch_function():
            self.alias = self.tensor.detach()  # shares the version counter
            storage = self.alias.untyped_storage()
        self.bytes, self.key = storage.nbytes(), storage._cdata
        self.here, self.dirty, self.version = True, True, -1
        self.stream = self.transfer.stream()  # on which the memory was allocated, as far as one can tell
        PAGES.storages[self.key] = self
        self.callbacks.came(self)

    def __del__(self) -> None:
        if self.ticket is not None:
            self.transfer.wait(self.ticket)
        if self.block is not None:
            self.transfer.give_back_later(self.block)

    @property
    def stale(self) -> bool:
        """Whether the host has no copy of the bytes, or an old one."""
        return self.block is None or self.dirty or self.alias._version != self.version

    @property
    def loose(self) -> bool:
        """Whether the bytes are on the device and nobody needs them there."""
        return self.here and self.users == 0 and not self._held()

    def _held(self) -> bool:
        return use_count(self.alias) > ALONE + 1 + self.aliases or self._is_saved()

    def _is_saved(self) -> bool:
        """Whether autograd itself saved a parameter, in a pass without hooks: it keeps the leaf, not the storage."""
        if self.kind != "parameter":
            return False
        with without_torch_function():
            # One reference is Python's, and one is that of the node where gradients gather.
            return tensor_use_count(self.tensor) > 1 + self.tensor.requires_grad

    def bring(self) -> None:
        """Start the copy to the device."""
        if not self.here:
            assert self.block is not None
            self.alias.untyped_storage().resize_(self.bytes)
            self.stream = self.transfer.stream()
            self.ticket = self.transfer.copy_in(self.block, flat_bytes(self.alias))
            self.here = True
            self.callbacks.came(self)

    def ready(self) -> None:
        """Let the compute wait for the copy under way."""
        if self.ticket is not None:
            self.transfer.wait(self.ticket)
            self.ticket = None

    def send(self) -> None:
        """Start the copy to the host if the host's is stale; the device memory stays until `leave`."""
        if self.here and self.stale:
            self.ready()
            if self.block is None:
                self.block = self.transfer.host(self.bytes)
            self.ticket = self.transfer.copy_out(flat_bytes(self.alias), self.block)
            self.version = self.alias._version
            self.dirty = self._held()  # by somebody who may write without being seen

    def leave(self) -> None:
        """Give the device memory back, unless somebody holds it."""
        self.check()
        if self.loose:
            self.send()
            self.ready()
            if (
                self.stream != self.transfer.stream()
            ):  # the allocator may hand the memory out on that stream at once
                self.transfer.wait(self.transfer.mark(), self.stream)
            self.alias.untyped_storage().resize_(0)
            self.here = False
            self.callbacks.went(self)

    def check(self) -> None:
        """Follow the tensor to other memory that somebody gave it: `tensor.data = ...`."""
        with without_torch_function():
            if self.tensor.untyped_storage()._cdata == self.key:
                return
        self.ready()
        if self.here:
            self.callbacks.went(self)
        if self.block is not None:
            self.transfer.give_back(self.block)
            self.block = None
        PAGES.storages.pop(self.key, None)  # another storage may get that address
        self.aliases = 0
        self._take_storage()
        if self.alias.device != self.transfer.device or self.alias.nbytes != self.bytes:
            self.users += 1  # not ours to move any more

    def forget(self) -> None:
        """Stop paging the tensor; whoever else holds it has an ordinary one, on the device."""
        if self._is_referenced():
            self.callbacks.want([self], "a tensor that somebody kept")
            self.show()
            self.users = 1  # it must not leave any more
        if self.here:
            self.callbacks.went(self)

    def _is_referenced(self) -> bool:
        """Whether anybody but this page holds the tensor."""
        if self.whole is None:
            return sys.getrefcount(self.tensor) > PAGE_REFERENCES
        # The whole holds its part.
        return (
            sys.getrefcount(self.whole) > PAGE_REFERENCES
            or sys.getrefcount(self.tensor) > PAGE_REFERENCES + 1
        )

    def show(self) -> None:
        """Make the tensor an ordinary one, for a use that knows that the bytes are on the device."""
        self.tensor.__class__ = nn.Parameter if isinstance(self.tensor, nn.Parameter) else torch.Tensor
        if self.whole is not None:
            self.whole.__class__ = self._ordinary

    def hide(self) -> None:
        """Make the tensor one whose class is asked before every use."""
        away: Any = AwayParameter if isinstance(self.tensor, nn.Parameter) else AwayTensor
        self.tensor.__class__ = away
        if self.whole is not None:
            self.whole.__class__ = _away_class(self._ordinary)

    def host_copy(self) -> torch.Tensor:
        """Return a copy of the bytes in ordinary host memory."""
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
    """Around `state_dict`: it gets copies of pages in host memory, and no page comes to the device."""
    PAGES.saving += 1
    try:
        yield
    finally:
        PAGES.saving -= 1


class _Away:
    """Base of the classes that torch asks before anything is done with a tensor that is away."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with without_torch_function():
            if func in READS_NO_BYTE:
                return func(*args, **kwargs)
            pages = list(_pages_in((*args, *kwargs.values())))
            if PAGES.saving and func is torch.Tensor.detach and pages:
                return pages[0].host_copy()
            if pages:
                pages[0].callbacks.want(pages, getattr(func, "__name__", str(func)))
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
def _away_class(kind: type) -> Any:
    """The away class of a DTensor, whose own class asks nobody before it takes its local part."""
    return type(f"Away{kind.__name__}", (_Away, kind), {})


def page_of(tensor: torch.Tensor) -> Page | None:
    """Return the page that owns a tensor's storage; None if none does."""
    if not PAGES.storages:
        return None
    with without_torch_function():
        if tensor.layout != torch.strided:
            return None
        return PAGES.storages.get(tensor.untyped_storage()._cdata)


def _pages_in(values: Iterable[Any]) -> Iterator[Page]:
    """Yield the pages of the tensors among an operation's arguments."""
    for value in values:
        if isinstance(value, _Away):
            page, part = PAGES.tensors.get(id(value)), local_part(value)
            if page is not None:
                yield page
            elif part.numel() and not part.untyped_storage().nbytes():
                raise UsageError(
                    "a parameter that lives on the host must be used while its model is there, got one whose model is "
                    "gone; keep the model, or a clone of the parameter"
                )
        elif isinstance(value, (list, tuple)):
            yield from _pages_in(value)
