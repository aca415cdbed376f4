"""What an agent does about its workers, with workers and an agent that are not there."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from weft.elastic.agent.process import FINISHED, LEAVING, MEMBER, READY, STARTING, Slot
from weft.elastic.agent.reactions import Watch
from weft.elastic.membership.view import Member, View
from weft.elastic.timing import Timing

SPEC: dict[str, Any] = {"slots": [{"number": 0, "rank": 0, "env": {}}], "grace": 3.0}


class Worker:
    """A ward without a process."""

    alive, evicted, followed = True, "", False

    def __init__(self, state: str) -> None:
        self.name, self.slot, self.state = "a/0.0", Slot(0, 0, {}), state
        self.signals: list[int] = []
        self.told: list[str] = []

    def tell(self, message: dict[str, Any]) -> None:
        self.told.append(message["do"])

    def ask_to_leave(self) -> None:
        self.state = LEAVING

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.signals.append(number)


class Agent:
    over, leaving = "", False
    view = View(1, (Member("a/0.0", "a", "a", 0, "", 0, 0),), ("a",))

    def look_soon(self) -> None: ...
    def tell_all(self) -> None: ...


class Journal:
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, name: str, **about: Any) -> None:
        self.events.append(name)


def watch_over(*workers: Worker) -> tuple[Watch, Journal]:
    agent: Any = Agent()
    journal: Any = Journal()
    nobody: Any = None
    watch = Watch(SPEC, agent, journal, nobody, Timing())
    wards: Any = dict(enumerate(workers))
    watch.household._wards = wards
    return watch, journal


def test_one_that_was_to_leave_and_is_done_with_the_others_goes_by_itself() -> None:
    worker: Any = Worker(LEAVING)
    watch, _ = watch_over(worker)
    watch.dismiss(finished=True)
    assert (worker.state, worker.told, worker.signals) == (FINISHED, ["over"], [])


def test_one_that_was_let_go_and_is_still_there_is_asked_again() -> None:
    worker: Any = Worker(LEAVING)
    worker.name = "a/0.1"
    watch, _ = watch_over(worker)
    watch.dismiss(finished=True)
    assert (worker.told, worker.signals) == ([], [signal.SIGTERM])


@pytest.mark.parametrize("state", [STARTING, READY])
def test_one_that_takes_no_part_yet_goes_at_once_when_asked_and_is_replaced(state: str) -> None:
    worker: Any = Worker(state)
    watch, journal = watch_over(worker)
    watch.said(worker, {"say": "leaving"})
    assert worker.signals == [signal.SIGKILL]
    watch.household._wards.clear()
    watch.ended(worker, -signal.SIGKILL, worker.state)
    watch.ended(worker, -signal.SIGKILL, worker.state)
    assert journal.events == ["detected", "replaced"]  # once
    assert not watch.household.empty


@pytest.mark.parametrize("state", [MEMBER, LEAVING])
def test_a_member_whose_host_is_taken_away_ends_its_step_even_if_it_was_to_leave_before(state: str) -> None:
    worker = Worker(state)
    watch, _ = watch_over(worker)
    watch.take_away()
    assert (worker.state, worker.signals) == (LEAVING, [])


def test_others_of_such_a_host_are_ended() -> None:
    workers = [Worker(STARTING), Worker(READY)]
    watch, _ = watch_over(*workers)
    watch.take_away()
    assert [worker.signals for worker in workers] == [[signal.SIGKILL]] * 2
