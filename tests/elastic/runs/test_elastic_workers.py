"""Workers that die, hang, fail and leave, on one host: the others go on, and nothing of the result changes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tests.elastic.local_run import LocalRun, undisturbed

pytestmark = pytest.mark.long

reference = cache(undisturbed)
Start = Callable[..., LocalRun]


def faults(*texts: str) -> list[str]:
    return [part for text in texts for part in ("--fault", text)]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def begin(
        limits: str, workers: int, *args: str, flags: tuple[str, ...] = ("--detect-within", "2")
    ) -> LocalRun:
        return LocalRun(tmp_path, limits, workers, ["--reproducible", *args], flags).start()

    return begin


def test_kills_at_every_moment_of_a_step_change_nothing(start: Start) -> None:
    """Before the reduction, on its brink, and after the step was applied; the first rank, too."""
    asked = [
        "localhost/1.0:2:kill-forward",
        "localhost/2.0:4:kill-reduce",
        "localhost/0.0:6:kill-commit",
        "localhost/1.1:9:kill-commit",
    ]
    run = start("2:3", 3, "--epochs", "3", *faults(*asked)).finish()
    assert all(run.fired(fault) for fault in asked), run.output
    assert {fault.split(":")[0] for fault in asked} <= set(run.lost("death"))
    run.check(reference("--epochs", "3"))


def test_kills_while_starting_and_while_healing(start: Start) -> None:
    asked = [
        "localhost/1.0:*:kill-start",
        "localhost/1.1:3:kill-forward",
        "localhost/1.2:*:kill-heal",
    ]
    run = start("2:2", 2, *faults(*asked)).finish()
    assert all(run.fired(fault) for fault in asked), run.output
    run.check(reference(), size=2)
    assert {result["worker"] for result in run.results} == {"localhost/0.0", "localhost/1.3"}


def test_workers_that_hang_are_replaced(start: Start) -> None:
    """In a loop, in a deadlock beside a living thread, stopped; computing, and while the others wait with them."""
    asked = [
        "localhost/1.0:2:spin-forward",
        "localhost/1.1:4:deadlock-forward",
        "localhost/1.2:6:stop-reduce",
        "localhost/1.3:8:deadlock-reduce",
    ]
    run = start("2:2", 2, *faults(*asked)).finish()
    assert all(run.fired(fault) for fault in asked), run.output
    assert run.lost("stuck") == [fault.split(":")[0] for fault in asked]
    run.check(reference(), size=2)


def test_a_worker_that_is_asked_to_leave_does_so_at_the_end_of_a_step(start: Start) -> None:
    run = start("1:2", 2, "--pause", "0.02", *faults("localhost/1.0:3:leave-forward")).finish()
    run.check(reference())
    assert run.lost() == []
    # No step was begun in vain: whoever leaves has contributed to every step until its last.
    (change,) = [event for event in run.events("agreed") if event["kind"] == "leave"]
    assert change["members"] == ["localhost/0.0"]


def test_a_worker_that_fails_is_replaced_unless_it_fails_again_and_again(start: Start) -> None:
    asked = [f"localhost/1.{life}:*:fail-forward" for life in range(1, 4)]
    run = start(
        "1:2", 2, "--epochs", "40", "--pause", "0.02", *faults("localhost/1.0:3:fail-forward", *asked)
    )
    run.finish()
    assert run.code == 0
    assert run.lost("death") == [f"localhost/1.{life}" for life in range(3)]
    run.check(reference("--epochs", "40"), size=1)


def test_a_script_that_fails_at_once_ends_the_run(start: Start) -> None:
    run = start("2:2", 2, *faults("localhost/0.0:*:fail-start", "localhost/1.0:*:fail-start")).finish()
    assert run.code == 1
    assert "on purpose" in run.output.splitlines()[-1]


@pytest.mark.parametrize("source", [["--workers", "2"], ["--stream", "--workers", "2"]])
def test_data_from_loader_workers_and_streams_is_consumed_once(start: Start, source: list[str]) -> None:
    fault = "localhost/1.0:3:kill-forward"
    run = start("2:2", 2, *source, *faults(fault)).finish()
    assert run.fired(fault)
    run.check(reference(*source), size=2)


def test_a_scheduler_that_steps_once_an_epoch_does_so_whatever_happens(start: Start) -> None:
    """A member that is healed past the end of an epoch finds the scheduler stepped already."""
    asked = ["localhost/1.0:6:kill-reduce", "localhost/2.0:7:kill-epoch"]
    run = start("2:3", 3, "--per-epoch", "--epochs", "3", *faults(*asked)).finish()
    assert all(run.fired(fault) for fault in asked), run.output
    run.check(reference("--per-epoch", "--epochs", "3"))


def test_without_reproducible_the_result_is_close(tmp_path: Path) -> None:
    fault = "localhost/1.0:3:kill-forward"
    run = LocalRun(tmp_path, "1:2", 2, faults(fault)).start().finish()
    assert run.code == 0
    assert run.fired(fault)
    expected = reference()["sum"]
    assert [result["sum"] for result in run.results] == [pytest.approx(expected, rel=1e-9)] * len(run.results)


def test_a_member_that_misses_a_commit_is_healed_by_those_who_have_it(start: Start) -> None:
    fault = "localhost/1.0:3:miss-reduced"
    run = start("2:2", 2, "--epochs", "3", *faults(fault)).finish()
    assert run.fired(fault)
    assert [event["worker"] for event in run.events("healed") if event["step"] == 4] == ["localhost/1.0"]
    run.check(reference("--epochs", "3"), size=2)
    assert {result["worker"] for result in run.results} == {"localhost/0.0", "localhost/1.0"}


def test_another_mode_serves_as_well(start: Start) -> None:
    """Gloo does not know of elastic runs: what waits in it is given up from outside."""
    asked = ["localhost/1.0:3:kill-forward", "localhost/1.1:5:stop-forward"]
    flags = ("--detect-within", "2", "--mode", "gloo")
    run = start("2:2", 2, *faults(*asked), flags=flags).finish()
    assert all(run.fired(fault) for fault in asked), run.output
    run.check(reference(), size=2)


@pytest.mark.smoke
def test_survivors_keep_their_processes(start: Start) -> None:
    run = start("1:2", 2, "--epochs", "30", "--pause", "0.02")
    run.await_event("stepped", worker="localhost/1.0")
    survivor = run.pid_of("localhost/0.0")
    os.kill(run.pid_of("localhost/1.0"), signal.SIGKILL)
    run.finish()
    run.check(reference("--epochs", "30"))
    assert survivor in {result["pid"] for result in run.results}


def test_all_workers_killed_at_once_begin_again(start: Start) -> None:
    """Without a checkpoint from the first step: what was committed is done again, with the same samples."""
    run = start("2:2", 2, "--epochs", "4", "--pause", "0.02")
    run.await_event("stepped", worker="localhost/1.0")
    for slot in range(2):
        os.kill(run.pid_of(f"localhost/{slot}.0"), signal.SIGKILL)
    run.finish()
    run.check(reference("--epochs", "4"), size=2)


def test_ctrl_c_ends_everything(start: Start) -> None:
    run = start("1:2", 2, "--epochs", "500", "--pause", "0.02")
    run.await_event("stepped", worker="localhost/1.0")
    os.kill(run.pid, signal.SIGINT)
    run.finish(timeout=30)
    assert run.code == 130, run.output
