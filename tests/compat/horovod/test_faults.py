"""Workers that are killed: fixed worlds raise on all ranks, elastic runs go on."""

from __future__ import annotations

import re

from tests.compat.horovod.conftest import WORKERS, HorovodRuns


def test_workers_killed_during_every_operation_are_outlived(horovod_runs: HorovodRuns) -> None:
    deaths = ("1:step", "3:allgather", "5:broadcast", "7:commit")
    script = str(WORKERS / "elastic_faults.py")
    told = horovod_runs.passes(
        *("run", "--elastic", "1:3", "--env", "FULL=3", "--env", "PYTHONPATH", script),
        *(str(horovod_runs.folder), "9", *deaths),
    )
    assert told.count(": dies during") == len(deaths)
    ends = re.findall(r"done: rank (\d) of 3, pid (\d+), sums \[(.*?)\], resets \[(.*?)\]", told)
    assert sorted(rank for rank, *_ in ends) == ["0", "1", "2"]
    assert len({sums for _, _, sums, _ in ends}) == 1  # the newcomers have the state of those who stayed
    survivor = next(resets for rank, _, _, resets in ends if rank == "0")
    assert survivor.split(", ").count("3") >= len(deaths)  # in one process, all the time


def test_a_rank_that_dies_raises_on_all_others_in_a_fixed_world(horovod_runs: HorovodRuns) -> None:
    script = str(WORKERS / "fixed_faults.py")
    done = horovod_runs.weft("run", "-n", "3", "--grace", "60", script)
    assert done.returncode != 0
    assert done.stdout.count("raised: Horovod has been shut down") == 2
    assert done.stdout.count("later: Horovod has been shut down") == 2
