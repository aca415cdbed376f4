"""Changes of an elastic run's members, as all ranks come to know of them together, at a commit."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import torch

from weft.compat.horovod.elastic.membership import ElasticPlaces
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.errors import HostsUpdatedInterrupt
from weft.compat.horovod.torch.ops import Max, allreduce_


class CommitCount:
    """The commits of this process, or of the run if others know of more."""

    def __init__(self) -> None:
        self.commits = 0


_count = CommitCount()


def raise_if_changed(*, committed: bool) -> None:
    """Raise HostsUpdatedInterrupt on all ranks if one of them knows that members come or go."""
    places = world.places
    if not isinstance(places, ElasticPlaces) or not world.initialized:
        return
    news = places.news()
    state = torch.tensor([news.view, int(news.somebody_joins), _count.commits + committed])
    newest, joins, commits = allreduce_(state, name="elastic.news", op=Max).tolist()
    _count.commits = commits
    if committed:
        places.committed(commits - 1)
    if newest > places.number:
        raise HostsUpdatedInterrupt(skip_sync=not joins)


class HostMessages(queue.Queue[tuple[float, int]]):
    """Messages of drivers about hosts; there is one, too, while the agents have a change that waits."""

    def empty(self) -> bool:
        places = world.places
        if isinstance(places, ElasticPlaces) and places.news().view > places.number:
            return False
        return super().empty()


class HostUpdateResult:
    """Numbers for what became of hosts, which may be added up."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


def raise_if_told(messages: HostMessages, last: float, broadcast: Callable[[Any], Any] | None) -> float:
    """Raise HostsUpdatedInterrupt on all ranks if rank 0 was told of a change later than the last one."""
    if isinstance(world.places, ElasticPlaces):  # whose changes all ranks know of by now
        return last
    newest, kinds = last, 0
    while messages.qsize():
        at, kind = messages.get()
        if at > newest:
            newest, kinds = at, kinds | kind
    if broadcast is not None and not (world.initialized and world.place.size == 1):
        last, newest, kinds = broadcast((last, newest, kinds))
    if newest > last:
        raise HostsUpdatedInterrupt(skip_sync=kinds == HostUpdateResult.removed)
    return newest


def sync_needed(wanted: bool) -> bool:
    """Return whether any rank needs the state of rank 0: a newcomer does, whatever the others know."""
    if not isinstance(world.places, ElasticPlaces):
        return wanted
    state = torch.tensor([int(wanted), _count.commits])
    needed, _count.commits = allreduce_(state, name="elastic.sync", op=Max).tolist()
    return bool(needed)


def finish() -> None:
    """Tell the run that the training function has returned."""
    if isinstance(world.places, ElasticPlaces):
        world.places.finish()
