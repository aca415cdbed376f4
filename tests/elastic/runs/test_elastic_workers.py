"""Workers that die, hang, fail and leave, on one host: the others go on, and nothing of the result changes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from testing.elastic.local_run import TRAIN, LocalRun, Reference, held
from testing.forking.server import ForkServer

pytestmark = pytest.mark.long

Start = Callable[..., LocalRun]


def faults(*texts: str) -> list[str]:
    return [part for text in texts for part in ("--fault", text)]


@pytest.fixture
def start(tmp_path: Path, forks: ForkServer) -> Start:
    def begin(
        limits: str, workers: int, *args: str, flags: tuple[str, ...] = ("--detect-within", "2")
    ) -> LocalRun:
        return LocalRun(tmp_path, limits, workers, ["--reproducible", *args], flags, forks=forks).start()

    return begin


def test_kills_at_every_moment_of_a_step_change_nothing(start: Start, reference: Reference) -> None:
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


def test_kills_while_starting_and_while_healing(start: Start, reference: Reference) -> None:
    asked = [
        "localhost/1.0:*:kill-start",
        "localhost/1.1:3:kill-forward",
        "localhost/1.2:*:kill-heal",
    ]
    run = start("2:2", 2, *faults(*asked)).finish()
    assert all(run.fired(fault) for fault in asked), run.output
    run.check(reference(), size=2)
    assert {result["worker"] for result in run.results} == {"localhost/0.0", "localhost/1.3"}


def test_workers_that_hang_are_replaced(start: Start, reference: Reference) -> None:
    """In a deadlock beside a living thread, stopped; computing, and while the others wait with them."""
    asked = [
        "localhost/1.0:4:deadlock-forward",
        "localhost/1.1:6:stop-reduce",
        "localhost/1.2:8:deadlock-reduce",
    ]
    run = start("2:2", 2, *faults(*asked)).finish()
    assert all(run.fired(fault) for fault in asked), run.output
    assert run.lost("stuck") == [fault.split(":")[0] for fault in asked]
    run.check(reference(), size=2)


def test_a_worker_in_an_endless_loop_is_replaced_after_a_longer_time(
    start: Start, reference: Reference
) -> None:
    """It computes, as a long validation does."""
    fault = "localhost/1.0:2:spin-forward"
    run = start("2:2", 2, *faults(fault), flags=("--detect-within", "0.4")).finish()
    assert run.fired(fault)
    assert run.lost("stuck") == ["localhost/1.0"]
    assert "though it computes; long work inside the loop belongs into `with run.busy():`" in run.output
    run.check(reference(), size=2)


def test_nobody_is_taken_for_stuck_in_a_first_step_a_validation_or_a_wait_of_all(tmp_path: Path) -> None:
    script = str(Path(TRAIN).with_name("slow_moments.py"))
    run = LocalRun(tmp_path, "2:2", 2, flags=("--detect-within", "0.5"), script=script).start().finish()
    assert run.code == 0, run.output
    assert run.lost() == [], run.output
    assert run.output.count("committed 8") == 2


@pytest.mark.parametrize("how", ["break", "return", "exit"])
def test_a_loop_that_all_workers_leave_early_is_a_normal_end(
    tmp_path: Path, forks: ForkServer, how: str
) -> None:
    script = str(Path(TRAIN).with_name("early.py"))
    run = LocalRun(tmp_path, "2:2", 2, ["--how", how], script=script, forks=forks).start().finish()
    assert run.code == 0, run.output
    assert run.output.count("left after 6") == (0 if how == "exit" else 2), run.output
    assert run.lost() == []


def test_a_worker_that_leaves_its_loop_alone_is_named_and_the_others_go_on(
    tmp_path: Path, forks: ForkServer
) -> None:
    script = str(Path(TRAIN).with_name("early.py"))
    alone = ["--how", "break", "--only", "localhost/1.0"]
    run = LocalRun(tmp_path, "1:2", 2, alone, ("--detect-within", "0.5"), script, forks).start().finish()
    assert run.code == 0, run.output
    assert "localhost/1.0 left its loop after step 6, the others did not" in run.output
    assert "the others go on without localhost/1.0" in run.output
    assert "left after 6" in run.output
    assert "left after 16" in run.output


@pytest.mark.parametrize(("when", "code"), [("exit", 0), ("script", 1)])
def test_a_worker_that_is_killed_after_its_last_step_has_failed_if_its_script_had_not_ended(
    tmp_path: Path, forks: ForkServer, when: str, code: int
) -> None:
    script = str(Path(TRAIN).with_name("killed_at_end.py"))
    run = LocalRun(tmp_path, "2:2", 2, [when], script=script, forks=forks).start().finish()
    assert run.code == code, run.output
    assert ("localhost/1.0 failed (killed by SIGKILL" in run.output) == bool(code), run.output


def test_a_worker_that_is_asked_to_leave_does_so_at_the_end_of_a_step(
    start: Start, tmp_path: Path, reference: Reference
) -> None:
    run = start("1:2", 2, *held(tmp_path), *faults("localhost/1.0:3:leave-forward"))
    run.await_event("agreed", kind="leave")
    run.go_on()
    run.finish()
    run.check(reference())
    assert run.lost() == []
    # No step was begun in vain: whoever leaves has contributed to every step until its last.
    (change,) = [event for event in run.events("agreed") if event["kind"] == "leave"]
    assert change["members"] == ["localhost/0.0"]


def test_a_worker_that_fails_is_replaced_unless_it_fails_again_and_again(
    start: Start, tmp_path: Path, reference: Reference
) -> None:
    asked = [f"localhost/1.{life}:*:fail-forward" for life in range(1, 4)]
    run = start("1:2", 2, "--epochs", "40", *held(tmp_path), *faults("localhost/1.0:3:fail-forward", *asked))
    run.await_event("detected", kind="death", who=["localhost/1.2"])
    run.go_on()
    run.finish()
    assert run.code == 0
    assert run.lost("death") == [f"localhost/1.{life}" for life in range(3)]
    run.check(reference("--epochs", "40"), size=1)


def test_a_script_that_fails_at_once_ends_the_run(start: Start) -> None:
    run = start("2:2", 2, *faults("localhost/0.0:*:fail-start", "localhost/1.0:*:fail-start")).finish()
    assert run.code == 1
    assert "on purpose" in run.output.splitlines()[-1]


@pytest.mark.parametrize("source", [["--workers", "2"], ["--stream", "--workers", "2"]])
def test_data_from_loader_workers_and_streams_is_consumed_once(
    start: Start, source: list[str], reference: Reference
) -> None:
    fault = "localhost/1.0:3:kill-forward"
    run = start("2:2", 2, *source, *faults(fault)).finish()
    assert run.fired(fault)
    run.check(reference(*source), size=2)


def test_a_scheduler_that_steps_once_an_epoch_does_so_whatever_happens(
    start: Start, reference: Reference
) -> None:
    """A member that is healed past the end of an epoch finds the scheduler stepped already."""
    asked = ["localhost/1.0:6:kill-reduce", "localhost/2.0:7:kill-epoch"]
    run = start("2:3", 3, "--per-epoch", "--epochs", "3", *faults(*asked)).finish()
    assert all(run.fired(fault) for fault in asked), run.output
    run.check(reference("--per-epoch", "--epochs", "3"))


def test_several_backward_passes_and_batches_that_are_left_out(start: Start, reference: Reference) -> None:
    """A turn without a backward pass, a kill before the first reduction of a step, one before the second."""
    script = ("--two-losses", "--leave-out", "--micro", "8", "--epochs", "3")
    asked = ["localhost/1.0:4:kill-reduce", "localhost/1.1:9:kill-again"]
    run = start("2:2", 2, *script, *faults(*asked)).finish()
    assert all(run.fired(fault) for fault in asked), run.output
    run.check(reference(*script), size=2)


def test_a_step_that_is_applied_in_parts_is_undone_when_a_member_is_lost_between_them(
    tmp_path: Path, forks: ForkServer
) -> None:
    script = str(Path(TRAIN).with_name("two_models.py"))
    run = (
        LocalRun(tmp_path, "2:2", 2, ["--kill", "localhost/1.0:5"], script=script, forks=forks)
        .start()
        .finish()
    )
    assert run.code == 0, run.output
    assert run.lost("death") == ["localhost/1.0"]
    assert {(result["committed"], result["steps"]) for result in run.results} == {(16, 16)}, run.output
    assert len({result["digest"] for result in run.results}) == 1


def test_without_reproducible_the_result_is_close(
    tmp_path: Path, forks: ForkServer, reference: Reference
) -> None:
    fault = "localhost/1.0:3:kill-forward"
    run = LocalRun(tmp_path, "1:2", 2, faults(fault), forks=forks).start().finish()
    assert run.code == 0
    assert run.fired(fault)
    expected = reference()["sum"]
    assert [result["sum"] for result in run.results] == [pytest.approx(expected, rel=1e-9)] * len(run.results)


def test_a_member_that_misses_a_commit_is_healed_by_those_who_have_it(
    start: Start, reference: Reference
) -> None:
    fault = "localhost/1.0:3:miss-reduced"
    run = start("2:2", 2, "--epochs", "3", *faults(fault)).finish()
    assert run.fired(fault)
    assert [event["worker"] for event in run.events("healed") if event["step"] == 4] == ["localhost/1.0"]
    run.check(reference("--epochs", "3"), size=2)
    assert {result["worker"] for result in run.results} == {"localhost/0.0", "localhost/1.0"}


def test_another_mode_serves_as_well(start: Start, reference: Reference) -> None:
    """Gloo does not know of elastic runs: what waits in it is given up from outside."""
    asked = ["localhost/1.0:3:kill-forward", "localhost/1.1:5:stop-forward"]
    flags = ("--detect-within", "2", "--mode", "gloo")
    run = start("2:2", 2, *faults(*asked), flags=flags).finish()
    assert all(run.fired(fault) for fault in asked), run.output
    run.check(reference(), size=2)


@pytest.mark.smoke
def test_survivors_keep_their_processes(tmp_path: Path, reference: Reference) -> None:
    run = LocalRun(tmp_path, "1:2", 2, ["--reproducible", "--epochs", "30", *held(tmp_path)]).start()
    run.await_event("stepped", worker="localhost/1.0")
    survivor = run.pid_of("localhost/0.0")
    os.kill(run.pid_of("localhost/1.0"), signal.SIGKILL)
    run.await_event("agreed", kind="death")
    run.go_on()
    run.finish()
    run.check(reference("--epochs", "30"))
    assert survivor in {result["pid"] for result in run.results}


def test_a_second_death_while_the_others_meet_costs_nothing_that_was_committed(
    start: Start, tmp_path: Path, reference: Reference
) -> None:
    """The worker that is left waits in a group whose other member has died, and has the only copy of the state."""
    run = start("1:3", 3, "--epochs", "30", *held(tmp_path))
    run.await_event("stepped", worker="localhost/2.0")
    killed = [run.pid_of(f"localhost/{slot}.0") for slot in (0, 1)]
    os.kill(killed[0], signal.SIGKILL)
    run.await_event("agreed", kind="death")
    os.kill(killed[1], signal.SIGKILL)
    run.go_on()
    run.finish()
    run.check(reference("--epochs", "30"))
    assert run.lost("stuck") == []
    assert "localhost/2.0" in {result["worker"] for result in run.results}


def test_all_workers_killed_at_once_begin_again(start: Start, reference: Reference) -> None:
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
    run.finish(timeout=120)
    assert run.code == 130, run.output
