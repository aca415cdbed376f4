"""The judge of the campaign of faults: what it must find in the lines of a run, and what it must not."""

from __future__ import annotations

from benchmarks.faults_harness.judge import StepLine, Verdict, ended_too_late, judge


def line(
    step: int, worker: int, *samples: int, view: int = 1, checksum: int | None = 7, size: int = 2
) -> StepLine:
    return StepLine(float(step), str(worker), 0, step, view, size, samples, checksum)


WHOLE = [line(0, 1, 0, 1), line(0, 2, 2, 3), line(1, 1, 4, 5), line(1, 2, 6, 7)]


def test_a_whole_run_is_sound() -> None:
    assert judge(WHOLE, 8) == Verdict(steps=2, lost=0, doubled=0, missing=0, different=0)


def test_samples_that_are_missing_or_doubled_and_parameters_that_differ_are_found() -> None:
    assert judge(WHOLE[:-1], 8).missing == 2
    assert judge([*WHOLE[:-1], line(1, 2, 5, 6, 7)], 8).doubled == 1
    assert judge([*WHOLE[:-1], line(1, 2, 6, 7, checksum=8)], 8).different == 1


def test_a_worker_that_died_between_the_reduction_and_its_line_has_contributed() -> None:
    assert judge([*WHOLE[:-1], line(1, 2, 6, 7, checksum=None)], 8).sound


def test_a_worker_that_died_so_after_a_change_has_contributed_what_it_held_and_one_that_died_before_has_not() -> (
    None
):
    """Worker 3 is lost before the reduction, 1 computes its share as well, 2 keeps its own and dies after it."""
    before = [line(0, worker, worker, checksum=None, size=3) for worker in (1, 2, 3)]
    after = [line(0, 1, 1, 3, view=2, checksum=None), line(0, 1, 1, 3, view=2)]
    assert judge([*before, *after, line(1, 1, 0, view=3, size=1)], 4).sound
    lost = [line(0, 1, 1, view=2, checksum=None), line(0, 1, 1, view=2)]
    assert judge([*before, *lost, line(1, 1, 0, view=3, size=1)], 4).missing == 1


def test_the_last_step_before_a_death_may_be_done_again_and_no_other() -> None:
    again = [line(1, 1, 4, 5, view=2), line(1, 3, 6, 7, view=2)]
    assert judge([*WHOLE, *again], 8).sound
    from_the_start = [line(0, 3, 0, 1, 2, 3, view=2, size=1), line(1, 3, 4, 5, 6, 7, view=2, size=1)]
    assert judge([*WHOLE, *from_the_start], 8).lost == 1


def test_a_step_that_nobody_applied_is_missing() -> None:
    assert not judge([*WHOLE[:2], line(2, 1, 4, 5), line(2, 2, 6, 7)], 8).sound


def test_a_kill_after_the_last_step_is_told_from_one_before() -> None:
    about_to = line(2, 1, checksum=None)
    assert not ended_too_late([*WHOLE, about_to], [2.5], last_step=2)
    assert not ended_too_late(WHOLE, [0.9], last_step=1)
    assert ended_too_late(WHOLE, [0.2, 1.1], last_step=1)
    assert not ended_too_late(WHOLE, [], last_step=1)
