"""A worker's end of the link to its agent: what it is given, what it hears, and what ends it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from weft.collectives.settings import CollectiveSettings
from weft.elastic.membership.view import Member, View
from weft.elastic.replica.replica import InView
from weft.elastic.worker.group import ViewGroup
from weft.elastic.worker.link import DESCRIPTORS, AgentLink, RunOver, inherited
from weft.elastic.worker.messages import FROM_WORKER, NewView, ReadyToJoin, RunFinished, WelcomeWorker
from weft.elastic.worker.training_loop import TrainingLoop
from weft.errors import CollectiveError
from weft.messages import encode

VIEW = View(1, (Member("a/0.0", "a", "a", 0, "", 0, 0),), ("a",))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    agent, worker = socket.socketpair()
    with agent, worker:
        yield agent, worker


def given(link: socket.socket, page: int) -> dict[str, str]:
    return {DESCRIPTORS: f"{link.fileno()},{page},{os.fstat(link.fileno()).st_ino}"}


def test_descriptors_are_taken_once_and_nothing_else_is_taken_for_them() -> None:
    agent, worker = socket.socketpair()
    page = os.memfd_create("page")
    environ = given(worker, page)
    taken = inherited(environ)
    worker.detach()
    assert taken is not None
    with taken[0], agent:
        taken[0].sendall(b"x")
        assert agent.recv(1) == b"x"
        assert inherited(environ) is None  # the numbers are free again,
        with socket.socket() as other:
            reused = {DESCRIPTORS: f"{other.fileno()},{other.fileno()},{os.fstat(other.fileno()).st_ino + 1}"}
            assert inherited(reused) is None  # or another file has them
        child = f"import os; from weft.elastic.worker.link import inherited; print(inherited({environ!r}))"
        out = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout
        assert out == "None\n"
    os.close(taken[1])
    assert inherited({}) is None


def test_messages_go_both_ways(ends: tuple[socket.socket, socket.socket]) -> None:
    agent, worker = ends
    link = AgentLink(worker)
    agent.sendall(encode(WelcomeWorker("a/0.0", "secret", 4)) + encode(NewView(VIEW, "a/0.0", urgent=True)))
    assert link.welcome().most == 4
    assert link.await_view(0) == VIEW
    assert link.lost_someone(0)
    link.tell(ReadyToJoin())
    assert FROM_WORKER.decode(agent.recv(1000)) == ReadyToJoin()
    agent.sendall(encode(RunFinished()) + b'{"do": "vi')  # the agent dies in the middle of a line
    agent.shutdown(socket.SHUT_WR)
    with pytest.raises(RunOver):
        link.await_view(1)


@pytest.mark.parametrize("late", [[], [RunFinished()]], ids=["the run goes on", "the run is over by then"])
def test_a_worker_that_was_left_out_hears_so_however_late(
    ends: tuple[socket.socket, socket.socket], late: list[RunFinished]
) -> None:
    agent, worker = ends
    link = AgentLink(worker)
    without = View(2, (Member("a/1.0", "a", "a", 0, "", 0, 0),), ("a",))
    messages = [NewView(VIEW, "a/0.0", urgent=False), NewView(without, "a/0.0", urgent=False), *late]
    agent.sendall(b"".join(map(encode, messages)))
    agent.shutdown(socket.SHUT_WR)
    for thread in threading.enumerate():
        if thread.name == "weft-link":
            thread.join()  # all of it has come
    assert link.await_end(1) is False


def test_a_worker_hears_of_the_end_of_all(ends: tuple[socket.socket, socket.socket]) -> None:
    agent, worker = ends
    link = AgentLink(worker)
    agent.sendall(encode(NewView(VIEW, "a/0.0", urgent=False)) + encode(RunFinished()))
    assert link.await_end(1) is True


def test_a_group_with_members_that_are_done_is_given_up(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may not end for long, and whoever waits for them would end with them only."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    agent, worker = ends
    link = AgentLink(worker)
    agent.sendall(encode(RunFinished()))
    agent.shutdown(socket.SHUT_WR)
    with pytest.raises(RunOver):
        link.await_view(0)
    with pytest.raises(CollectiveError, match="while the group was made"):
        ViewGroup(link, "127.0.0.1", "secret", CollectiveSettings()).form(VIEW, 0)


class Done:
    """A regrouping after the others are done."""

    def __init__(self, place: InView) -> None:
        self._place: InView | None = place

    def adopt(self, *_: Any) -> InView:
        place, self._place = self._place, None
        if place is None:
            raise RunOver
        return place


class Anything:
    """Takes every call, and is empty."""

    def __getattr__(self, name: str) -> Any:
        return Anything()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return Anything()

    def __bool__(self) -> bool:
        return False


def test_a_worker_whose_peers_are_done_ends_in_silence_not_with_an_exception_of_ours() -> None:
    place = InView(VIEW, 0)
    nothing = cast("Any", Anything())
    loop = TrainingLoop(
        nothing, cast("Any", Done(place)), link=nothing, beat=nothing, healing=nothing, saver=nothing
    )
    place.change_due = True
    with pytest.raises(SystemExit) as end:
        loop.next_ticket(0)
    assert end.value.code == 0
