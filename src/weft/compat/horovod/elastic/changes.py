"""Changes of an elastic run's members, as all ranks come to know of them together, at a commit."""

from __future__ import annotations

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
    told = torch.tensor([news.view, int(news.somebody_joins), _count.commits + committed])
    newest, joins, commits = allreduce_(told, name="elastic.news", op=Max).tolist()
    _count.commits = commits
    if committed:
        places.committed(commits - 1)
    if newest > places.number:
        raise HostsUpdatedInterrupt(skip_sync=not joins)


def sync_needed(wanted: bool) -> bool:
    """Return whether any rank needs the state of rank 0: a newcomer does, whatever the others know."""
    if not isinstance(world.places, ElasticPlaces):
        return wanted
    told = torch.tensor([int(wanted), _count.commits])
    needed, _count.commits = allreduce_(told, name="elastic.sync", op=Max).tolist()
    return bool(needed)


def finish() -> None:
    """Tell the run that the training function has returned."""
    if isinstance(world.places, ElasticPlaces):
        world.places.finish()
