"""Many changes in one run, and members that are slow; on one host."""

from __future__ import annotations

import json
import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest
from testing.cluster.waiting import wait_until
from testing.elastic.local_run import WORKERS, LocalRun
from testing.forking.server import ForkServer

from weft.elastic.history.ledger import check
from weft.elastic.history.records import read_ledger

pytestmark = pytest.mark.long

STEADY = str(WORKERS / "steady.py")
SLOW_TO_HEAL = str(WORKERS / "slow_to_heal.py")
CHANGES = 20


def members(run: LocalRun) -> list[str]:
    """Those of the newest view."""
    views = {event["view"]: event["members"] for event in run.events("agreed")}
    return list(views[max(views)]) if views else []


def committed(run: LocalRun) -> int:
    files = (run.run_dir / "elastic").glob("*.ledger.jsonl")
    return sum(line.startswith('{"step"') for file in files for line in file.read_text().splitlines())


@pytest.mark.timeout(600)  # ten workers are started again
def test_twenty_losses_leaves_and_joins_at_random_over_200_steps(tmp_path: Path, forks: ForkServer) -> None:
    hurry = tmp_path / "hurry"
    args = ["--steps", "200", "--pause", "0.15", "--hurry", str(hurry)]
    run = LocalRun(
        tmp_path, "1:3", 3, args, flags=("--detect-within", "5", "--grace", "20"), script=STEADY, forks=forks
    )
    run.start().await_event("stepped")
    chance = random.Random(4)
    planned, killed, due = chance.randrange(4), 0, 0
    try:
        while len(run.events("agreed")) <= CHANGES:
            wait_until(partial(_has, run, due), f"step {due}", 60)
            due = committed(run) + chance.randrange(1, 4)
            there = members(run)
            if len(there) < 2:
                continue  # somebody must be left to go on from
            killed += 1
            asked = killed % 4 == planned
            _signal(run.pid_of(chance.choice(there)), signal.SIGTERM if asked else signal.SIGKILL)
        hurry.touch()
    finally:
        run.finish()
    kinds = [event["kind"] for event in run.events("detected")]
    print({kind: kinds.count(kind) for kind in sorted(set(kinds))}, len(run.events("agreed")), "views")
    is_sound(run, finished=len(members(run)))
    assert kinds.count("death") + kinds.count("leave") >= CHANGES // 2 - 1
    assert {result["committed"] for result in run.results} == {200}


def _has(run: LocalRun, steps: int) -> bool:
    return committed(run) >= steps


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def test_who_is_asked_to_leave_is_replaced_while_its_host_is_wanted(
    tmp_path: Path, forks: ForkServer
) -> None:
    hurry = tmp_path / "hurry"
    args = [
        "--steps",
        "400",
        "--pause",
        "0.6",
        "--hurry",
        str(hurry),
    ]  # minutes, if a busy machine needs them
    run = LocalRun(
        tmp_path, "2:3", 3, args, flags=("--detect-within", "10", "--grace", "1"), script=STEADY, forks=forks
    )
    run.start().await_event("stepped", worker="localhost/2.0")
    try:
        _signal(run.pid_of("localhost/2.0"), signal.SIGTERM)
        run.await_event("replaced", worker="localhost/2.0")
        run.await_event("stepped", worker="localhost/2.1")
        # With neither of them the run would have too few: they leave when others are there.
        for worker in ("localhost/1.0", "localhost/2.1"):
            _signal(run.pid_of(worker), signal.SIGTERM)
        for worker in ("localhost/1.1", "localhost/2.2"):
            run.await_event("stepped", worker=worker)
        hurry.touch()
    finally:
        run.finish()
    is_sound(run, finished=3)
    assert not run.lost()
    assert all(event["size"] >= 2 for event in run.events("agreed"))
    asked = ["localhost/2.0", "localhost/1.0", "localhost/2.1"]
    assert sorted(event["worker"] for event in run.events("replaced")) == sorted(asked)
    assert not check(run.run_dir).redone
    assert "another worker takes the place of localhost/1.0: its host is still wanted" in run.output


def test_the_others_compute_while_a_newcomer_is_healed(tmp_path: Path, forks: ForkServer) -> None:
    run = LocalRun(tmp_path, "1:2", 2, [str(tmp_path)], script=SLOW_TO_HEAL, forks=forks).start().finish()
    assert (tmp_path / "computed").exists(), run.output
    is_sound(run, finished=2)
    assert {result["committed"] for result in run.results} == {120}


def steady(forks: ForkServer, folder: Path, limits: str, workers: int, slow: str, policy: str) -> LocalRun:
    args = ["--steps", "60", "--pause", "0.04", "--slow", slow]
    run = LocalRun(
        folder,
        limits,
        workers,
        args,
        flags=("--slow", policy, "--detect-within", "5"),
        script=STEADY,
        forks=forks,
    )
    return run.start().finish()


def seen_at(run: LocalRun, worker: str) -> int:
    """After how many steps a worker was found slow."""
    event = next(
        event for event in run.events("detected") if event["kind"] == "slow" and event["who"] == [worker]
    )
    return sum(record.t < event["t"] for record in read_ledger(run.run_dir).records)


def shares(run: LocalRun, worker: str) -> list[int]:
    """How many micro-batches of each step a worker computed."""
    lines = [
        line
        for file in (run.run_dir / "elastic").glob("*.ledger.jsonl")
        for line in file.read_text().splitlines()
    ]
    records = [record for record in map(json.loads, lines) if "step" in record]
    return [
        len(record["parts"].get(worker, ())) for record in sorted(records, key=lambda record: record["step"])
    ]


def is_sound(run: LocalRun, finished: int) -> None:
    assert run.code == 0, run.output
    assert len(run.results) == finished, run.output
    assert len({result["digest"] for result in run.results}) == 1
    assert check(run.run_dir).exact


def test_a_slow_worker_gets_less_to_do(tmp_path: Path, forks: ForkServer) -> None:
    run = steady(forks, tmp_path, "2:2", 2, "localhost/1=0.08", "rebalance")
    is_sound(run, finished=2)
    assert seen_at(run, "localhost/1.0") <= 20
    computed = shares(run, "localhost/1.0")
    assert computed[0] == 2
    assert computed[-1] == 1


def test_a_slow_worker_is_sent_away(tmp_path: Path, forks: ForkServer) -> None:
    run = steady(forks, tmp_path, "2:3", 3, "localhost/2=0.08", "evict")
    is_sound(run, finished=2)
    assert seen_at(run, "localhost/2.0") <= 20
    assert members(run) == ["localhost/0.0", "localhost/1.0"]
    assert not run.lost()
    assert "times as slow as usual (evict)" in run.output
