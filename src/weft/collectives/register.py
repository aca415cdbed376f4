"""Making torch know the backend, under the names "weft" and "ddl".

torch calls `autoload` itself when it is imported (the entry point `torch.backends`), so `init_process_group("weft")`
works in any script. Nothing heavy is imported before a group is made.
"""

from __future__ import annotations

import atexit
import functools
import os
from typing import Any

NAMES = ("weft", "ddl")


def autoload() -> None:
    """Register the backend; harmless if it is already known, or if this torch cannot communicate at all."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    for name in NAMES:
        if name.upper() not in dist.Backend._plugins:
            dist.Backend.register_backend(name, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, _: object) -> Any:
    """What torch calls for each new group."""
    from weft.collectives.groups.roll import group_of

    leave_at_exit()
    with group_of(options.global_ranks_in_group):
        made = (options.store, options.group_rank, options.group_size, options.timeout)
        return _group_class()(*made)


def _group_class() -> Any:
    from weft.collectives.watching.settings import watching_from_env

    if watching_from_env(os.environ).on:
        from weft.collectives.watching.group import WatchedGroup

        return WatchedGroup
    from weft.collectives.groups.backend import WeftGroup

    return WeftGroup


@functools.cache
def leave_at_exit() -> None:
    """For scripts that end with groups they have not destroyed: leave them while the interpreter is whole.

    Gloo's threads let go of tensors some time after a call is done; where the interpreter is being taken down by
    then, that ends the process with SIGABRT. Call this before a group is made: what a group has to do at the end
    comes first then.
    """
    atexit.register(_leave, os.getpid())


def _leave(pid: int) -> None:
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _world as torch_world

    if not dist.is_initialized() or os.getpid() != pid:
        return
    ours = [group for group in torch_world.pg_map if group.name() == "weft"]
    for group in ours:
        if getattr(group, "busy", False):
            group.abort()  # nobody waits for what is still under way
    if any("nccl" in config for config in torch_world.pg_backend_config.values()):
        for group in ours:  # the end of NCCL's may wait for peers that are gone
            group.shutdown()
    else:
        dist.destroy_process_group()
