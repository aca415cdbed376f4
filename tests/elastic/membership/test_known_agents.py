"""An agent knows the others by their last statuses: who is alive, what they can do together, how the run ends."""

from __future__ import annotations

from dataclasses import replace

from weft.elastic.membership.contact import ReachableAgents
from weft.elastic.membership.endings import FINISHED, LAST_S, RunEnd
from weft.elastic.membership.known_agents import KnownAgents
from weft.elastic.membership.policy import MembershipRules
from weft.elastic.membership.reports import AgentReport, AgentStatus, WorkerReport, WorkerState
from weft.elastic.membership.view import Member, View

VIEW = View(3, tuple(Member(f"{name}/0.0", name, name, 0, "", 0, 0) for name in "ab"), ("a", "b", "c"))
RULES = MembershipRules(2, 4, gather_s=0.2, broken_s=1.25, waiting_s=2.0, start_within_s=30.0)


def worker(name: str) -> WorkerReport:
    return WorkerReport(f"{name}/0.0", 0, WorkerState.MEMBER, stepped=3)


def status(
    name: str, *workers: WorkerReport, possible: int = 1, trouble: tuple[str, int] = ("", 0)
) -> AgentStatus:
    return AgentStatus(
        report=AgentReport(name, name, "", workers or (worker(name),)),
        view=VIEW.number,
        voters=VIEW.voters,
        possible=possible,
        trouble=trouble,
        over="",
        code=0,
        micros={},
        round_trip_s={},
        roster={},
    )


class World:
    """Agent `a`, the agents that are alive, and what it knows."""

    def __init__(self) -> None:
        self.own, self.alive = status("a"), {"b", "c"}
        self.known = KnownAgents(
            "a",
            own_status=lambda: self.own,
            own_report=lambda: self.own.report,
            is_alive=lambda name: name in self.alive,
        )
        for name in ("b", "c"):
            self.known.take(name, status(name))


def test_those_who_gave_no_sign_of_life_do_not_count() -> None:
    world = World()
    assert list(world.known.living()) == ["a", "b", "c"]
    assert world.known.reach(VIEW) == ReachableAgents(quorum=True, possible=3)
    world.alive = set()
    assert list(world.known.living()) == ["a"]
    assert world.known.reach(VIEW) == ReachableAgents(quorum=False, possible=1)
    assert [each.worker for each in world.known.workers()] == ["a/0.0"]


def test_a_status_tells_whether_workers_have_changed() -> None:
    world = World()
    assert not world.known.take("b", status("b"))
    assert world.known.take("b", status("b", replace(worker("b"), state=WorkerState.LEAVING)))
    world.known.forget("b")
    assert world.known.take("b", status("b"))


def test_members_who_wait_and_stay_are_found_on_all_hosts() -> None:
    world = World()
    world.known.take("b", status("b", replace(worker("b"), waits_s=1.5)))
    assert world.known.waits_s(VIEW) == {"a/0.0": 0.0, "b/0.0": 1.5}  # c is no member
    leaving = [status(name, replace(worker(name), state=WorkerState.LEAVING)) for name in "ab"]
    world.own = leaving[0]
    assert world.known.others_stay(VIEW)
    world.known.take("b", leaving[1])
    assert not world.known.others_stay(VIEW)


def test_a_run_ends_when_all_left_their_loops_and_when_too_few_are_possible() -> None:
    world = World()
    assert world.known.run_end(VIEW, RULES) is None
    world.own = status("a", possible=0, trouble=("a/0.0 failed", 7))
    world.known.take("b", status("b", possible=0))
    assert world.known.run_end(VIEW, RULES) == RunEnd("a/0.0 failed", 7)
    world = World()
    world.own = status("a", replace(worker("a"), left=9))
    world.known.take("b", status("b", replace(worker("b"), left=9)))
    assert world.known.run_end(VIEW, RULES) == FINISHED


def test_a_host_that_may_be_the_last_with_the_state_waits_longer() -> None:
    world = World()
    world.alive = set()
    assert world.known.patience_when_cut_off_s(VIEW, 10.0) == 10.0  # b has the state, and b and c can decide
    world.known.forget("b")  # known to be dead
    assert world.known.patience_when_cut_off_s(VIEW, 10.0) == LAST_S
