"""Making torch know the backend, under the names "weft" and "ddl".

torch calls `autoload` itself when it is imported (the entry point `torch.backends`), so `init_process_group("weft")`
works in any script. Nothing heavy is imported before a group is made.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from datetime import timedelta
from typing import Any

from weft.collectives.choices import parse_replace
from weft.collectives.settings import CollectiveSettings, settings_from_env

NAMES = ("weft", "ddl")


def autoload() -> None:
    """Register the backend; harmless if it is already known, or if this torch cannot communicate at all."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    from weft.collectives import torch_private

    for name in NAMES:
        if not torch_private.is_registered(name):
            devices = list(torch_private.device_names())
            dist.Backend.register_backend(name, _create, extended_api=True, devices=devices)
    torch_private.let_groups_monitor(_is_ours)
    if "WEFT_RUN_ID" in os.environ:  # a worker of `weft run`, which chose the address
        from weft.collectives.rendezvous import use_for_env

        use_for_env(torch_private.rendezvous_handlers())
    if "WEFT_JOB_ID" in os.environ:  # a worker of a job, whose page shows how long its steps take
        from weft.reporting.steps import watch_steps

        watch_steps()
    if replaced := parse_replace(os.environ.get("WEFT_REPLACE", "")):
        torch_private.replace_backends(functools.partial(_chosen, replaced), _tell_of_replacement)


def _is_ours(group: Any) -> bool:
    """Return whether a group was made by this backend, whatever name torch calls it by."""
    import torch.distributed as dist

    return isinstance(group, dist.ProcessGroup) and group.name() == NAMES[0]


def _chosen(replaced: frozenset[str], asked: str) -> str | None:
    """Return the backend to use in place of the one that was asked for; None: the same. `--replace` names some."""
    from weft.collectives import torch_private

    return NAMES[0] if torch_private.backends_in(asked) <= replaced else None


def _tell_of_replacement(asked: str, group: Any, is_world: bool) -> None:
    if is_world and group.rank() == 0:
        from weft.collectives import torch_private

        names = ",".join(sorted(torch_private.backends_in(asked)))
        print(
            f'weft: the backend is "{NAMES[0]}" in place of "{names}" (--replace)',
            file=sys.stderr,
            flush=True,
        )


def _create(options: Any, given: object) -> Any:
    """Make a group: torch calls this, with the `pg_options` that its user gave."""
    from weft.collectives.groups.roll import group_of, unless_in_vain

    leave_at_exit()
    settings = _settings(given)
    with group_of(options.global_ranks_in_group):
        made = (options.store, options.group_rank, options.group_size, options.timeout)
        return unless_in_vain(
            lambda: _group_class(settings)(*made, settings), discard=lambda group: group.shutdown()
        )


def make_group(store: Any, rank: int, size: int, timeout: timedelta, settings: CollectiveSettings) -> Any:
    """Make a group of the backend that torch.distributed knows nothing of; who makes it must shut it down."""
    from weft.collectives.groups.roll import group_of, unless_in_vain

    with group_of(range(size)):
        return unless_in_vain(
            lambda: _group_class(settings)(store, rank, size, timeout, settings),
            discard=lambda group: group.shutdown(),
        )


def _settings(given: object) -> CollectiveSettings:
    """Choose the settings of a new group: those that were given, else its world's, else the environment's."""
    import torch.distributed as dist

    if isinstance(given, CollectiveSettings):
        return given
    of_world = getattr(dist.group.WORLD, "settings", None) if dist.is_initialized() else None
    return of_world if isinstance(of_world, CollectiveSettings) else settings_from_env(os.environ)


def _group_class(settings: CollectiveSettings) -> Any:
    if settings.watching.on:
        from weft.collectives.watching.group import WatchedGroup

        return WatchedGroup
    from weft.collectives.groups.reductions import WeftGroup

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

    from weft.collectives import torch_private

    if not dist.is_initialized() or os.getpid() != pid:
        return
    ours = [group for group in torch_private.groups_of_process() if _is_ours(group)]
    for group in ours:
        if getattr(group, "busy", False):
            group.abort()  # nobody waits for what is still under way
    if any("nccl" in config for config in torch_private.backends_of_process()):
        for group in ours:  # the end of NCCL's may wait for peers that are gone
            group.shutdown()
    else:
        dist.destroy_process_group()
