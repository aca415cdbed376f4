"""Elastic runs on this machine with other numbers of workers while they go on, and with limits of their memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from testing.cluster.waiting import wait_until
from testing.elastic.local_run import WORKERS, LocalRun
from testing.forking.server import ForkServer

from weft.elastic.history.ledger import check
from weft.elastic.launcher.scale import present_workers, scale
from weft.topology.hostlist import parse_hosts

pytestmark = pytest.mark.long

STEADY = str(WORKERS / "steady.py")


def test_fewer_workers_leave_at_the_end_of_a_step_and_more_join(tmp_path: Path, forks: ForkServer) -> None:
    hurry = tmp_path / "hurry"
    args = ["--steps", "400", "--pause", "0.3", "--hurry", str(hurry)]
    flags = ("--detect-within", "10")
    run = LocalRun(tmp_path, "1:3", 3, args, flags=flags, script=STEADY, forks=forks)
    run.start().await_event("stepped", worker="localhost/2.0")
    try:
        assert present_workers(run.run_dir) == {"localhost": 3}
        scale(run.run_dir, parse_hosts("localhost:1"))
        wait_until(lambda: present_workers(run.run_dir) == {"localhost": 1}, "one worker", 60)
        run.await_event("stepped", view=2, worker="localhost/0.0")
        scale(run.run_dir, parse_hosts("localhost:2"))
        run.await_event("stepped", worker="localhost/1.1")
        hurry.touch()
    finally:
        run.finish()
    assert run.code == 0, run.output
    assert not run.lost()
    assert not run.events("replaced")
    assert [event["size"] for event in run.events("agreed")] == [3, 1, 2]
    assert len({result["digest"] for result in run.results}) == 1
    assert {result["committed"] for result in run.results} == {400}
    report = check(run.run_dir)
    assert report.exact
    assert not report.redone
    assert "localhost is to have 1 worker instead of 3" in run.output


HOG = """
import time
from weft import elastic
run = elastic.join()
block = bytearray(2_000_000_000)
time.sleep(300)
"""


def test_a_run_whose_workers_hold_too_much_memory_ends_with_a_sentence(
    tmp_path: Path, forks: ForkServer
) -> None:
    script = tmp_path / "hog.py"
    script.write_text(HOG)
    run = LocalRun(tmp_path, "1:1", 1, flags=("--memory", "1500MB"), script=str(script), forks=forks)
    run.start().finish()
    assert run.code == 137, run.output
    failure = json.loads((run.run_dir / "outcome.json").read_text())["failure"]
    assert failure["reason"].startswith("out of memory: rank 0 (localhost/0.0) used ")
    assert failure["reason"].endswith("its limit is 1.4 GiB (--memory)")
