"""All workers lost at once: what follows begins at the last checkpoint, and ends as if nothing had been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest
from testing.cluster.waiting import PATIENCE_S, wait_until
from testing.elastic.local_run import LocalRun, Reference, held
from testing.forking.server import ForkServer

from weft.elastic.checkpoint import layout
from weft.elastic.history.records import read_ledger
from weft.elastic.launcher.scale import pause

pytestmark = pytest.mark.long

RESULT = ("--epochs", "4")


def started(
    folder: Path,
    limits: str,
    workers: int,
    saved: Path | None,
    *more: str,
    pause: str = "0.3",
    every: str = "3",
    forks: ForkServer | None = None,
) -> LocalRun:
    """A run that takes its time until it is told to `go_on`."""
    folder.mkdir()
    flags = ["--detect-within", "2"]
    if saved is not None:
        flags += ["--checkpoint", str(saved), "--checkpoint-every", every]
    args = ["--reproducible", "--epochs", "4", *held(folder, pause), *more]
    return LocalRun(folder, limits, workers, args, flags, forks=forks).start()


def await_saved(run: LocalRun, saved: Path, step: int) -> int:
    """Wait until a checkpoint from this step on is whole."""
    run.await_event("saved")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        whole = [found.step for found in layout.find(saved) if found.about]
        if whole and whole[0] >= step:
            return whole[0]
        time.sleep(0.005)
    raise AssertionError(f"no checkpoint of step {step}: {run.events()}")


def workers_of(run: LocalRun) -> list[int]:
    """The processes of the workers that were started last, one for each slot."""
    return list(
        {event["worker"].partition(".")[0]: int(event["pid"]) for event in run.events("started")}.values()
    )


def kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=PATIENCE_S)


def test_everything_is_killed_and_started_again_with_another_number_of_workers(
    tmp_path: Path, reference: Reference
) -> None:
    saved = tmp_path / "saved"
    first = started(tmp_path / "first", "2:2", 2, saved)
    at_least = await_saved(first, saved, 6)
    tree = [first.pid, *(child.pid for child in psutil.Process(first.pid).children(recursive=True))]
    kill(tree)
    first.kill()
    newest = layout.find(saved)[0].step
    assert newest >= at_least
    again = started(tmp_path / "again", "1:1", 1, saved, pause="0").finish()
    (resumed,) = [event for event in again.events("healed") if str(saved) in event["sources"][0]]
    assert resumed["step"] == newest
    again_ledger = read_ledger(again.run_dir)
    steps = sorted({record.step for record in again_ledger.records})
    assert steps == list(range(newest, 28))
    before = {record.step for record in read_ledger(first.run_dir).records}
    assert set(range(newest)) <= before
    assert again.code == 0, again.output
    assert {result["digest"] for result in again.results} == {reference(*RESULT)["digest"]}
    assert {result["committed"] for result in again.results} == {28}
    assert layout.find(saved)[0].step == 28  # the end is saved

    refused = started(tmp_path / "refused", "2:2", 2, saved, "--length", "90").finish()
    assert refused.code == 2, refused.output
    assert refused.output.count("got length 90 where it has 100") == 1
    assert (
        "use the same data, batch and seed, or name another --checkpoint" in refused.output.splitlines()[-1]
    )
    assert "Traceback" not in refused.output
    assert layout.find(saved)[0].step == 28


def test_what_can_not_be_a_folder_of_checkpoints_is_misuse(tmp_path: Path, forks: ForkServer) -> None:
    """Found by each worker for itself: the run's exit code is theirs."""
    (tmp_path / "saved").touch()
    run = started(tmp_path / "run", "1:1", 1, tmp_path / "saved", forks=forks).finish()
    assert run.code == 2, run.output
    assert "--checkpoint must be a folder that can be written, got" in run.output.splitlines()[-1]
    assert "Traceback" not in run.output


def test_all_workers_are_killed_and_then_the_agent(
    tmp_path: Path, forks: ForkServer, reference: Reference
) -> None:
    saved = tmp_path / "saved"
    run = started(tmp_path / "run", "2:2", 2, saved, forks=forks)
    await_saved(run, saved, 3)
    kill(workers_of(run))
    back = run.await_event("stepped", worker="localhost/0.1")
    assert back["step"] >= 3
    await_saved(run, saved, back["step"] + 3)
    (agent,) = psutil.Process(run.pid).children()
    agent.kill()
    run.go_on()
    run.finish()
    run.check(reference(*RESULT), size=2)
    resumed = [event["step"] for event in run.events("healed") if str(saved) in event["sources"][0]]
    assert len(resumed) == 2
    assert resumed[1] > resumed[0] >= 3


def test_a_run_whose_only_host_is_taken_away_ends(tmp_path: Path, forks: ForkServer) -> None:
    run = started(tmp_path / "run", "1:1", 1, None, pause="2", forks=forks)
    run.await_event("started")
    (agent,) = psutil.Process(run.pid).children()
    agent.terminate()
    run.finish()
    assert run.code == 1, run.output
    assert "a run must have a host to go on, got none" in run.output


def test_without_a_checkpoint_it_begins_anew(tmp_path: Path, forks: ForkServer, reference: Reference) -> None:
    run = started(tmp_path / "run", "1:1", 1, None, forks=forks)
    run.await_event("stepped", worker="localhost/0.0")
    kill(workers_of(run))
    run.go_on()
    assert run.await_event("stepped", worker="localhost/0.1")["step"] == 0
    run.finish()
    run.check(reference(*RESULT), size=1)


def test_a_member_lost_while_all_save_costs_no_more_than_that_checkpoint(
    tmp_path: Path, forks: ForkServer, reference: Reference
) -> None:
    saved = tmp_path / "saved"
    fault = "localhost/1.0:9:kill-reduce"  # each step is saved: the thread writes the one before
    args = ("--save-all", "--fault", fault)
    run = started(tmp_path / "run", "1:2", 2, saved, *args, pause="0", every="1", forks=forks).finish()
    assert run.fired(fault)
    run.check(reference(*RESULT))
    found = layout.find(saved)
    assert [checkpoint.step for checkpoint in found] == [28, 27]
    assert all(checkpoint.about for checkpoint in found)
    assert sorted(path.name for path in saved.glob("step-*")) == sorted(c.folder.name for c in found)


def test_a_run_that_is_paused_ends_when_a_step_is_saved_and_goes_on_with_other_workers(
    tmp_path: Path, forks: ForkServer, reference: Reference
) -> None:
    saved = tmp_path / "saved"
    first = started(tmp_path / "first", "1:2", 2, saved, every="1000", forks=forks)
    first.await_event("stepped", worker="localhost/1.0")
    pause(first.run_dir)
    first.finish()
    assert first.code == 75, first.output
    assert "weft: paused; start it again with the same --checkpoint to go on" in first.output
    outcome = json.loads((first.run_dir / "outcome.json").read_text())
    assert (outcome["paused"], outcome["failure"], outcome["interrupted_by"]) == (True, None, None)
    step = layout.find(saved)[0].step
    assert step == 1 + max(record.step for record in read_ledger(first.run_dir).records)
    second = started(tmp_path / "second", "1:3", 3, saved, every="1000", forks=forks)
    second.go_on()
    second.finish()
    assert {event["step"] for event in second.events("healed")} == {step}
    assert second.code == 0, second.output
    assert {result["digest"] for result in second.results} == {reference(*RESULT)["digest"]}


def test_a_run_that_cannot_save_is_not_paused(
    tmp_path: Path, forks: ForkServer, reference: Reference
) -> None:
    saved = tmp_path / "saved"
    run = started(tmp_path / "run", "1:2", 2, saved, every="1000", forks=forks)
    run.await_event("stepped", worker="localhost/1.0")
    shutil.rmtree(saved)
    saved.write_text("in the way")
    pause(run.run_dir)
    wait_until(lambda: "could not be saved" in _logs(run), "a line that says so", 60)
    run.go_on()
    run.finish()
    assert run.code == 0, run.output
    assert "weft: the run is not paused, as step" in run.output
    assert {result["digest"] for result in run.results} == {reference(*RESULT)["digest"]}


def _logs(run: LocalRun) -> str:
    return "".join(log.read_text() for log in run.run_dir.glob("rank-*.log"))
