"""Weak references to storages, and how many hold one: a storage stays known without being kept alive."""

from __future__ import annotations

import torch

from weft.lms.device.torch_private import WeakStorageRef, storage_from_weak, storage_use_count


class WeakStorage:
    """A weak reference to a storage. While it exists, no other storage gets the same key."""

    __slots__ = ("_ref", "key")

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._ref = WeakStorageRef(storage)
        self.key: int = storage._cdata

    @property
    def dead(self) -> bool:
        return bool(self._ref.expired())

    def flat(self) -> torch.Tensor | None:
        """Return all bytes of the storage as a tensor; None if it is dead."""
        storage = storage_from_weak(self._ref.cdata)
        if storage is None:
            return None
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def use_count(tensor: torch.Tensor) -> int:
    """Return the number of references to a tensor's storage; compare it with `ALONE`."""
    return int(storage_use_count(tensor.untyped_storage()._cdata))


ALONE = use_count(torch.empty(1))  # the use count of a storage that one tensor holds


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole storage of a tensor, as bytes."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
