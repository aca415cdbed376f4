"""The torch group of a view: made of its members, given up as soon as one of them is known to be lost."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from weft.collectives.groups import roll
from weft.collectives.settings import CollectiveSettings
from weft.elastic.membership.view import View
from weft.elastic.torch_private import restart_group_count
from weft.elastic.worker.link import AgentLink
from weft.elastic.worker.view_store import ViewStore, ViewStoreServer
from weft.errors import CollectiveError, ConnectError

OPERATION_S = 1800.0  # agents see who is stuck; a reduction itself may wait long, for one who evaluates, say
# What a group that has lost a member may raise: ours, torch's, a socket's.
BROKEN = (RuntimeError, ConnectError, CollectiveError, OSError)


class ViewGroup:
    """The torch process group of the present view; each view has a new one.

    Every worker has a store of its own, and the view says where; the members of a view meet in that of its first.
    """

    def __init__(self, link: AgentLink, address: str, secret: str, settings: CollectiveSettings) -> None:
        self._link, self._secret, self._settings = link, secret, settings
        self._server = ViewStoreServer(address, secret)
        self._store: ViewStore | None = None  # of the present view's first member
        self._excepthook = sys.excepthook
        self._number = -1  # of the view whose group is made or there

    @property
    def port(self) -> int:
        """Return the port on which the store of this worker listens."""
        return self._server.port

    def form(self, view: View, rank: int) -> None:
        """Make the group of a view; raises one of BROKEN if that cannot be done."""
        self.leave()
        self._number = view.number  # before the group is made: late news of this very view must not abort it
        # Scripts and torch read them, as under torchrun; they change with the view.
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(view.size))
        with roll.interruptible(lambda: self._is_in_vain(view.number)):
            dist.init_process_group(
                "weft",
                store=self._meet(view),
                rank=rank,
                world_size=view.size,
                timeout=timedelta(seconds=OPERATION_S),
                pg_options=self._settings_in(view),
            )
        if self._is_in_vain(view.number):  # before the group was there to be aborted
            raise CollectiveError("a member was lost while the group was made")

    def _is_in_vain(self, number: int) -> bool:
        """Return whether the group of a view cannot come about: a member is lost, or the others are done already."""
        return self._link.lost_someone(number) or self._link.over

    def _settings_in(self, view: View) -> CollectiveSettings:
        """The settings of a view's group; its members are the whole run, whatever the launcher began with."""
        return replace(self._settings, launcher=replace(self._settings.launcher, world_size=view.size))

    def _meet(self, view: View) -> PrefixStore:
        """Connect to the store of the view's first member."""
        first, number = view.members[0], view.number
        self._store = ViewStore(
            first.address, first.store_port, self._secret, lambda: self._is_in_vain(number)
        )
        return PrefixStore(f"view/{number}", self._store)

    def abort_outdated(self) -> None:
        """Abort the group if one of its members is known to be lost; any thread may call this.

        The group is taken before its view is looked at: meanwhile the group of the newest view may be made, which has
        no lost member and must stay.
        """
        group = dist.group.WORLD if dist.is_initialized() else None
        if group is not None and self._link.lost_someone(self._number):
            with suppress(RuntimeError):
                group.abort()

    def leave(self) -> None:
        """Leave the group there is, if there is one."""
        group = dist.group.WORLD if dist.is_initialized() else None
        if group is not None:
            with suppress(RuntimeError):
                group.abort()
            with suppress(RuntimeError):
                dist.destroy_process_group()
        if self._store is not None:
            self._store.close()
        roll.forget_store()
        restart_group_count()
        sys.excepthook = self._excepthook  # every world wraps the hook of the one before
