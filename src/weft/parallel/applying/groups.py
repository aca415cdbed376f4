"""The groups of ranks that a way needs, and their wires."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch.distributed as dist

from weft.collectives.register import NAMES
from weft.collectives.settings import settings_from_env
from weft.errors import UsageError


def is_ours() -> bool:
    """Return whether the world communicates by the backend "weft"."""
    return dist.get_backend() in NAMES or dist.group.WORLD.name() == NAMES[0]  # type: ignore[union-attr]


def hosts_of_ranks() -> list[list[int]]:
    """Return the ranks of each host, in order; a collective call."""
    import weft

    mine = (weft.host(), weft.rank())
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    hosts: dict[str, list[int]] = {}
    for host, rank in everyone:
        hosts.setdefault(host, []).append(rank)
    return list(hosts.values())


def group_of(ranks: list[int], wire: str, environ: dict[str, str]) -> Any:
    """Make a group with its own wire; every rank of the world makes the same groups in the same order."""
    if not is_ours():
        return dist.new_group(ranks)
    settings = replace(settings_from_env(environ), wire=wire)
    return dist.new_group(ranks, backend=NAMES[0], pg_options=settings)


def even_hosts(hosts: list[list[int]]) -> int:
    """Return the workers of each host, which HSDP needs to be as many."""
    counts = {len(ranks) for ranks in hosts}
    if len(counts) > 1:
        raise UsageError(
            f"HSDP must have equally many workers on each host, got {sorted(counts)}; plan anew without it"
        )
    return counts.pop()
