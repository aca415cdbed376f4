"""Horovod's elastic worlds on Weft's membership: each world is a view that the agents of the hosts have agreed on.

A member that is lost makes the agents decide on a view without it; the world is failed at once, and every operation
raises HorovodInternalError. A member that joins or leaves makes a view that waits for the next commit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from weft.collectives.modes.tcp.mesh import own_address
from weft.collectives.torch_private import PrefixStore
from weft.compat.horovod.engine.place import WorldPlace, collective_settings
from weft.compat.horovod.settings import HorovodSettings, settings_from
from weft.elastic.history.records import StepRecord
from weft.elastic.membership.view import View
from weft.elastic.worker.beat import Beat
from weft.elastic.worker.link import AgentLink, RunOver, inherited
from weft.elastic.worker.messages import (
    GroupBroken,
    GroupFormed,
    ReadyToJoin,
    ScriptIsRun,
    StepCommitted,
    WorkerFinished,
    WorkerHello,
)
from weft.elastic.worker.view_store import ViewStore, ViewStoreServer
from weft.errors import PeerError, UsageError


@dataclass(frozen=True)
class MembershipNews:
    """One worker's knowledge of a change that waits for a commit: the newest view, and whether somebody joins in it."""

    view: int
    somebody_joins: bool


def elastic_places(environ: Mapping[str, str]) -> ElasticPlaces | None:
    """Return the places of a worker of `weft run --elastic`; None for any other process."""
    given = inherited(environ)
    if given is None:
        return None
    return ElasticPlaces(AgentLink(given[0]), Beat.at(given[1]))


class ElasticPlaces:
    """Gives this worker its place in each view that it is a member of."""

    def __init__(self, link: AgentLink, beat: Beat) -> None:
        self._link, self._beat = link, beat
        self._secret = link.welcome().secret
        address = own_address(collective_settings(os.environ, settings_from(os.environ)).launcher)
        self._server = ViewStoreServer(address, self._secret)
        self._store: ViewStore | None = None
        self._view: View | None = None  # of the present world, or the last
        self._fail: Callable[[BaseException], None] | None = None
        self._committed_in = -1  # the view of the last commit
        link.on_urgent = self._on_urgent
        link.tell(WorkerHello(self._server.port, 0))
        link.tell(ScriptIsRun())

    # -- places ---------------------------------------------------------------------------------------

    def next(self, settings: HorovodSettings) -> WorldPlace:
        """Wait for a view that this worker is a member of, and return its place in it."""
        formed = self._view.number if self._view is not None else -1
        if self._view is None:
            self._link.tell(ReadyToJoin())
        elif not self._link.newer_than(formed):  # so that all members make another world
            self._link.tell(GroupBroken(formed, "the world was shut down"))
        while True:
            view = self._await_view(formed, settings)
            self._check_resets(view, settings)
            rank = view.rank_of(self._link.name)
            if rank is not None:
                break
            formed = view.number
            if self._link.drain:
                raise SystemExit(0)
            self._link.tell(ReadyToJoin())
        self._view = view
        return self._place(view, rank, settings)

    def _await_view(self, formed: int, settings: HorovodSettings) -> View:
        try:
            return self._link.await_view(formed, settings.elastic_timeout_s)
        except RunOver:
            raise SystemExit(0) from None
        except TimeoutError:
            self._link.refuse(
                UsageError(
                    f"enough workers must be there within {settings.elastic_timeout_s:g} s, got too few; raise "
                    "HOROVOD_ELASTIC_TIMEOUT, or start with a smaller --min-np"
                ),
                for_all=True,
            )

    def _check_resets(self, view: View, settings: HorovodSettings) -> None:
        """End the run if its members have changed more often than they may; the first view has the number 1."""
        if settings.reset_limit is not None and view.number - 1 > settings.reset_limit:
            self._link.refuse(
                UsageError(
                    f"the members of the run may change {settings.reset_limit} times, got one more change "
                    f"({view.cause}); raise --reset-limit"
                ),
                for_all=True,
            )

    def _place(self, view: View, rank: int, settings: HorovodSettings) -> WorldPlace:
        mine = view.members[rank]
        here = [index for index, member in enumerate(view.members) if member.host == mine.host]
        found = collective_settings(os.environ, settings)
        return WorldPlace(
            rank=rank,
            size=view.size,
            local_rank=here.index(rank),
            local_size=len(here),
            host=mine.host,
            store=self._meet(view) if view.size > 1 else None,
            secret=self._secret,
            settings=replace(found, launcher=replace(found.launcher, world_size=view.size)),
            in_vain=lambda: self._link.lost_someone(view.number),
        )

    def _meet(self, view: View) -> Any:
        """Connect to the store of the view's first member; an error is told when the world is made."""
        first = view.members[0]
        try:
            self._store = ViewStore(
                first.address,
                first.store_port,
                self._secret,
                lambda: self._link.lost_someone(view.number),
            )
        except (OSError, RuntimeError) as error:
            return _NoStore(error)
        return PrefixStore(f"horovod/{view.number}", self._store)

    def formed(self, fail: Callable[[BaseException], None]) -> None:
        assert self._view is not None
        self._fail = fail
        self._link.tell(GroupFormed(self._view.number))
        self._on_urgent()  # somebody may have been lost before there was anything to fail

    def broken(self, error: BaseException) -> bool:
        assert self._view is not None
        self._link.tell(GroupBroken(self._view.number, f"{type(error).__name__}: {error}"))
        self.left()
        return True

    def left(self) -> None:
        self._fail = None
        if self._store is not None:
            self._store.close()
            self._store = None

    def _on_urgent(self) -> None:
        fail, view = self._fail, self._view
        if fail is not None and view is not None and self._link.lost_someone(view.number):
            newest = self._link.view
            fail(PeerError(newest.cause.partition(": ")[2] if newest is not None else "a member was lost"))

    # -- commits --------------------------------------------------------------------------------------

    def news(self) -> MembershipNews:
        """Return what this worker knows of a change that waits."""
        newest, view = self._link.view, self._view
        if newest is None or view is None:
            return MembershipNews(-1, False)
        before = {member.worker for member in view.members}
        return MembershipNews(newest.number, any(member.worker not in before for member in newest.members))

    @property
    def number(self) -> int:
        """The number of the present view."""
        return self._view.number if self._view is not None else -1

    def committed(self, step: int) -> None:
        """Tell the agent that all members hold the state after a number of commits: from now on others may join."""
        assert self._view is not None
        first = self._committed_in != self._view.number
        self._committed_in = self._view.number
        record = StepRecord(
            step=step, epoch=0, start=0, stop=0, view=self._view.number, parts={}, digest="", t=time.time()
        )
        self._link.tell(StepCommitted(record, first))

    def finish(self) -> None:
        """Tell the agent that the training function has returned."""
        self._link.tell(WorkerFinished())


class _NoStore:
    """Stands for a store that could not be reached: the first use raises why."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error
