"""The roll of a group: its members find each other in the store, or hear who did not come."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from datetime import timedelta
from typing import Any, Generic, TypeVar

from torch.distributed import DistError

from weft.collectives.groups.blame import lives
from weft.collectives.members import GroupMember
from weft.collectives.process import process
from weft.collectives.torch_private import PrefixStore
from weft.errors import CollectiveError, PeerError

LOOK_S = 0.2  # between two looks at who is still there
PATIENCE_S = 1.0  # a process that is being ended closes its connections before it is seen dead
IN_VAIN_LOOK_S = 0.005  # between two looks whether what another thread does is in vain

_Made = TypeVar("_Made")

_ranks: ContextVar[Sequence[int]] = ContextVar(
    "ranks", default=()
)  # in the world; none: the group is the world
_in_vain: ContextVar[Callable[[], bool] | None] = ContextVar("in_vain", default=None)


@contextmanager
def group_of(ranks: Sequence[int]) -> Iterator[None]:
    """Note for this context that a group is being made of these ranks of the world; None: of all of them."""
    if not ranks:
        process.world = {}
    token = _ranks.set(tuple(ranks))
    try:
        yield
    except DistError as error:
        raise _without_store(error) from error
    finally:
        _ranks.reset(token)


@contextmanager
def interruptible(in_vain: Callable[[], bool]) -> Iterator[None]:
    """Give up groups that are made in this context as soon as it is known that a member will not come."""
    token = _in_vain.set(in_vain)
    try:
        yield
    finally:
        _in_vain.reset(token)


def in_vain() -> bool:
    """Return whether it is known that a member will not come to the group that is being made."""
    known = _in_vain.get()
    return known is not None and known()


def unless_in_vain(make: Callable[[], _Made], discard: Callable[[_Made], object]) -> _Made:
    """Return what `make` makes, or raise PeerError as soon as that is in vain.

    Neither torch's store nor Gloo nor a socket's `accept` can be interrupted, so `make` is called in another thread
    where it may turn out to be in vain. That thread is left behind then; `discard` is called with what it still makes.
    """
    if _in_vain.get() is None:
        return make()
    making = _Making(make, discard)
    while not making.done.wait(IN_VAIN_LOOK_S):
        if in_vain() and making.give_up():
            raise PeerError("a member was lost while the group was made")
    return making.result()


class _Making(Generic[_Made]):
    """A thread that makes something which may be given up before it is there."""

    def __init__(self, make: Callable[[], _Made], discard: Callable[[_Made], object]) -> None:
        self._make, self._discard = make, discard
        self._made: list[_Made] = []
        self._error: BaseException | None = None
        self._given_up = False
        self._lock = threading.Lock()
        self.done = threading.Event()
        # Not a daemon: a thread that is in C++ while Python ends would end the process by an abort.
        threading.Thread(target=copy_context().run, args=(self._run,), name="weft-meeting").start()

    def _run(self) -> None:
        try:
            made = self._make()
        except BaseException as error:  # it is raised where the result is awaited
            self._error = error
        else:
            with self._lock:
                if not self._given_up:
                    self._made.append(made)
            if self._given_up:
                with suppress(Exception):
                    self._discard(made)
        self.done.set()

    def give_up(self) -> bool:
        """Return whether it was given up in time: nothing was made before."""
        with self._lock:
            self._given_up = not self._made
            return self._given_up

    def result(self) -> _Made:
        if self._error is not None:
            raise self._error
        return self._made[0]


def watched_over() -> bool:
    """Return whether an agent tells the groups made here which members are lost, so that they need not find out."""
    return _in_vain.get() is not None


def _without_store(error: Exception) -> CollectiveError:
    """Return the error to raise when the store is lost; the process that held it may be one of us."""
    deadline = time.monotonic() + PATIENCE_S
    while not (dead := _dead_in_world()):
        if time.monotonic() > deadline:
            return CollectiveError(
                f"the ranks of a group must have a store to meet in, got {str(error).splitlines()[0]}"
            )
        time.sleep(0.02)
    return PeerError(f"{' and '.join(map(str, dead))} died while the group was made")


def _dead_in_world() -> list[GroupMember]:
    """Return the members of the last world that were on this host and have died."""
    here = [member for member in process.world.values() if member.host == process.host]
    return [member for member in here if not lives(member.pid)]


class MeetingStore(PrefixStore):
    """The store of one group, in which nobody waits longer than its timeout, nor for the dead."""

    def __init__(self, name: str, store: Any, timeout: timedelta, origin: Any) -> None:
        super().__init__(name, store)
        self._timeout = timeout
        self.origin = origin  # its server, if it is ours, lives as long as somebody refers to it
        self.others: Sequence[GroupMember] = ()  # once they are known

    def get(self, key: str) -> bytes:
        waiting = _Waiting(self._timeout)
        while not self.check([key]):
            waiting.rest_for(self.others, key)
        return super().get(key)


def store_of_this_life(store: Any, rank: int, size: int, timeout: timedelta) -> MeetingStore:
    """Return a part of the store with keys of this group alone.

    A store that outlives its groups still has those of an earlier group of the same name.
    """
    ours = store.clone()  # a connection of our own: others may have more patience than we
    ours.set_timeout(timeout)
    ours.set(f"here/{rank}", "")  # in no life yet: only for errors
    if rank == 0:
        ours.set("weft", secrets.token_hex(8))
    waiting = _Waiting(timeout)
    # Rank 0 may itself be waiting for another: torch's store does, when the world is made.
    others = {0: "weft", **{other: f"here/{other}" for other in range(1, size)}}
    while not ours.check(["weft"]) or (life := ours.get("weft")) in process.lives:
        waiting.rest(lambda: [0, *_missing(ours, others)])
    process.lives.add(life)
    return MeetingStore(f"weft/{life.decode()}", ours, timeout, store)


def call(store: Any, rank: int, size: int, timeout: timedelta, said: str) -> list[bytes]:
    """Say something to all members, and hear what each of them said."""
    store.set(f"member/{rank}", said)
    keys = {other: f"member/{other}" for other in range(size)}
    waiting = _Waiting(timeout)
    while not store.check(list(keys.values())):
        waiting.rest(lambda: _missing(store, keys))
    return [store.get(key) for key in keys.values()]


def _missing(store: Any, keys: Mapping[int, str]) -> list[int]:
    """Return the ranks whose keys are not in the store."""
    return [rank for rank, key in keys.items() if not store.check([key])]


def met(store: Any, members: Sequence[GroupMember], rank: int) -> None:
    """Remember who is who, for what is left of the meeting; and in the world, for the groups to come."""
    here = members[rank].host
    if isinstance(store, MeetingStore):
        store.others = [member for member in members if member.host == here and member.rank != rank]
        if not _ranks.get():
            # A world that is destroyed and made again meets at the same port. If the server went with the first one,
            # those who come early would find it still there, and then see it go.
            process.origin = store.origin
    if not _ranks.get():
        process.world = {member.rank: member for member in members}
        process.host = here


def forget_store() -> None:
    """Let go of the last world's store; none will be made again at its port."""
    process.origin = None


class _Waiting:
    """A wait for members that looks again and again, until one is dead or the time is over."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()
        self._deadline = time.monotonic() + self._timeout_s
        self._next_look = time.monotonic() + LOOK_S
        self._pause_s = 0.001

    def rest(self, absent: Callable[[], Sequence[int]]) -> None:
        """A moment, unless it is in vain to wait for these ranks of the group."""
        if not self._time_to_look():
            return
        ranks = list(dict.fromkeys(absent()))
        if dead := [rank for rank in ranks if _is_dead(rank)]:
            raise PeerError(f"{', '.join(map(_name, dead))} died before the group was made")
        if ranks and self._over:
            raise CollectiveError(
                f"all ranks of a group must come to it within {self._timeout_s:g} s, got no sign of "
                f"{', '.join(map(_name, ranks))}; see what became of them, and that all ranks make the same groups in "
                "the same order (timed out)"
            )

    def rest_for(self, others: Sequence[GroupMember], key: str) -> None:
        """A moment, unless one of these is dead; they are on our own host."""
        if not self._time_to_look():
            return
        if dead := [other for other in others if not lives(other.pid)]:
            raise PeerError(f"{' and '.join(map(str, dead))} died while the group was made")
        if self._over:
            raise CollectiveError(
                f"the ranks of a group must connect within {self._timeout_s:g} s, got nothing for {key!r} (timed out); "
                "see what became of the others"
            )

    @property
    def _over(self) -> bool:
        return time.monotonic() >= self._deadline

    def _time_to_look(self) -> bool:
        if in_vain():
            raise PeerError("a member was lost while the group was made")
        time.sleep(self._pause_s)
        self._pause_s = min(0.1, self._pause_s * 1.3)
        now = time.monotonic()
        if now < min(self._next_look, self._deadline):
            return False
        self._next_look = now + LOOK_S
        return True


def _number(rank: int) -> int:
    """Return the rank of a member in the world."""
    ranks = _ranks.get()
    return ranks[rank] if ranks else rank


def _name(rank: int) -> str:
    number = _number(rank)
    known = process.world.get(number) if _ranks.get() else None
    return f"rank {number} on {known.name}" if known else f"rank {number}"


def _is_dead(rank: int) -> bool:
    """Return whether a member is seen to be dead, which is possible on this host alone."""
    known = process.world.get(_number(rank)) if _ranks.get() else None
    return known is not None and known.host == process.host and not lives(known.pid)
