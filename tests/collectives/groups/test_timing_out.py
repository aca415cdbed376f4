"""Operations that time out say so in the words that scripts look for, and name who did not come."""

from __future__ import annotations

import re

import pytest
from tests.collectives.conftest import Bench

LATE = 1
COLLECTIVES = ("barrier", "own_barrier", "all_reduce", "broadcast")
MONITORED = ("monitored_barrier", "own_monitored_barrier")


@pytest.mark.parametrize("mode", ["shm", "gloo"])
def test_what_ranks_are_told_of_one_that_comes_late(bench: Bench, mode: str) -> None:
    output = bench.passes("late.py", 3, str(LATE), "2", options=("--mode", mode))
    lines = re.findall(r"\[(\d)\] told (\w+) (.*)", output)
    told = {(name, int(rank)): message for rank, name, message in lines}
    for (name, _), message in told.items():
        assert "timed out" in message or (name == "gather" and message == "nothing"), (name, message)
    for name in COLLECTIVES:
        assert {rank for found, rank in told if found == name} == {0, 2}
        for rank in (0, 2):
            if mode == "shm":  # Gloo knows which connection was silent, and not whose
                assert re.match(r"PeerError: rank 1 on \S+ did not come within 2 s", told[name, rank])
    for name in MONITORED:
        for rank in (0, 1, 2):
            assert told[name, rank].startswith("PeerError: Rank 1 failed to pass monitoredBarrier in 2000 ms")
            assert ("this one" if rank == LATE else "no sign of rank 1 on ") in told[name, rank]
    assert {name for name, rank in told if rank == 0} >= {"recv", "gather", "own_wait", "new_group"}
