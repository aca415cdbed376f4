"""Who may be ended: never the only holder of the newest commit, whatever each agent knows of the others' decisions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.elastic.membership.copies import SPARED_S, may_end
from weft.elastic.membership.reports import WorkerReport, WorkerState


def report(name: str, commit: int, idle_s: float = 0.0, *, ending: bool = False) -> WorkerReport:
    return WorkerReport(name, 0, WorkerState.MEMBER, commit=commit, idle_s=idle_s, ending=ending)


def ends(name: str, *reports: WorkerReport, idle_s: float = 12.0, saved: bool = False) -> bool:
    return may_end(name, reports, idle_s=idle_s, saved=saved)


def test_a_worker_whose_commit_another_has_may_be_ended() -> None:
    assert ends("a", report("a", 303, 12.0), report("b", 303))
    assert ends("a", report("a", 303, 12.0), report("b", 304))


def test_the_only_holder_of_a_commit_stays_beside_newcomers_and_members_that_are_behind() -> None:
    assert not ends("a", report("a", 303, 12.0))
    assert not ends("a", report("a", 303, 12.0), report("b", 0), report("c", 302))


def test_a_worker_that_is_being_ended_is_no_holder() -> None:
    assert not ends("a", report("a", 303, 12.0), report("b", 303, 13.0, ending=True))


def test_who_has_committed_nothing_may_be_ended() -> None:
    assert ends("a", report("a", 0, 12.0))


def test_with_a_checkpoint_to_go_back_to_patience_with_the_only_holder_ends() -> None:
    assert not ends("a", report("a", 303), idle_s=SPARED_S - 1, saved=True)
    assert ends("a", report("a", 303), idle_s=SPARED_S + 1, saved=True)
    assert not ends("a", report("a", 303), idle_s=SPARED_S + 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=6))
def test_a_holder_of_the_newest_commit_is_left_when_all_are_judged_at_once(
    workers: list[tuple[int, int, bool]],
) -> None:
    reports = [
        report(f"w{index}", commit, float(idle), ending=ending)
        for index, (commit, idle, ending) in enumerate(workers)
    ]
    here = [each for each in reports if not each.ending]
    newest = max((each.commit for each in here), default=0)
    left = [each for each in here if not ends(each.worker, *reports)]
    assert newest == 0 or any(each.commit == newest for each in left)
