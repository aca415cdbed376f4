"""Ends of a run whose workers leave their loops early, or of which too few are left."""

from __future__ import annotations

from dataclasses import replace

from weft.elastic.membership.endings import (
    FINISHED,
    LAST_S,
    NEXT,
    RunEnd,
    end_of_loops,
    end_of_slots,
    end_without_launcher,
    others_go_on,
    patience_when_cut_off_s,
)
from weft.elastic.membership.policy import MembershipRules, next_view
from weft.elastic.membership.reports import AgentReport, WorkerReport, WorkerState
from weft.elastic.membership.view import Member, View

VIEW = View(3, tuple(Member(f"a/{slot}.0", "a", "a", slot, "", 0, 0) for slot in range(2)), ("a",))
RULES = MembershipRules(1, 2, gather_s=0.2, broken_s=1.25, waiting_s=2.0, start_within_s=30.0)
MEMBERS = [WorkerReport(f"a/{slot}.0", slot, WorkerState.MEMBER, stepped=3, since=60.0) for slot in range(2)]
LEFT = replace(MEMBERS[1], left=40, left_for=3.0)
WHY = f"a/1.0 left its loop after step 40, the others did not; {NEXT}"


def agents(*workers: WorkerReport) -> list[AgentReport]:
    return [AgentReport("a", "a", "", workers)]


def ends(*workers: WorkerReport, least: int = 1) -> RunEnd | None:
    return end_of_loops(VIEW, agents(*workers), least=least, patience_s=2.0)


def test_a_run_whose_members_all_left_their_loops_is_finished() -> None:
    assert ends(*MEMBERS) is None
    assert ends(MEMBERS[0], LEFT) is None
    assert ends(replace(MEMBERS[0], left=40), LEFT) == FINISHED
    assert ends(LEFT) is None  # another member is lost: first there is a view without it


def test_the_others_go_on_without_a_member_that_left_alone() -> None:
    waits = replace(MEMBERS[0], waits_s=2.5)
    assert ends(waits, LEFT) is None
    change = next_view(VIEW, agents(waits, LEFT), RULES, age_s=60.0)
    assert change is not None
    assert (change.kind, change.urgent, change.view.cause) == ("left", True, WHY)
    assert [member.worker for member in change.view.members] == ["a/0.0"]
    for patient in (agents(MEMBERS[0], LEFT), agents(waits, replace(LEFT, left_for=1.0))):
        assert next_view(VIEW, patient, RULES, age_s=60.0) is None  # the others may leave as well


def test_a_run_with_too_few_left_ends_and_names_the_member() -> None:
    assert ends(replace(MEMBERS[0], waits_s=2.5), LEFT, least=2) == RunEnd(WHY, 1)


def test_a_run_ends_if_only_the_member_that_left_has_its_state() -> None:
    """Those who stay would begin anew, and lose what is committed."""
    newcomer = replace(MEMBERS[0], waits_s=2.5, stepped=-1)
    assert ends(newcomer, LEFT) == RunEnd(WHY, 1)
    assert next_view(VIEW, agents(newcomer, LEFT), RULES, age_s=60.0) is None
    earlier = replace(newcomer, stepped=1)  # no step was committed in this view yet
    assert ends(earlier, LEFT) is None
    assert next_view(VIEW, agents(earlier, LEFT), RULES, age_s=60.0) is not None


def test_nobody_joins_a_run_that_a_member_has_left() -> None:
    ready = WorkerReport("a/2.0", 2, WorkerState.READY, since=9.0)
    rules = replace(RULES, most=3)
    assert next_view(VIEW, agents(*MEMBERS, ready), rules, age_s=60.0) is not None
    assert next_view(VIEW, agents(MEMBERS[0], LEFT, ready), rules, age_s=60.0) is None


def test_places_that_were_given_up() -> None:
    assert end_of_slots(2, 2, [("a failed", 3)]) is None
    assert end_of_slots(1, 2, [("b ended", 0), ("a failed", 3)]) == RunEnd("a failed", 3)
    assert end_of_slots(1, 2, [("b ended", 0)]) == RunEnd("b ended", 1)
    assert end_of_slots(0, 2, [("b ended", 0)]) == FINISHED  # all scripts have come to their end
    assert end_of_slots(0, 1, []) is None


def test_a_run_with_too_few_places_and_no_launcher_ends_after_a_while() -> None:
    def end(quorum: bool, possible: int, waited_s: float) -> RunEnd | None:
        return end_without_launcher(quorum=quorum, possible=possible, least=2, waited_s=waited_s)

    assert end(True, 2, LAST_S + 1) is None
    assert end(False, 1, LAST_S + 1) is None  # who is cut off knows nothing of the run's end
    assert end(True, 1, LAST_S) is None
    too_few = end(True, 1, LAST_S + 1)
    assert too_few is not None
    assert too_few.how.startswith(
        "the run must have at least 2 workers, got places for 1 and no launcher to bring"
    )


HOSTS = ("a", "b", "c", "d")
WIDE = View(7, tuple(Member(f"{host}/0.0", host, host, 0, "", 0, 0) for host in HOSTS), (*HOSTS, "w"))


def host_report(host: str, stepped: int = 7) -> AgentReport:
    return AgentReport(host, host, "", (WorkerReport(f"{host}/0.0", 0, WorkerState.MEMBER, stepped=stepped),))


def patience_s(own: AgentReport, *unreached: AgentReport) -> float:
    return patience_when_cut_off_s(WIDE, own, unreached, alone_s=60.0)


def test_a_host_that_is_cut_off_gives_up_soon_if_the_others_can_do_without_it() -> None:
    own, others = host_report("a"), [host_report(host) for host in "bcd"]
    assert patience_s(own, *others) == 60.0
    assert patience_s(own, *others[:2], AgentReport("w", "w", "", witness=True)) == 60.0
    assert others_go_on(WIDE, own, others)


def test_a_host_that_may_be_the_last_to_have_the_state_waits_for_a_launcher() -> None:
    own, others = host_report("a"), [host_report(host) for host in "bcd"]
    assert patience_s(own) == LAST_S  # all others are known to be dead
    assert patience_s(own, *others[:2]) == LAST_S  # too few are left to decide
    newcomers = [host_report(host, stepped=-1) for host in "bcd"]
    before = host_report("a", stepped=6)
    assert patience_s(before, *newcomers) == LAST_S  # none of them was healed yet
    assert patience_s(own, *newcomers) == 60.0  # all took part in a step since, and have not told of it yet
    strangers = [
        AgentReport(host, host, "", (WorkerReport("x", 0, WorkerState.READY, stepped=5),)) for host in "bcd"
    ]
    assert patience_s(before, *strangers) == LAST_S  # what they have is older than this view


def test_a_host_without_the_state_has_nothing_to_wait_for() -> None:
    assert patience_s(host_report("a", stepped=-1)) == 60.0
    assert patience_s(AgentReport("w", "w", "", witness=True)) == 60.0
