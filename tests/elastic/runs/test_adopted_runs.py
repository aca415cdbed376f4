"""Elastic runs whose launcher is killed: they go on, and a new launcher takes them over."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from testing.cluster.waiting import wait_until
from testing.elastic.local_run import WORKERS, LocalRun, environment
from testing.forking.server import ForkServer

from weft.elastic.history.ledger import check
from weft.elastic.launcher.adopt import adopt
from weft.elastic.launcher.scale import present_workers, scale
from weft.errors import UsageError
from weft.topology.hostlist import parse_hosts

pytestmark = pytest.mark.long

STEADY = str(WORKERS / "steady.py")


class Orphan:
    """A run on this machine whose launcher was killed."""

    def __init__(self, folder: Path, forks: ForkServer, workers: int = 2, *flags: str) -> None:
        self.folder, self.forks = folder, forks
        args = ["--steps", "300", "--pause", "0.3", "--hurry", str(folder / "hurry"), "--tell"]
        self.run = LocalRun(
            folder,
            f"1:{workers}",
            workers,
            args,
            flags=("--detect-within", "10", *flags),
            script=STEADY,
            forks=forks,
        )
        self.run.start().await_event("stepped", worker=f"localhost/{workers - 1}.0")
        self.agent = _parent_of(self.run.pid_of("localhost/0.0"))
        os.kill(self.run.pid, signal.SIGKILL)
        self.run.finish(timeout=60)

    def adopted(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.forks.weft, "run", "--adopt", str(self.run.run_dir)],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def hurry(self) -> None:
        (self.folder / "hurry").touch()

    def outcome(self) -> dict[str, Any]:
        outcome: dict[str, Any] = json.loads((self.run.run_dir / "outcome.json").read_text())
        return outcome

    def told(self, rank: int) -> list[int]:
        """The steps that a rank printed, as the logs have them."""
        log = self.run.run_dir / f"rank-{rank}.log"
        text = log.read_text() if log.exists() else ""
        return [int(step) for step in re.findall(r"step (\d+)$", text, re.MULTILINE)]

    def is_gone(self) -> None:
        wait_until(lambda: not _is_alive(self.agent), "the end of the agent", 120)


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.timeout(300)
def test_a_new_launcher_takes_over_and_no_line_is_lost_or_doubled(tmp_path: Path, forks: ForkServer) -> None:
    orphan = Orphan(tmp_path, forks)
    run_dir = orphan.run.run_dir
    assert (run_dir / "elastic" / "secret").stat().st_mode & 0o777 == 0o600
    seen = len(orphan.run.events("stepped"))
    with pytest.raises(UsageError, match=r"whose launcher \(process \d+\) is gone; .* --adopt"):
        scale(run_dir, parse_hosts("localhost:1"))
    log, printed = run_dir / "elastic" / "localhost.0.log", len(orphan.told(0))
    wait_until(lambda: log.exists() and log.read_text().count("step") > printed, "output for nobody", 60)
    launcher = orphan.adopted()
    try:
        wait_until(lambda: len(orphan.told(0)) > printed, "what was printed meanwhile", 60)
        with pytest.raises(UsageError, match="whose launcher is alive"):
            adopt(run_dir, out=BytesIO())
        scale(run_dir, parse_hosts("localhost:1"))
        wait_until(lambda: present_workers(run_dir) == {"localhost": 1}, "one worker", 60)
    finally:
        orphan.hurry()
        output, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, output
    assert seen
    assert orphan.outcome()["code"] == 0
    assert orphan.told(0) == list(range(300))
    steps = orphan.told(1)
    assert steps == list(range(len(steps)))
    assert check(run_dir).exact
    orphan.is_gone()
    with pytest.raises(UsageError, match="which has ended"):
        adopt(run_dir, out=BytesIO())


@pytest.mark.timeout(300)
def test_of_two_that_adopt_a_run_that_has_ended_one_writes_how(tmp_path: Path, forks: ForkServer) -> None:
    orphan = Orphan(tmp_path, forks)
    orphan.hurry()
    orphan.is_gone()
    assert not (orphan.run.run_dir / "outcome.json").exists()
    results: list[object] = []

    def take_over() -> None:
        try:
            results.append(adopt(orphan.run.run_dir, out=BytesIO()))
        except UsageError as error:
            results.append(error)

    threads = [threading.Thread(target=take_over) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [result for result in results if isinstance(result, UsageError)]
    assert len(refused) == 1
    assert re.search("whose launcher is alive|which has ended", str(refused[0]))
    assert orphan.outcome()["code"] == 0
    assert orphan.told(0) == list(range(300))
    assert '"committed": 300' in (orphan.run.run_dir / "rank-1.log").read_text()


@pytest.mark.timeout(300)
def test_a_run_that_lost_its_agent_too_is_told_to_be_lost(tmp_path: Path, forks: ForkServer) -> None:
    orphan = Orphan(tmp_path, forks)
    os.kill(orphan.agent, signal.SIGKILL)
    orphan.is_gone()
    outcome = adopt(orphan.run.run_dir, out=BytesIO())
    assert outcome.code == 1
    assert outcome.failure is not None
    assert outcome.failure.reason.startswith(
        "all agents of the run are lost, and its workers with them; start"
    )
    assert orphan.outcome()["failure"]["host"] == "the run"


@pytest.mark.timeout(300)
def test_a_run_that_was_adopted_is_ended_by_a_signal(tmp_path: Path, forks: ForkServer) -> None:
    orphan = Orphan(tmp_path, forks)
    launcher = orphan.adopted()
    control = orphan.run.run_dir / "elastic" / "control.json"
    before = json.loads(control.read_text())["launcher"]
    wait_until(lambda: json.loads(control.read_text())["launcher"] != before, "another launcher", 60)
    wait_until(lambda: present_workers(orphan.run.run_dir) == {"localhost": 2}, "its workers", 60)
    os.kill(json.loads(control.read_text())["launcher"], signal.SIGINT)
    output, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, output
    assert orphan.outcome()["interrupted_by"] == "SIGINT"
    orphan.is_gone()
