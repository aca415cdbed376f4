"""Whose fault it was: when a group breaks, its ranks agree on the first cause instead of each naming a neighbour.

A rank whose neighbour gave up because of a third one sees only the neighbour. So each rank that fails says in the store
whom it suspects, and follows the suspicions of its suspect to the one who says nothing: that one is dead or cut off.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from torch._C._distributed_c10d import Store

from weft.collectives.members import Member

PATIENCE_S = 1.0  # for the others to say whom they suspect


def first_cause(
    store: Store, members: Sequence[Member], rank: int, message: str, call: str
) -> tuple[str, int | None]:
    """What to say of a failure of ours, and whose fault it is if that can be told.

    `message` opens with the peer we suspect, if we suspect one.
    """
    mine = members[rank]
    dead = [other for other in members if other.host == mine.host and not _lives(other.pid)]
    if dead:
        message = f"{' and '.join(map(str, dead))} died during {call}"
    suspect = dead[0].rank if dead else _suspect(message, members)
    told: dict[int, tuple[int | None, str]] = {}
    # A store whose host is cut off answers nobody: do not wait for it ourselves.
    asking = threading.Thread(
        target=_ask, args=(store, len(members), rank, suspect, message, bool(dead), told), daemon=True
    )
    asking.start()
    asking.join(2 * PATIENCE_S)
    return judge(told, rank, suspect, message)


def judge(
    told: Mapping[int, tuple[int | None, str]], rank: int, suspect: int | None, message: str
) -> tuple[str, int | None]:
    """Follow the suspicions from ours to the end. Pure."""
    seen = {rank}
    while suspect is not None and suspect in told and suspect not in seen:
        seen.add(suspect)
        suspect, message = told[suspect]
    return message, suspect


def _ask(
    store: Store,
    size: int,
    rank: int,
    suspect: int | None,
    message: str,
    sure: bool,
    told: dict[int, tuple[int | None, str]],
) -> None:
    """Say whom we suspect, and hear whom those on the way suspect."""
    try:
        store.set(f"suspect/{rank}", json.dumps([suspect, message]))
        while not sure and suspect is not None and suspect not in told and suspect != rank:
            store.wait([f"suspect/{suspect}"], timedelta(seconds=PATIENCE_S))
            suspect, message = told[suspect] = tuple(json.loads(store.get(f"suspect/{suspect}")))
    except (RuntimeError, OSError):
        return  # the suspect is silent, or the store is gone too


def _suspect(message: str, members: Sequence[Member]) -> int | None:
    return next((member.rank for member in members if message.startswith(f"{member} ")), None)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return pid == os.getpid()
