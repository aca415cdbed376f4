"""Laws of the council under random schedules: delays, broken links, partitions, deaths, joins, rivals."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import combinations
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.elastic.membership.council import Action, Council, Decided, Send, is_quorum
from weft.elastic.membership.council_messages import CouncilMessage
from weft.elastic.membership.view import Member, View

T = TypeVar("T")


class Notice(Enum):
    """A notice of the transport about a link."""

    LOST, GONE, MET = range(3)


LOST, GONE, MET = Notice.LOST, Notice.GONE, Notice.MET

# Schedules are drawn as bytes: quick to draw, and they shrink well.
schedules = st.binary(min_size=300, max_size=1000)


def view(number: int, members: Iterable[str], voters: Iterable[str], cause: str = "") -> View:
    return View(
        number,
        tuple(Member(f"{name}/0.0", name, name, 0, "127.0.0.1", 1, 2) for name in members),
        tuple(voters),
        cause,
    )


class Choices:
    """A drawn schedule, read choice by choice."""

    def __init__(self, schedule: bytes) -> None:
        self._left = iter(schedule)
        self.over = False

    def number(self, below: int) -> int:
        drawn = next(self._left, None)
        self.over = self.over or drawn is None
        return (drawn or 0) % below

    def one(self, things: Sequence[T]) -> T:
        return things[self.number(len(things))]

    def some(self, things: Sequence[T]) -> list[T]:
        """At least one, beginning anywhere."""
        mask, turn = self.number(1 << len(things)) or -1, self.number(len(things))
        chosen = [thing for index, thing in enumerate(things) if mask >> index & 1]
        return chosen[turn % len(chosen) :] + chosen[: turn % len(chosen)]


class World:
    """Councils, the links between them, and what happened; each law is checked where it could break."""

    def __init__(self, names: Sequence[str], start: View) -> None:
        self.councils = {name: Council(name, start) for name in names}
        self.alive = set(names)
        self.queues: defaultdict[tuple[str, str], deque[CouncilMessage | Notice]] = defaultdict(deque)
        self.linked: set[frozenset[str]] = set()
        self.speaking: set[tuple[str, str]] = set()  # who already uses the link, to whom
        self.doomed: dict[str, int] = {}  # actions to go until death
        self.proposed: set[View] = set()
        self.decided: dict[int, View] = {start.number: start}
        self.contributed: defaultdict[int, set[str]] = defaultdict(set)
        self.stepped = start.number
        for pair in combinations(names, 2):
            self.mend(*pair)
        self.settle()

    def act(self, name: str, actions: Sequence[Action]) -> None:
        """Carry out in order; one who is doomed dies somewhere in between."""
        for action in actions:
            if self.doomed.get(name) == 0:
                break
            if name in self.doomed:
                self.doomed[name] -= 1
            if isinstance(action, Send):
                if (name, action.to) in self.speaking:
                    self.queues[name, action.to].append(action.message)
            else:
                self.check_decision(name, action)
        if self.doomed.get(name) == 0:
            self.die(name)
        council = self.councils[name]
        for number, agents in self.contributed.items():
            if council.fenced or number != council.view.number:
                agents.discard(name)  # what is not complete when the fence goes up is withdrawn

    def check_decision(self, name: str, action: Decided) -> None:
        number = action.view.number
        assert action.view in self.proposed
        assert self.decided.setdefault(number, action.view) == action.view, "two views of one number"

    def propose(self, name: str, members: Iterable[str], voters: Iterable[str]) -> None:
        council = self.councils[name]
        value = view(council.view.number + 1, members, voters, f"{name}, {len(self.proposed)}")
        self.proposed.add(value)
        self.act(name, council.propose(value))

    def deliver(self, pair: tuple[str, str]) -> None:
        sender, name = pair
        message, council = self.queues[pair].popleft(), self.councils[name]
        before = council.view.number
        if message is LOST:
            actions = council.lost(sender)
        elif message is GONE:
            actions = council.gone(sender)
        elif message is MET:
            self.speaking.add((name, sender))
            actions = council.met(sender)
        else:
            assert isinstance(message, CouncilMessage)
            actions = council.receive(sender, message)
        rising = [before] + [action.view.number for action in actions if isinstance(action, Decided)]
        assert rising == sorted(set(rising))
        assert rising[-1] == council.view.number
        self.act(name, actions)

    def waiting(self) -> list[tuple[str, str]]:
        return [pair for pair, queue in self.queues.items() if queue and pair[1] in self.alive]

    def settle(self) -> None:
        while pairs := self.waiting():
            for pair in pairs:
                if self.queues[pair] and pair[1] in self.alive:
                    self.deliver(pair)

    def cut(self, one: str, other: str, notice: Notice = LOST) -> None:
        """Break a link; each end notices in its own time."""
        if frozenset((one, other)) in self.linked:
            self.linked.discard(frozenset((one, other)))
            for pair in ((one, other), (other, one)):
                self.speaking.discard(pair)
                self.queues[pair].clear()
                self.queues[pair].append(notice)

    def mend(self, one: str, other: str) -> None:
        pair = frozenset((one, other))
        if pair <= self.alive and pair not in self.linked:
            for ends in ((one, other), (other, one)):
                while self.queues[ends] and ends[1] in self.alive:
                    self.deliver(ends)  # the old link is noticed to be broken
            if pair <= self.alive:
                self.linked.add(pair)
                self.queues[one, other].append(MET)
                self.queues[other, one].append(MET)

    def die(self, name: str) -> None:
        """All that was sent arrives where the link was whole, and the proof behind it."""
        self.alive.discard(name)
        self.doomed.pop(name, None)
        for other in self.councils:
            self.linked.discard(frozenset((name, other)))
            self.queues[name, other].append(GONE)  # behind a broken link it must not count

    def step(self, name: str) -> None:
        """This one's workers do their part; a step completes once all members of the view did theirs."""
        council = self.councils[name]
        present, done = council.view, self.contributed[council.view.number]
        if name in present.agents and not council.fenced:
            done.add(name)
            if done == present.agents:
                assert present.number >= self.stepped, "a step of an old view after one of a newer view"
                self.stepped = present.number
                done.clear()


class Chaos:
    """Events at random, each kind as often as this schedule likes: calm ones and wild ones find other faults."""

    def __init__(self, choices: Choices) -> None:
        names = "abcdef"[: choices.one((3, 2, 5, 4, 6, 1))]
        members = choices.some(names)
        self.world = World(names, view(0, members, choices.one((members, choices.some(names), names))))
        self.choices, self.names = choices, names
        self.slow = set(choices.some(names)) if choices.number(2) else set()
        self.deaths = choices.number(len(names) + 1)
        self.contest = choices.number(2)  # over one number, or view after view
        events: list[Callable[[str], None]]
        events = [self.propose, self.again, self.cut, self.mend, self.kill, self.lose_host]
        self.events = [event for event in events for _ in range(choices.one((1, 0, 3)))]
        self.events += [self.propose, *[self.deliver] * choices.one((8, 16, 32))]

    def run(self) -> None:
        while self.world.alive and not self.choices.over:
            self.choices.one(self.events)(self.choices.one(sorted(self.world.alive)))
            for name in sorted(self.world.alive):
                self.world.step(name)

    def propose(self, name: str) -> None:
        if self.contest and self.world.councils[name].view.number:
            return
        members = self.choices.some(self.names)
        self.world.propose(name, members, self.choices.one((members, self.choices.some(self.names))))

    def again(self, name: str) -> None:
        self.world.act(name, self.world.councils[name].again())

    def cut(self, name: str) -> None:
        self.world.cut(name, self.choices.one(self.names))

    def mend(self, name: str) -> None:
        other = self.choices.one(self.names)
        if other != name:
            self.world.mend(name, other)

    def kill(self, name: str) -> None:
        """Now, or in the middle of what it does next."""
        if self.may_die():
            self.world.doomed.setdefault(name, self.choices.number(8))
            self.world.act(name, [])

    def lose_host(self, name: str) -> None:
        """What was on its way is lost too."""
        if self.may_die():
            for other in self.names:
                self.world.cut(name, other)
            self.world.die(name)

    def may_die(self) -> bool:
        dies = self.deaths > 0 and not self.choices.number(4)
        self.deaths -= dies
        return dies

    def deliver(self, _: str) -> None:
        """What goes to slow ones seldom arrives."""
        pairs = self.world.waiting()
        quick = [pair for pair in pairs if self.slow.isdisjoint(pair)]
        if pairs:
            self.world.deliver(self.choices.one(quick if quick and self.choices.number(8) else pairs))


def enough(world: World, present: View) -> bool:
    """Whether those who live can decide what follows this view, without any proof of death."""
    return is_quorum(present.voters, world.alive) and bool(present.agents & world.alive & set(present.voters))


def decide(world: World, name: str) -> None:
    """All messages arrive, and one proposer at a time tries: twice at most, to learn how high to bid."""
    council = world.councils[name]
    before = council.view.number
    world.propose(name, world.alive, sorted(world.alive))
    world.settle()
    for _ in range(2):
        world.act(name, council.again())
        world.settle()
    assert council.view.number > before


@settings(derandomize=True, max_examples=300)
@given(schedules)
def test_views_never_fork_and_a_quorum_goes_on(schedule: bytes) -> None:
    chaos = Chaos(Choices(schedule))
    chaos.run()
    world = chaos.world
    world.doomed.clear()
    for pair in combinations(chaos.names, 2):
        world.mend(*pair)
    world.settle()
    for name in sorted(world.alive):
        present = world.councils[name].view
        if name in present.voters and enough(world, present):
            decide(world, name)
            assert {world.councils[voter].view for voter in world.alive & set(present.voters)} == {
                world.councils[name].view
            }


@settings(derandomize=True, max_examples=60)
@given(st.permutations("abcdef"), st.integers(1, 6), st.data())
def test_with_proof_of_every_death_the_last_one_goes_on(
    order: list[str], size: int, data: st.DataObject
) -> None:
    names = order[:size]
    world = World(names, view(0, names, names))
    for name in names[:-1]:
        if data.draw(st.booleans()):
            world.propose(data.draw(st.sampled_from(sorted(world.alive))), world.alive, sorted(world.alive))
        for pair in world.waiting()[: data.draw(st.integers(0, 4))]:
            world.deliver(pair)
        world.die(name)
    world.settle()
    decide(world, names[-1])


@settings(derandomize=True, max_examples=60)
@given(schedules)
def test_a_minority_never_decides(schedule: bytes) -> None:
    choices = Choices(schedule)
    chaos = Chaos(choices)
    world = chaos.world
    minority = set(choices.some(chaos.names))
    if is_quorum(world.decided[0].voters, minority):
        minority = set(chaos.names) - minority
    world.mend = lambda one, other: None  # type: ignore[method-assign]
    for pair in combinations(chaos.names, 2):
        if len(minority & set(pair)) == 1:
            world.cut(*pair)
    chaos.run()
    world.settle()
    assert {world.councils[name].view.number for name in minority} <= {0}


def test_quorums_intersect() -> None:
    for size in range(1, 7):
        names = "abcdef"[:size]
        sets = [set(chosen) for count in range(size + 1) for chosen in combinations(names, count)]
        quorums = [chosen for chosen in sets if is_quorum(names, chosen)]
        assert all(one & other for one in quorums for other in quorums)
        # Nor is a quorum asked for that need not be: of any set and the rest, one is enough.
        assert all(is_quorum(names, chosen) != is_quorum(names, set(names) - chosen) for chosen in sets)
