"""Collectives on their way, with a network that moves as the test says."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from weft.collectives.modes.messages.passage import PassageMover, Steps
from weft.errors import CollectiveError, PeerError


class Message:
    """A request that is done when the test says so."""

    def __init__(self, *, came: bool = False) -> None:
        self.came = came

    def Test(self) -> bool:  # noqa: N802 (mpi4py's spelling)
        return self.came


def all_came(messages: list[Message]) -> bool:
    return all(message.came for message in messages)


def look_away(idle_s: float, missing: list[int]) -> None:
    """Nobody is missed."""


@pytest.fixture
def mover() -> Iterator[PassageMover]:
    kept: list[object] = []
    built = PassageMover(
        all_came, patience_s=0, look=look_away, explain=lambda error: error, abandon=kept.extend
    )
    yield built
    built.close()


def test_steps_follow_what_came(mover: PassageMover) -> None:
    seen = []

    def steps() -> Steps:
        seen.append("begun")
        yield [(1, Message(came=True))]
        seen.append("on")
        yield []  # nothing to wait for in this step
        seen.append("done")

    mover.run([steps()])
    assert seen == ["begun", "on", "done"]
    assert not mover.busy


def test_who_waits_for_the_last_has_waited_for_all(mover: PassageMover) -> None:
    late = Message()

    def first() -> Steps:
        yield [(1, late)]

    def second() -> Steps:
        yield [(1, Message(came=True))]
        ended.set()

    ended = threading.Event()
    passage = mover.post([first(), second()])
    assert ended.wait(60)  # the second has ended its steps, but not its passage
    waiter = threading.Thread(target=passage.wait)
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    late.came = True
    waiter.join(60)
    assert not waiter.is_alive()


def test_those_who_are_missing_are_looked_at_and_everyone_hears_of_it() -> None:
    def look(idle_s: float, missing: list[int]) -> None:
        assert idle_s > 0
        raise PeerError(f"{missing} did not come")

    def steps() -> Steps:
        yield [(3, Message()), (2, Message(came=True)), (3, Message()), (1, Message())]

    kept: list[object] = []
    mover = PassageMover(all_came, patience_s=0, look=look, explain=lambda error: error, abandon=kept.extend)
    passages = [mover.post([steps()]) for _ in range(5)]  # more than may be under way at once
    for passage in passages:
        with pytest.raises(PeerError, match=r"\[3, 1\] did not come"):
            passage.wait()
    with pytest.raises(PeerError, match="did not come"):
        mover.post([steps()]).wait()  # nor is there anyone to carry out what comes later


def test_what_the_network_raises_is_explained() -> None:
    def steps() -> Steps:
        yield []
        raise OSError("the cable")

    kept: list[object] = []
    mover = PassageMover(
        all_came,
        patience_s=0,
        look=look_away,
        explain=lambda error: PeerError(f"a peer was lost: {error}"),
        abandon=kept.extend,
    )
    with pytest.raises(PeerError, match="a peer was lost: the cable"):
        mover.run([steps()])
    assert len(kept) == 1  # the network may still use its memory


def test_nobody_waits_for_what_was_posted_to_a_mover_that_is_closed(mover: PassageMover) -> None:
    def steps() -> Steps:
        yield []

    mover.post([steps()]).wait()
    mover.close()
    with pytest.raises(CollectiveError, match="closed"):
        mover.post([steps()]).wait()
