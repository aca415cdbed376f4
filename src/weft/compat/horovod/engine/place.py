"""The place of this process in a world, and where it comes from: the variables of its launcher."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

from weft import context
from weft.collectives.choices import parse_mode
from weft.collectives.rendezvous import serve_store
from weft.collectives.settings import CollectiveSettings, settings_from_env
from weft.collectives.torch_private import PrefixStore, TCPStore
from weft.compat.horovod.engine.control import RankFacts
from weft.compat.horovod.settings import HorovodSettings


@dataclass(frozen=True, kw_only=True)
class WorldPlace:
    """The place that a process shall take in the world that is to be made."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    store: Any = None  # where the ranks meet; None in a world of one
    secret: str = ""
    settings: CollectiveSettings
    in_vain: Callable[[], bool] | None = None  # whether a member is known to be lost


@dataclass(frozen=True)
class CrossPlace:
    """The place of a rank among those with its local rank on other hosts, and whether all hosts are alike."""

    rank: int
    size: int
    homogeneous: bool


class Places(Protocol):
    """Gives this process its place in each world that it makes, one after the other."""

    def next(self, settings: HorovodSettings) -> WorldPlace:
        """Return the place in the next world."""

    def formed(self, fail: Callable[[BaseException], None]) -> None:
        """Note that the world is there; `fail` is to be called when a member is lost."""

    def broken(self, error: BaseException) -> bool:
        """Note that the world could not be made; return whether to try the next one."""

    def left(self) -> None:
        """Note that the world is shut down."""


def cross_place(roster: Sequence[RankFacts], rank: int) -> CrossPlace:
    """Return the place of a rank across hosts, which are numbered in the order of their first ranks."""
    hosts = list(dict.fromkeys(facts.host for facts in roster))
    mine = roster[rank]
    alike = [facts.host for facts in roster if facts.local_rank == mine.local_rank]
    ordered = [host for host in hosts if host in alike]
    sizes = Counter(facts.host for facts in roster)
    return CrossPlace(ordered.index(mine.host), len(ordered), len(set(sizes.values())) == 1)


def announce(
    environ: MutableMapping[str, str], place: WorldPlace, cross: CrossPlace, *, elastic: bool
) -> None:
    """Put the place into HOROVOD_ variables, which scripts read; and torchrun's, if they have changed."""
    environ.update(
        HOROVOD_RANK=str(place.rank),
        HOROVOD_SIZE=str(place.size),
        HOROVOD_LOCAL_RANK=str(place.local_rank),
        HOROVOD_LOCAL_SIZE=str(place.local_size),
        HOROVOD_CROSS_RANK=str(cross.rank),
        HOROVOD_CROSS_SIZE=str(cross.size),
        HOROVOD_HOSTNAME=place.host,
    )
    if elastic:
        environ.update(
            RANK=str(place.rank),
            WORLD_SIZE=str(place.size),
            LOCAL_RANK=str(place.local_rank),
            LOCAL_WORLD_SIZE=str(place.local_size),
        )


def collective_settings(environ: Mapping[str, str], settings: HorovodSettings) -> CollectiveSettings:
    """Return the backend's settings. Worlds are made again and again, and mode `explore` would measure each time."""
    found = settings_from_env(environ)
    if not environ.get("WEFT_MODE"):
        found = replace(found, mode=parse_mode("ring"))
    if settings.interface:
        found = replace(found, launcher=replace(found.launcher, network_card=settings.interface))
    return found


class FixedPlaces:
    """The same place in every world: that of the launcher's variables."""

    def __init__(self) -> None:
        self._store: Any = None
        self._leader = ""
        self._worlds = itertools.count()

    def next(self, settings: HorovodSettings) -> WorldPlace:
        world = context.world_from_env(os.environ)
        found = collective_settings(os.environ, settings)
        store = None
        if world.size > 1:
            if self._store is None:
                self._store = self._meet(world.rank, timedelta(seconds=settings.start_timeout_s))
            store = PrefixStore(f"weft-horovod/{_attempt(os.environ)}/{next(self._worlds)}", self._store)
            if not found.launcher.leader_address:
                found = replace(found, launcher=replace(found.launcher, leader_address=self._leader))
        return WorldPlace(
            rank=world.rank,
            size=world.size,
            local_rank=world.local_rank,
            local_size=world.local_size,
            host=world.host,
            store=store,
            secret=found.launcher.secret,
            settings=replace(found, launcher=replace(found.launcher, world_size=world.size)),
        )

    def _meet(self, rank: int, timeout: timedelta) -> Any:
        """Return the store of the run; rank 0 serves it for as long as it lives, unless torchrun does."""
        address, port = context.meeting_point(os.environ, context.ask_mpi)
        self._leader = address
        if rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            return serve_store(address, port, timeout, wait_for_workers=False, shared=True)
        return TCPStore(address, port, None, is_master=False, timeout=timeout, wait_for_workers=False)

    def formed(self, fail: Callable[[BaseException], None]) -> None:
        return None

    def broken(self, error: BaseException) -> bool:
        return False

    def left(self) -> None:
        return None


def _attempt(environ: Mapping[str, str]) -> str:
    """Name this attempt at the run: torchrun's store outlives one that failed."""
    return f"{environ.get('TORCHELASTIC_RUN_ID', '')}/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
