"""Who has come to a group: its members find each other in the store, or hear who did not come."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore

from weft.collectives.blame import lives
from weft.collectives.members import Member
from weft.errors import CollectiveError, PeerError

_ranks: ContextVar[Sequence[int]] = ContextVar(
    "ranks", default=()
)  # in the world; none: the group is the world
_world: dict[int, Member] = {}  # who was in it when it last met
_here: set[str] = set()  # our own host, as they all name it
_lives: set[bytes] = set()  # groups this process has been in


@contextmanager
def of_ranks(ranks: Sequence[int]) -> Iterator[None]:
    """The group that is being made is that of these ranks of the world, in this order; none: it is the world."""
    token = _ranks.set(tuple(ranks))
    try:
        yield
    finally:
        _ranks.reset(token)


def store_of_this_life(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Keys of our own: a store that outlives its groups still has those of an earlier group of the same name.

    Nobody waits there longer than `timeout`.
    """
    store = store.clone()  # a connection of our own: others may have more patience than we
    store.set_timeout(timeout)
    store.set(f"here/{rank}", "")  # in no life yet: only for errors
    if rank == 0:
        store.set("weft", secrets.token_hex(8))
    waiting = _Waiting(timeout)
    while not store.check(["weft"]) or (life := store.get("weft")) in _lives:
        # Rank 0 may itself be waiting for another: torch's store does, when the world is made.
        waiting.rest([other for other in range(size) if other == 0 or not store.check([f"here/{other}"])])
    _lives.add(life)
    return PrefixStore(f"weft/{life.decode()}", store)


def call(store: Any, rank: int, size: int, timeout: timedelta, said: str) -> list[bytes]:
    """Say something to all members, and hear what each of them said."""
    store.set(f"member/{rank}", said)
    heard: dict[int, bytes] = {}
    waiting = _Waiting(timeout)
    while absent := [other for other in range(size) if other not in heard]:
        came = [other for other in absent if store.check([f"member/{other}"])]
        heard.update({other: store.get(f"member/{other}") for other in came})
        if not came:
            waiting.rest(absent)
    return [heard[other] for other in range(size)]


def met(members: Sequence[Member], rank: int) -> None:
    """Remember who is who in the world, for the groups to come."""
    if not _ranks.get():
        _world.clear()
        _world.update({member.rank: member for member in members})
        _here.clear()
        _here.add(members[rank].host)


class _Waiting:
    """Looks again and again, until someone is dead or it has taken too long."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()
        self._deadline = time.monotonic() + self._timeout_s
        self._pause_s = 0.001

    def rest(self, absent: Sequence[int]) -> None:
        """A moment, unless it is in vain to wait for these ranks of the group."""
        names = ", ".join(map(_name, absent))
        if dead := [rank for rank in absent if _is_dead(rank)]:
            raise PeerError(f"{', '.join(map(_name, dead))} died before the group was made")
        if time.monotonic() > self._deadline:
            raise CollectiveError(
                f"all ranks of a group must come to it within {self._timeout_s:g} s, got no sign of {names}; "
                "see what became of it, and that all ranks make the same groups in the same order"
            )
        time.sleep(self._pause_s)
        self._pause_s = min(0.1, self._pause_s * 1.3)


def _number(rank: int) -> int:
    """Its rank in the world."""
    ranks = _ranks.get()
    return ranks[rank] if ranks else rank


def _name(rank: int) -> str:
    number = _number(rank)
    known = _world.get(number) if _ranks.get() else None
    return f"rank {number} on {known.name}" if known else f"rank {number}"


def _is_dead(rank: int) -> bool:
    """Whether we can see that it is: it was on our host."""
    known = _world.get(_number(rank)) if _ranks.get() else None
    return known is not None and known.host in _here and not lives(known.pid)
