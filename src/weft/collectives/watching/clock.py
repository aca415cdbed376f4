"""The offset between the clocks of the hosts, found by asking rank 0 for the time again and again, as NTP does.

The clock is the monotonic one: it never jumps, and where a host keeps time with NTP it runs at the right rate, so that
what was found at the start holds for the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns as now
from typing import Any, NamedTuple

import torch

from weft.collectives.members import GroupMember

ROUNDS = 16
_TAG = 71_001  # of messages nobody else reads


class RankClock(NamedTuple):
    """The offset to add to our clock to have that of rank 0, and by how much that may be wrong."""

    offset_ns: int = 0
    error_ns: int = 0


def best_of(answers: Sequence[tuple[int, int, int]]) -> RankClock:
    """Of exchanges (sent, time at rank 0, came back) the quickest tells most. Pure."""
    sent, there, back = min(answers, key=lambda answer: answer[2] - answer[0])
    return RankClock(there - (sent + back) // 2, (back - sent + 1) // 2)


def align(gloo: Any, store: Any, rank: int, members: Sequence[GroupMember]) -> RankClock:
    """Find out; all members call. One rank of each other host asks, for all of them."""
    askers = {member.host: member.rank for member in reversed(members)}
    askers.pop(members[0].host)
    asker = askers.get(members[rank].host)
    if rank == 0:
        for other in askers.values():
            _answer(gloo, other)
    if asker is None:
        return RankClock()
    if rank == asker:
        clock = best_of([_ask(gloo) for _ in range(ROUNDS)])
        store.set(f"clock/{rank}", f"{clock.offset_ns} {clock.error_ns}")
        return clock
    return RankClock(*map(int, store.get(f"clock/{asker}").split()))


def _ask(gloo: Any) -> tuple[int, int, int]:
    time = torch.zeros(1, dtype=torch.int64)
    sent = now()
    gloo.send([time], 0, _TAG).wait()
    gloo.recv([time], 0, _TAG).wait()
    return sent, int(time), now()


def _answer(gloo: Any, other: int) -> None:
    time = torch.zeros(1, dtype=torch.int64)
    for _ in range(ROUNDS):
        gloo.recv([time], other, _TAG).wait()
        time[0] = now()
        gloo.send([time], other, _TAG).wait()
