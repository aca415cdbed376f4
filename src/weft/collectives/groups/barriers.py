"""Barriers: the plain one, and the monitored one that names the ranks that did not come."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from weft.collectives.groups.blame import lives
from weft.collectives.groups.call import Call
from weft.collectives.groups.group import Group
from weft.collectives.groups.work import Work
from weft.collectives.members import GroupMember
from weft.collectives.modes.peers import did_not_come
from weft.errors import CollectiveError, PeerError

LOOK_S = 0.2  # between two looks at which processes of this host have died
GRACE_S = 1.0  # for the answer of rank 0, once every rank is known to have come
GIVE_UP_S = 2.0  # for a barrier that is given up to say which peer it waited for
_LONGEST_PAUSE_S = 0.05  # between two questions to the store


class Barriers(Group):
    """The two barriers of a group."""

    def barrier(self, opts: Any = None) -> Work:
        """Return the work of a barrier; it fails after the timeout in `opts`, or after the group's."""
        call = Call("barrier")
        work = self._submit(call, lambda: self._hierarchy.barrier(), opts, [])
        if opts is not None and opts.timeout > timedelta(0):
            work.fail_after(opts.timeout.total_seconds(), lambda limit_s: self._give_up(work, call, limit_s))
        return work

    def _give_up(self, work: Work, call: Call, limit_s: float) -> CollectiveError:
        """Break the group, and return the error of a barrier that has taken longer than its own timeout."""
        self._break(CollectiveError(f"{call} {did_not_come(limit_s)}"))
        work.finished_within(GIVE_UP_S)
        reason = str(work.exception() or "")
        waited_for = next((member for member in self._members if reason.startswith(f"{member} ")), None)
        if waited_for is None:
            return CollectiveError(
                f"{call} must end within {limit_s:g} s, got no end (timed out); see the other ranks"
            )
        self._broken = PeerError(f"{waited_for} {did_not_come(limit_s)} during {call}")
        return self._broken

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return when every rank has called; otherwise raise on those that have, naming those that have not.

        All missing ranks are named, with `wait_all_ranks` or without. The group is of use afterwards.
        """
        self._monitored += 1
        limit = timeout or self._timeout
        RollCall(self._store, self._monitored, self._members, self._rank).meet(limit.total_seconds())


class RollCall:
    """One monitored barrier: ranks sign in the store, and rank 0 writes who was missing when its time was over."""

    def __init__(self, store: Any, number: int, members: Sequence[GroupMember], rank: int) -> None:
        self._store, self._number = store, number
        self._members, self._rank = members, rank
        self._verdict = f"barrier/{number}"

    def meet(self, limit_s: float) -> None:
        """Sign, and wait until all have signed or `limit_s` has passed."""
        self._store.set(self._signature(self._rank), "here")
        deadline = time.monotonic() + limit_s
        missing = self._collect(deadline) if self._rank == 0 else self._hear(deadline)
        if missing:
            raise PeerError(_message(missing, self._members, self._rank, limit_s))
        self._forget_the_one_before()

    def _collect(self, deadline: float) -> list[int]:
        """On rank 0: wait for all signatures, and tell the others which ranks are missing."""
        self._wait(lambda: not self._missing(), deadline)
        missing = self._missing()
        self._store.set(self._verdict, json.dumps(missing))
        return missing

    def _hear(self, deadline: float) -> list[int]:
        """On other ranks: wait for what rank 0 says; if it says nothing, look who is missing."""
        if not self._wait(lambda: self._store.check([self._verdict]), deadline):
            missing = self._missing()
            if missing or not self._wait(
                lambda: self._store.check([self._verdict]), time.monotonic() + GRACE_S
            ):
                self._store.set(self._signature(self._rank), "gone")  # rank 0 may still come
                return missing or [0]
        found: list[int] = json.loads(self._store.get(self._verdict))
        return found

    def _missing(self) -> list[int]:
        """Return the ranks that have not signed; if all have, those that have given up since."""
        ranks = range(len(self._members))
        if unsigned := [rank for rank in ranks if not self._store.check([self._signature(rank)])]:
            return unsigned
        return [rank for rank in ranks if self._store.get(self._signature(rank)) != b"here"]

    def _wait(self, come: Any, deadline: float) -> bool:
        """Ask again and again, with longer pauses; return whether it came in time."""
        pause_s, next_look = 0.001, time.monotonic() + LOOK_S
        while not come():
            now = time.monotonic()
            if now >= deadline:
                return False
            if now >= next_look:
                next_look = now + LOOK_S
                self._refuse_the_dead()
            time.sleep(min(pause_s, max(0.0, deadline - now)))
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.3)
        return True

    def _refuse_the_dead(self) -> None:
        host = self._members[self._rank].host
        for rank in self._missing():
            if self._members[rank].host == host and not lives(self._members[rank].pid):
                raise PeerError(f"{self._members[rank]} died before it came to monitored_barrier()")

    def _signature(self, rank: int, number: int | None = None) -> str:
        return f"barrier/{number or self._number}/{rank}"

    def _forget_the_one_before(self) -> None:
        """Delete the keys that this rank made for the barrier before, which all have left."""
        if self._number > 1:
            self._store.delete_key(self._signature(self._rank, self._number - 1))
            if self._rank == 0:
                self._store.delete_key(f"barrier/{self._number - 1}")


def _message(missing: Sequence[int], members: Sequence[GroupMember], rank: int, limit_s: float) -> str:
    """Return the error of a monitored barrier, with the words of Gloo's that scripts look for. Pure."""
    numbers = ", ".join(map(str, missing))
    failed = (
        f"Rank{'s' * (len(missing) > 1)} {numbers} failed to pass monitoredBarrier in {limit_s * 1000:.0f} ms"
    )
    if rank in missing:
        return f"{failed} (timed out): all ranks must come in time, got this one too late"
    names = " and ".join(str(members[other]) for other in missing)
    return (
        f"{failed} (timed out): all ranks must come in time, got no sign of {names}; see what became of them"
    )
