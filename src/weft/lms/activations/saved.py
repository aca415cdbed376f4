"""A saved tensor while autograd waits for it: a handle on a storage, and the recipe that can make the storage again.

    Handle         one tensor that autograd saved, as a view of
    SavedStorage   one storage, whose bytes are on the device, on the host, or nowhere, to be made again by a
    Recipe         an operation on handles, parameters and other recipes
    Kept, KeptPage a tensor that stays where it is; a parameter that is paged

Autograd owns the handles and handles own the storage, so memory lives exactly as long as autograd wants it, whatever
happens to the step. A storage that a plan leaves where it is has no `SavedStorage` until it has to move after all:
these are most tensors of most steps, and making the object takes time. A storage is known by a weak reference, never by
its address, which the allocator would soon give to another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from weft.lms.device.host_memory import Block
from weft.lms.device.storages import ALONE, WeakStorage, flat_bytes, use_count
from weft.lms.device.torch_private import without_torch_function
from weft.lms.paging.page import Page, page_of

# Host memory of a storage that died, the ticket of a copy back under way from it, and the target of that copy.
DeadStorage = tuple[Block, Any, torch.Tensor | None]


class Kept:
    """A saved tensor that stays where it is: a parameter, a small one, one of an unusual kind."""

    __slots__ = ("__weakref__", "tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()  # the tensor itself would hold its own node, and never be freed
        self.version = tensor._version

    def value(self) -> torch.Tensor:
        check_version(self.tensor, self.version)
        return self.tensor


class KeptPage(Kept):
    """A saved parameter that is paged, or a view of one: its page has the bytes."""

    __slots__ = ("key", "page")

    def __init__(self, tensor: torch.Tensor, page: Page) -> None:
        with without_torch_function():
            super().__init__(tensor)
        self.page, self.key = page, page.key
        page.aliases += 1

    def __del__(self) -> None:
        if self.key == self.page.key:  # else the page has other memory by now
            self.page.aliases -= 1

    def value(self) -> torch.Tensor:
        self.page.callbacks.want([self.page], "the backward pass")
        return super().value().detach()  # a new tensor, so that the storage shows who holds it


class SavedStorage:
    """One storage that autograd saved, wherever its bytes are."""

    __slots__ = (
        "__weakref__", "alias", "block", "bytes", "coming", "dead", "depth", "going", "moves", "recipe", "site",
        "stream", "tensor", "version", "weak",
    )  # fmt: skip

    def __init__(
        self, handle: Handle, stream: Any, dead: deque[DeadStorage], moves: deque[int] | None = None
    ) -> None:
        assert handle.tensor is not None
        self.alias = handle.tensor  # shares the saved tensor's version counter, with or without bytes
        storage = self.alias.untyped_storage()
        self.weak = WeakStorage(storage)
        self.bytes = storage.nbytes()
        self.site = handle.site  # the number of the storage in the step
        self.version = handle.version
        self.tensor: torch.Tensor | None = self.alias
        self.stream = stream  # on which the bytes were allocated, and which must know when they are free
        self.block: Block | None = None  # of host memory
        self.going: Any = None  # the ticket of the copy out
        self.coming: Any = None  # the ticket of the copy back
        self.recipe: Any = None  # a `Recipe`, or a `Replay` of operations
        self.depth = 0  # of recipes on recipes, once the bytes were dropped
        self.dead = dead  # where it is noted when this storage dies
        self.moves = (
            moves  # where its site is noted each time its bytes come, go or die, while somebody counts them
        )
        if moves is not None:
            moves.append(self.site)

    def __del__(self) -> None:
        # May run on any thread, at any moment: only note it. A copy back under way must keep its target.
        if self.block is not None:
            self.dead.append((self.block, self.coming, self.tensor if self.coming is not None else None))
        if self.moves is not None:
            self.moves.append(self.site)

    def come(self, tensor: torch.Tensor) -> None:
        """Take the device's bytes, copied back or made again."""
        self.tensor = tensor
        if self.moves is not None:
            self.moves.append(self.site)

    def drop(self) -> None:
        """Let the device's bytes go; they must be on the host, or a recipe must make them again."""
        if self.tensor is self.alias:
            self.alias.data = torch.empty(0, dtype=self.alias.dtype, device=self.alias.device)
        self.tensor = None
        self.coming = None
        if self.moves is not None:
            self.moves.append(self.site)

    def held_elsewhere(self) -> bool:
        """Return whether others hold the bytes, so that dropping them here would free nothing yet."""
        return not self.weak.dead if self.tensor is None else use_count(self.tensor) > ALONE

    def revive(self) -> torch.Tensor | None:
        """Return the original bytes where somebody else still holds them; None otherwise."""
        flat = self.weak.flat()
        return flat if flat is not None and flat.numel() == self.bytes else None

    def flat(self) -> torch.Tensor:
        """Return all bytes of the storage, which is on the device, as a flat tensor."""
        assert self.tensor is not None
        return flat_bytes(self.tensor)


class Handle:
    """One saved tensor: the tensor itself, or a view of a saved storage."""

    __slots__ = (
        "__weakref__",
        "dtype",
        "first",
        "offset",
        "site",
        "size",
        "storage",
        "stride",
        "tensor",
        "version",
    )

    def __init__(self, tensor: torch.Tensor, site: int) -> None:
        self.tensor: torch.Tensor | None = tensor.detach()
        self.version = tensor._version
        self.site = site
        self.storage: SavedStorage | None = None
        self.first: Handle | None = None  # the first handle on the same storage, by which that is known

    def settle(self, storage: SavedStorage) -> None:
        """Become a view of a storage, whose bytes may leave from now on."""
        tensor = self.tensor
        assert tensor is not None
        self.dtype, self.size, self.stride = tensor.dtype, tensor.size(), tensor.stride()
        self.offset = tensor.storage_offset()
        self.storage, self.site = storage, storage.site
        self.tensor = None

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the saved tensor, given the storage's bytes."""
        if tensor.dtype == self.dtype:
            return tensor.as_strided(self.size, self.stride, self.offset)
        empty = torch.empty(0, dtype=self.dtype, device=tensor.device)
        return empty.set_(tensor.untyped_storage(), self.offset, self.size, self.stride)

    def check(self) -> None:
        """Raise if the tensor was changed in place since it was saved."""
        check_version(self.tensor if self.storage is None else self.storage.alias, self.version)


def check_version(tensor: torch.Tensor | None, version: int) -> None:
    """Raise if a tensor was changed since it was saved, as autograd would had it kept the tensor."""
    if tensor is not None and tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a "
            f"tensor of type {tensor.dtype} is at version {tensor._version}; expected version {version} instead. "
            "Hint: torch.autograd.set_detect_anomaly(True) finds the operation; change a copy of the tensor"
        )


@dataclass(frozen=True, eq=False)
class LeafInput:
    """A parameter or a constant that a recipe works on."""

    tensor: torch.Tensor
    version: int

    def value(self) -> torch.Tensor:
        check_version(self.tensor, self.version)
        page = page_of(self.tensor)
        if page is not None:
            page.callbacks.want([page], "a recipe")
            return page.alias.detach()
        if self.tensor.numel() and not self.tensor.untyped_storage().nbytes():
            raise RuntimeError(
                "a parameter must stay on the device while what depends on it may be rebuilt, got one whose memory "
                "was freed between the forward and the backward pass; use a limit at which nothing is rebuilt"
            )
        return self.tensor.detach()


@dataclass(frozen=True, eq=False)
class Recipe:
    """An operation and its inputs, which together make a storage again. It holds no node of autograd."""

    op: Callable[..., torch.Tensor]
    inputs: tuple[RecipeInput, ...]
    variants: tuple[
        Callable[..., torch.Tensor], ...
    ] = ()  # other operations to try, where a setting is unknown
    first: int = 0  # the number of `op` among all variants, where those before it are known to be wrong

    def storages(self) -> dict[int, SavedStorage]:
        """Return the saved storages that must be on the device, by site."""
        found: dict[int, SavedStorage] = {}
        for value in self.inputs:
            if isinstance(value, Handle):
                if value.storage is not None:
                    found[value.site] = value.storage
            elif isinstance(value, Recipe):
                found |= value.storages()
        return found

    def pages(self) -> list[Page]:
        """Return the pages of parameters that must be on the device, too."""
        found: list[Page] = []
        for value in self.inputs:
            if isinstance(value, LeafInput):
                page = page_of(value.tensor)
                found += [] if page is None else [page]
            elif isinstance(value, KeptPage):
                found.append(value.page)
            elif isinstance(value, Recipe):
                found += value.pages()
        return list(dict.fromkeys(found))

    def sources(self) -> set[int]:
        """Return the sites whose storages must be on the device."""
        return set(self.storages())

    def likeness(self) -> Hashable:
        """Return a key that is equal for recipes that do the same work to tensors of the same shapes."""
        return tuple(_likeness(value) for value in self.inputs)

    def all_variants(self) -> tuple[Recipe, ...]:
        """Return this recipe, and each variant as a recipe of its own."""
        return (self, *(Recipe(op, self.inputs) for op in self.variants))


RecipeInput = Handle | Kept | LeafInput | Recipe | None


def _likeness(value: RecipeInput) -> Hashable:
    if value is None or isinstance(value, Recipe):
        return None if value is None else value.likeness()
    if isinstance(value, Handle) and value.storage is not None:
        return tuple(value.size), value.stride, value.dtype
    assert value.tensor is not None
    return tuple(value.tensor.shape), value.tensor.stride(), value.tensor.dtype


def made(op: Callable[..., torch.Tensor], *inputs: RecipeInput, optional: int = 0) -> Recipe | None:
    """Return a recipe if all its inputs are known; the last `optional` ones may be missing."""
    required = inputs[: len(inputs) - optional]
    return None if any(value is None for value in required) else Recipe(op, inputs)
