"""Private names of torch that the collectives use, and the parts above them, with the versions they hold for.

    name                                                   torch        used for
    Backend._plugins                                       2.11 - 2.13  whether a backend is registered already
    distributed_c10d._world.pg_map, .pg_backend_config     2.11 - 2.13  the groups of this process, and their names
    distributed_c10d._new_process_group_helper             2.11 - 2.13  the one place where torch makes a group
    rendezvous._rendezvous_handlers                        2.11 - 2.13  where "env://" is answered
    distributed_c10d.monitored_barrier (replaced)          2.11 - 2.13  refuses all backends but Gloo, by name
    distributed_c10d._get_default_store, ..._group         2.11 - 2.13  the world that a script has made
    _C._distributed_c10d.Store, PrefixStore, Work,         2.11 - 2.13  bases and types; the public names of the same
      TCPStore, HashStore, GradBucket                                   classes have no type stubs
    ProcessGroup._device_types, ._get_backend              2.11 - 2.13  overridden by `groups/group.py`
    _foreach_copy_, _add_, _mul_, _div_, _lerp_            2.11 - 2.13  many small tensors in one call

A group in Python must be a whole ProcessGroup, whose methods are found by name: `groups/` has those of 2.11 (such as
`_allgather_base`) and those of 2.13 (`all_gather_single`). `tests/collectives/test_torch_private.py` tries every name
in the table, so that an upgrade of torch shows which one has moved.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket, HashStore, PrefixStore, Store, TCPStore
from torch._C._distributed_c10d import Work as TorchWork
from torch.distributed import distributed_c10d as c10d

__all__ = [
    "GradBucket",
    "HashStore",
    "PrefixStore",
    "Store",
    "TCPStore",
    "TorchWork",
]  # and the functions below

_c10d: Any = c10d  # its stubs have no private names


@functools.cache
def device_names() -> tuple[str, ...]:
    """Return the types of devices that the backend serves in this build of torch; asks no device."""
    return ("cpu", "cuda") if torch.version.cuda is not None else ("cpu",)


def is_registered(backend: str) -> bool:
    """Return whether torch knows a backend of this name that was not built into it."""
    return backend.upper() in dist.Backend._plugins


def groups_of_process() -> list[Any]:
    """Return all groups that torch has made in this process."""
    return list(_c10d._world.pg_map)


def backends_of_process() -> list[str]:
    """Return the backends of these groups, each with its devices, such as "cpu:gloo,cuda:nccl"."""
    return list(_c10d._world.pg_backend_config.values())


def world_store() -> Any:
    """Return the store in which the members of torch's world met."""
    return _c10d._get_default_store()


def world_group() -> Any:
    """Return the group of torch's world."""
    return _c10d._get_default_group()


def rendezvous_handlers() -> dict[str, Any]:
    """Return torch's own table of how a world meets, by the scheme of its address."""
    # By its full name: `torch.distributed.rendezvous` is a function there.
    handlers: dict[str, Any] = import_module("torch.distributed.rendezvous")._rendezvous_handlers
    return handlers


def backends_in(name: str) -> frozenset[str]:
    """Return the backends that a name stands for: "gloo", "cpu:gloo,cuda:nccl", or what `undefined` is here."""
    return frozenset(map(str, dist.BackendConfig(dist.Backend(name)).get_device_backend_map().values()))


def copy_each(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy each source into its target, all in one call."""
    torch._foreach_copy_(targets, sources)


def add_to_each(targets: list[torch.Tensor], others: list[torch.Tensor]) -> None:
    """Add to each target its other, all in one call."""
    torch._foreach_add_(targets, others)


def multiply_each(tensors: list[torch.Tensor], factor: float) -> None:
    """Multiply all tensors by a factor, in one call."""
    torch._foreach_mul_(tensors, factor)


def divide_each(tensors: list[torch.Tensor], divisor: float) -> None:
    """Divide all tensors, in one call."""
    torch._foreach_div_(tensors, divisor)


def move_each_towards(tensors: list[torch.Tensor], others: list[torch.Tensor], share: float) -> None:
    """Move each tensor towards its other by a share of their difference, in one call."""
    torch._foreach_lerp_(tensors, others, share)


def let_groups_monitor(monitors: Callable[[Any], bool]) -> None:
    """Make `torch.distributed.monitored_barrier` ask the groups that can do it themselves, whatever their backend."""
    theirs = c10d.monitored_barrier
    if hasattr(theirs, "__wrapped__"):
        return

    @functools.wraps(theirs)
    def monitored_barrier(
        group: Any = None, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
    ) -> Any:
        chosen: Any = dist.group.WORLD if group is None else group
        if not monitors(chosen):
            return theirs(group, timeout, wait_all_ranks)
        limit = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
        return chosen.monitored_barrier(limit, wait_all_ranks)

    c10d.monitored_barrier = dist.monitored_barrier = monitored_barrier


def replace_backends(chosen: Callable[[str], str | None], made: Callable[[str, Any, bool], None]) -> None:
    """Make torch ask `chosen` for the backend to use in place of the one that a script names.

    torch goes on calling the group by the name that the script gave it. `made` is told of each such group: the name,
    the group, and whether it is the world.
    """
    theirs = _c10d._new_process_group_helper
    if hasattr(theirs, "__wrapped__"):
        return
    signature = inspect.signature(theirs)

    @functools.wraps(theirs)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        asked = str(given.arguments["backend"])
        ours = chosen(asked)
        if ours is None:
            return theirs(*args, **kwargs)
        given.arguments["backend"] = dist.Backend(ours)
        group, store = theirs(*given.args, **given.kwargs)
        if isinstance(group, dist.ProcessGroup):
            _rename(group, asked)
            made(asked, group, not given.arguments["global_ranks_in_group"])
        return group, store

    _c10d._new_process_group_helper = new_group


def _rename(group: Any, name: str) -> None:
    """Let torch call a group by another backend's name."""
    _c10d._world.pg_map[group] = (dist.Backend(name), _c10d._world.pg_map[group][1])
    _c10d._world.pg_backend_config[group] = str(dist.BackendConfig(dist.Backend(name)))
