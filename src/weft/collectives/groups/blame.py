"""Blame: when a group breaks, its ranks agree on the first cause instead of each naming a neighbour.

A rank whose neighbour gave up because of a third one sees only the neighbour. So each rank that fails says in the store
whom it suspects, and follows the suspicions of its suspect to the one who says nothing: that one is dead or cut off.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from weft.collectives.members import GroupMember
from weft.collectives.torch_private import Store

PATIENCE_S = 1.0  # for the others to say whom they suspect


class Suspicion(NamedTuple):
    """The cause that one rank suspects."""

    message: str
    suspect: int | None  # None: it knows nobody
    sure: bool = False  # it has seen the suspect dead


def first_cause(
    store: Store, members: Sequence[GroupMember], rank: int, message: str, call: str
) -> tuple[str, bool]:
    """Return what to say of a failure on this rank, and whether that names who caused it.

    `message` opens with the peer we suspect, if we suspect one.
    """
    mine = Suspicion(message, _named(message, members))
    suspicions = {rank: mine}
    over = threading.Event()
    # In a thread of its own: a store whose host is cut off answers nobody.
    threading.Thread(
        target=_exchange, args=(store, len(members), rank, suspicions, over), daemon=True
    ).start()
    deadline = time.monotonic() + PATIENCE_S
    # A process that is being ended closes its connections before it is seen dead.
    while (
        not (dead := _dead(members, rank)) and len(suspicions) < len(members) and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    if dead:
        suspicions[rank] = Suspicion(
            f"{' and '.join(map(str, dead))} died during {call}", dead[0].rank, sure=True
        )
        over.wait(0.1)  # for the others to hear it
    verdict = judge(suspicions, rank, members, call)
    over.set()
    return verdict.message, verdict.suspect is not None


def judge(told: Mapping[int, Suspicion], rank: int, members: Sequence[GroupMember], call: str) -> Suspicion:
    """Return the first cause of a failure, as far as the suspicions of the ranks tell it. Pure."""
    for suspicion in told.values():
        if suspicion.sure:
            return suspicion
    verdict, seen = told[rank], {rank}
    while verdict.suspect is not None and verdict.suspect in told and verdict.suspect not in seen:
        seen.add(verdict.suspect)
        verdict = told[verdict.suspect]
    silent = [member for member in members if member.rank not in told]
    if verdict.suspect is None and silent and len(told) > 1:
        names = " and ".join(map(str, silent))
        return Suspicion(f"{names} gave no sign of life during {call}: {verdict.message}", silent[0].rank)
    return verdict


def _exchange(store: Store, size: int, rank: int, told: dict[int, Suspicion], over: threading.Event) -> None:
    """Tell the other ranks what this one knows, and hear what they know, until the time is over."""
    said = None
    try:
        while not over.is_set():
            if told[rank] is not said:
                said = told[rank]
                store.set(f"suspect/{rank}", json.dumps(said))
            for other in set(range(size)) - told.keys():
                if store.check([f"suspect/{other}"]):
                    told[other] = Suspicion(*json.loads(store.get(f"suspect/{other}")))
            over.wait(0.05)
    except (RuntimeError, OSError):
        return  # the store is gone too


def _dead(members: Sequence[GroupMember], rank: int) -> list[GroupMember]:
    """Return the members on this host whose processes have ended."""
    host = members[rank].host
    return [other for other in members if other.host == host and other.rank != rank and not lives(other.pid)]


def _named(message: str, members: Sequence[GroupMember]) -> int | None:
    return next((member.rank for member in members if message.startswith(f"{member} ")), None)


def lives(pid: int) -> bool:
    """Return whether a process of this number is here; one that has ended and was not yet waited for does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
