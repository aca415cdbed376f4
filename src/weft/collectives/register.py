"""Making torch know the backend, under the names "weft" and "ddl".

torch calls `autoload` itself when it is imported (the entry point `torch.backends`), so `init_process_group("weft")`
works in any script. Nothing heavy is imported before a group is made.
"""

from __future__ import annotations

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
