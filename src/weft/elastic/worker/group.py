"""The torch group of a view: made with those who are in it, given up as soon as one of them is known to be lost."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.distributed_c10d import _world as torch_world

from weft.collectives.groups import roll
from weft.elastic.membership.view import View
from weft.elastic.worker.link import AgentLink
from weft.errors import CollectiveError, ConnectError

CONNECT_S = 5.0  # to the store of the view's first member
OPERATION_S = 1800.0  # agents see who is stuck; a reduction itself may wait long, for one who evaluates, say
PROBE_S = 0.5  # one attempt to reach that store
# What a group that has lost a member may raise: ours, torch's store's, a socket's.
BROKEN = (RuntimeError, ConnectError, CollectiveError, OSError)


class ViewGroup:
    """The torch process group of the present view; each view has a new one.

    Every worker has a store of its own, and the view says where; the members of a view meet in that of its first.
    """

    def __init__(self, link: AgentLink, address: str) -> None:
        self._link = link
        self._store = TCPStore(
            address, 0, None, is_master=True, timeout=timedelta(seconds=CONNECT_S), wait_for_workers=False
        )
        self._excepthook = sys.excepthook

    @property
    def port(self) -> int:
        """Where our store listens."""
        return self._store.port

    def form(self, view: View, rank: int) -> None:
        """Make the group of a view; raises one of BROKEN if that cannot be done."""
        self.leave()
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(view.size))
        with roll.interruptible(lambda: self._link.lost_someone(view.number)):
            dist.init_process_group(
                "weft",
                store=PrefixStore(f"view/{view.number}", self._store_of(view) if rank else self._store),
                rank=rank,
                world_size=view.size,
                timeout=timedelta(seconds=OPERATION_S),
            )
        if self._link.lost_someone(view.number):  # before the group was there to be aborted
            raise CollectiveError("a member was lost while the group was made")

    def _store_of(self, view: View) -> TCPStore:
        first = view.members[0]
        _probe(first.address, first.store_port, lambda: self._link.lost_someone(view.number))
        return TCPStore(
            first.address,
            first.store_port,
            None,
            is_master=False,
            timeout=timedelta(seconds=CONNECT_S),
            wait_for_workers=False,
        )

    def abort(self) -> None:
        """Somebody is lost: whatever waits for it gives up. Any thread may call this."""
        group = dist.group.WORLD if dist.is_initialized() else None
        if group is not None:
            with suppress(RuntimeError):
                group.abort()

    def leave(self) -> None:
        """Leave the group there is, if there is one."""
        if dist.is_initialized():
            self.abort()
            with suppress(RuntimeError):
                dist.destroy_process_group()
        roll.forget_store()
        # torch counts the groups it has begun, even those that could not be made, and names them so; members that
        # disagree on the count would not find each other. And every world wraps the hook of the one before.
        torch_world.group_count = 0
        sys.excepthook = self._excepthook


def _probe(address: str, port: int, in_vain: Callable[[], bool]) -> None:
    """See that somebody listens at an address; raises at once if nobody does, and soon after `in_vain` is true.

    torch's store would try again and again for as long as it may, whatever becomes known meanwhile.
    """
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            socket.create_connection((address, port), timeout=PROBE_S).close()
            return
        except TimeoutError:
            if in_vain() or time.monotonic() > deadline:
                raise
