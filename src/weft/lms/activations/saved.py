"""What a saved tensor is while autograd waits for it: a handle on a record, one record for each storage.

Autograd owns the handles and handles own the record, so memory lives exactly as long as autograd wants it, whatever
happens to the step. What a plan leaves where it is has no record, until it has to move after all: most tensors of most
steps, and records take time. A storage is known by a weak reference to it, never by its address, which the allocator
would soon give to another.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from weft.lms.device.slabs import Block
from weft.lms.device.storages import ALONE, WeakStorage, flat_bytes, use_count

if TYPE_CHECKING:
    from weft.lms.activations.recipes import Recipe


Dead = tuple[Block, Any, torch.Tensor | None]  # host memory that nobody wants, and a copy from it under way


class Kept:
    """A tensor that is not ours to decide about: a parameter, something small, something odd."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()  # the very tensor would hold its own node, and never be freed
        self.version = tensor._version

    def value(self) -> torch.Tensor:
        check_version(self.tensor, self.version)
        return self.tensor


class Record:
    """One storage that autograd saved, wherever its bytes are."""

    __slots__ = (
        "__weakref__", "alias", "block", "bytes", "coming", "dead", "depth", "going", "recipe", "site", "stream",
        "tensor", "version", "weak",
    )  # fmt: skip

    def __init__(self, handle: Handle, stream: Any, dead: deque[Dead]) -> None:
        # Shares its version counter with the tensor that was saved, also when it holds no bytes any more.
        assert handle.tensor is not None
        self.alias = handle.tensor
        storage = self.alias.untyped_storage()
        self.weak = WeakStorage(storage)
        self.bytes = storage.nbytes()
        self.site = handle.site
        self.version = handle.version
        self.tensor: torch.Tensor | None = self.alias
        self.stream = stream  # on which the bytes were allocated, and which must know when they are free
        self.block: Block | None = None
        self.going: Any = None  # the ticket of the copy out
        self.coming: Any = None
        self.recipe: Recipe | None = None
        self.depth = 0  # of recipes on recipes, if it was dropped
        self.dead = dead

    def __del__(self) -> None:
        # May run on any thread, at any moment: only note it. A copy that still comes in keeps its target.
        if self.block is not None:
            self.dead.append((self.block, self.coming, self.tensor if self.coming is not None else None))

    def drop(self) -> None:
        """Let the device's bytes go; they must be elsewhere, or easily made again."""
        if self.tensor is self.alias:
            self.alias.data = torch.empty(0, dtype=self.alias.dtype, device=self.alias.device)
        self.tensor = None
        self.coming = None

    def held_elsewhere(self) -> bool:
        """Whether dropping it would free nothing yet."""
        return not self.weak.dead if self.tensor is None else use_count(self.tensor) > ALONE

    def revive(self) -> torch.Tensor | None:
        """The original, where somebody else still holds it."""
        flat = self.weak.flat()
        return flat if flat is not None and flat.numel() == self.bytes else None

    def flat(self) -> torch.Tensor:
        """All bytes of the storage that is on the device."""
        assert self.tensor is not None
        return flat_bytes(self.tensor)


class Handle:
    """One saved tensor: as it is, or as a view of a record."""

    __slots__ = (
        "__weakref__",
        "dtype",
        "first",
        "offset",
        "record",
        "site",
        "size",
        "stride",
        "tensor",
        "version",
    )

    def __init__(self, tensor: torch.Tensor, site: int) -> None:
        self.tensor: torch.Tensor | None = tensor.detach()
        self.version = tensor._version
        self.site = site
        self.record: Record | None = None
        self.first: Handle | None = None  # on the same storage, by which the storage is known

    def settle(self, record: Record) -> None:
        """The bytes may leave from now on."""
        tensor = self.tensor
        assert tensor is not None
        self.dtype, self.size, self.stride = tensor.dtype, tensor.size(), tensor.stride()
        self.offset = tensor.storage_offset()
        self.record, self.site = record, record.site
        self.tensor = None

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """The saved tensor, given its bytes."""
        if tensor.dtype == self.dtype:
            return tensor.as_strided(self.size, self.stride, self.offset)
        empty = torch.empty(0, dtype=self.dtype, device=tensor.device)
        return empty.set_(tensor.untyped_storage(), self.offset, self.size, self.stride)

    def check(self) -> None:
        check_version(self.tensor if self.record is None else self.record.alias, self.version)


def check_version(tensor: torch.Tensor | None, version: int) -> None:
    """What autograd itself would check had it kept the tensor."""
    if tensor is not None and tensor._version != version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a "
            f"tensor of type {tensor.dtype} is at version {tensor._version}; expected version {version} instead. "
            "Hint: torch.autograd.set_detect_anomaly(True) finds the operation; change a copy of the tensor"
        )
