"""Weak references to storages: they stay comparable, and never keep a byte alive."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_weak_ref: Any = StorageWeakRef
_torch: Any = torch
_new: Any = _torch.UntypedStorage._new_with_weak_ptr


class WeakStorage:
    """A storage, if it still lives. While this exists, no other storage gets its key."""

    __slots__ = ("_ref", "key")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._ref = _weak_ref(storage)
        self.key: int = storage._cdata

    @property
    def dead(self) -> bool:
        return bool(self._ref.expired())

    def flat(self) -> torch.Tensor | None:
        """All its bytes, as a tensor; None if it is dead."""
        storage = _new(self._ref.cdata)
        if storage is None:
            return None
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def use_count(tensor: torch.Tensor) -> int:
    """How many hold a tensor's storage; compare with `ALONE`."""
    return int(_torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))


ALONE = use_count(torch.empty(1))  # what a storage says that one tensor holds


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of a tensor, as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
