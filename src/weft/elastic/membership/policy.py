"""Who should be in the next view, from what the agents report: a pure function, asked by whoever leads.

Somebody lost changes the view at once; somebody who comes, leaves or is slow changes it at the end of a step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from weft.elastic.membership.view import Member, View, order_members

SLOW_FACTOR = 1.4  # so that 1.5 is surely seen
SLOW_MICROS = 6  # micro-batches over which speeds are compared
RARE, FEWEST = 4, 2  # one with a small share is not waited for; it is compared if it has computed a few
LEAST_WEIGHT = 0.05
LINK_FACTOR, LINK_S = 4.0, 0.02  # so much longer, and by so much, must words take over a link that is slow


@dataclass(frozen=True)
class WorkerReport:
    """One worker, as its agent sees it."""

    worker: str
    slot: int
    state: str  # starting, ready, member, leaving, gone
    store_port: int = 0
    heal_port: int = 0
    since: float = 0.0  # for how many seconds it has been in that state
    broken: int = -1  # the view whose group it could not make or lost
    broken_for: float = 0.0
    stepped: int = -1  # the last view in which it committed a step: it has the state
    waiting_s: float = -1.0  # for how long it has waited for the others; -1: it does not

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class AgentReport:
    """One host's workers."""

    agent: str
    host: str
    address: str
    workers: tuple[WorkerReport, ...] = ()
    witness: bool = (
        False  # it votes but has no workers: the launcher's, so that either of two hosts may be lost
    )

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "workers": [worker.to_json() for worker in self.workers]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> AgentReport:
        return cls(**{**data, "workers": tuple(WorkerReport(**worker) for worker in data["workers"])})


@dataclass(frozen=True)
class Rules:
    """What the user asked for."""

    least: int
    most: int
    gather_s: float  # a change waits so long for others who come at the same time
    broken_s: float
    waiting_s: float  # if all members wait for each other for so long, one of them must be stuck in it
    start_within_s: float  # the first view waits so long for all


@dataclass(frozen=True)
class Change:
    """A view that should follow, and whether it can wait for the end of the step."""

    view: View
    urgent: bool
    kind: str  # death, join, leave, slow, broken, start


def next_view(
    view: View,
    agents: Sequence[AgentReport],
    rules: Rules,
    *,
    age_s: float = 0.0,
    waited_s: float = 0.0,
    expected: int | None = None,
    weights: Mapping[str, float] | None = None,
) -> Change | None:
    """The view that should follow; None if all is well, or if too few are there.

    `agents`: those that are alive. `age_s`: since the present view was decided. `waited_s`: since the first worker of
    the run was ready; `expected`: how many the run was started for. `weights`: new shares for slow members.
    """
    here = {report.worker: (agent, report) for agent in agents for report in agent.workers}
    # Names are never used again, so who is there under its name is a member, even if its agent said so before it
    # knew of the view.
    staying = [member for member in view.members if member.worker in here]
    leaving = [member for member in staying if here[member.worker][1].state == "leaving"]
    lost = [member for member in view.members if member not in staying]
    known = {member.worker for member in staying}
    ready = [
        _member(*here[name]) for name in sorted(here) if here[name][1].state == "ready" and name not in known
    ]
    broken = _broken_for(view, here)
    if not view.members:
        wanted = min(rules.most, expected or rules.most)
        if len(ready) < rules.least or (len(ready) < wanted and waited_s < rules.start_within_s):
            return None
        return _change(view, agents, [], ready, rules, "start", "the run begins", urgent=True)
    if lost:
        return _change(view, agents, staying, ready, rules, "death", f"lost {_names(lost)}", urgent=True)
    if leaving:
        change = _see_off(view, agents, staying, leaving, ready, rules, here)
        if change is not None:
            return change
    if min(broken, age_s) >= rules.broken_s:
        return _change(view, agents, staying, ready, rules, "broken", "the group broke", urgent=True)
    if min(age_s, *(here[member.worker][1].waiting_s for member in staying)) >= rules.waiting_s:
        return _change(view, agents, staying, ready, rules, "broken", "all wait for each other", urgent=True)
    if not _stepped(view, staying, here):
        return None
    if ready and len(staying) < rules.most and broken < 0:
        newest = min(here[member.worker][1].since for member in ready)
        if newest >= rules.gather_s or len(staying) + len(ready) >= rules.most:
            return _change(
                view, agents, staying, ready, rules, "join", f"{_names(ready)} joins", urgent=False
            )
    if weights:
        shifted = [replace(member, weight=weights.get(member.worker, member.weight)) for member in staying]
        if shifted != staying:
            return _change(view, agents, shifted, [], rules, "slow", "shares follow speeds", urgent=False)
    return None


def _see_off(
    view: View,
    agents: Sequence[AgentReport],
    staying: Sequence[Member],
    leaving: Sequence[Member],
    ready: Sequence[Member],
    rules: Rules,
    here: Mapping[str, tuple[AgentReport, WorkerReport]],
) -> Change | None:
    """Go on without those who leave, as soon as somebody else has the state."""
    rest = [member for member in staying if member not in leaving]
    if _stepped(view, rest, here):
        return _change(view, agents, rest, ready, rules, "leave", f"{_names(leaving)} leaves", urgent=False)
    if rest or not ready or not _stepped(view, leaving, here):
        return None
    room = replace(rules, most=rules.most + len(leaving))
    cause = f"{_names(ready)} joins before {_names(leaving)} leaves"
    return _change(view, agents, staying, ready, room, "join", cause, urgent=False)


def _change(
    view: View,
    agents: Sequence[AgentReport],
    staying: Sequence[Member],
    ready: Sequence[Member],
    rules: Rules,
    kind: str,
    cause: str,
    *,
    urgent: bool,
) -> Change | None:
    coming = list(ready)[: max(0, rules.most - len(staying))]
    if len(staying) + len(coming) < rules.least:
        return None
    if not staying and not coming:
        return None
    members = order_members(view.members, [*staying, *coming])
    watching = {member.agent for member in members}
    before = [voter for voter in view.voters if voter in watching]
    witnesses = [agent.agent for agent in agents if agent.witness]
    voters = choose_voters([*before, *sorted(watching.difference(before))], witnesses)
    return Change(View(view.number + 1, members, voters, cause), urgent, kind)


def choose_voters(agents: Sequence[str], witnesses: Iterable[str]) -> tuple[str, ...]:
    """Who decides what follows: those with workers, and a witness where they could be parted into equal halves."""
    if len(agents) % 2:
        return tuple(agents)
    return (*agents, *sorted(witnesses)[:1])


def _names(members: Iterable[Member]) -> str:
    return ", ".join(member.worker for member in members)


def _member(agent: AgentReport, report: WorkerReport) -> Member:
    return Member(
        worker=report.worker,
        agent=agent.agent,
        host=agent.host,
        slot=report.slot,
        address=agent.address,
        store_port=report.store_port,
        heal_port=report.heal_port,
    )


def _stepped(
    view: View, members: Iterable[Member], here: Mapping[str, tuple[AgentReport, WorkerReport]]
) -> bool:
    """Whether one of these has committed a step in this view.

    Then all members have made its group. Before that, a change that does not interrupt anybody could part them: a
    newcomer that hears of both views at once goes to the later one, and the others wait for it in the earlier.
    """
    return any(here[member.worker][1].stepped >= view.number for member in members)


def _broken_for(view: View, here: Mapping[str, tuple[AgentReport, WorkerReport]]) -> float:
    """For how long a member has had no group; -1 if all have theirs."""
    reports = [here[member.worker][1] for member in view.members if member.worker in here]
    return max((report.broken_for for report in reports if report.broken >= view.number), default=-1.0)


class Speeds:
    """Who takes longer for a micro-batch than the others, from looks at how many each has computed, and in what time.

    Speeds are compared over windows in which everyone has computed some; one is slow, or no longer slow, when two
    windows in a row say so.
    """

    def __init__(self, micros: int = SLOW_MICROS, factor: float = SLOW_FACTOR) -> None:
        self._micros, self._factor = micros, factor
        self._since: dict[str, tuple[int, float]] = {}  # micro-batches and busy seconds when the window began
        self._before: frozenset[str] = frozenset()
        self.seconds: dict[str, float] = {}  # for a micro-batch, in the last window
        self.slow: frozenset[str] = frozenset()

    def look(self, counts: Mapping[str, tuple[int, float]]) -> bool:
        """Take in what each member has computed by now; whether that ended a window."""
        if counts.keys() != self._since.keys():
            self._begin(counts)
            return False
        done = {worker: counts[worker][0] - self._since[worker][0] for worker in counts}
        fewest, most = min(done.values(), default=0), max(done.values(), default=0)
        if fewest < self._micros and most < RARE * self._micros:
            return False
        self.seconds = {
            worker: (counts[worker][1] - self._since[worker][1]) / count
            for worker, count in done.items()
            if count >= FEWEST
        }
        now = frozenset(slow_members(self.seconds, self._factor))
        self.slow = (now & self._before) | (self.slow & (now | self._before))
        self._before = now
        self._since = dict(counts)
        return True

    def _begin(self, counts: Mapping[str, tuple[int, float]]) -> None:
        """Others take part than before. The first micro-batch of a worker is like no other, so it is left out."""
        if any(not micros for micros, _ in counts.values()):
            return
        self._since = dict(counts)
        self._before &= counts.keys()
        self.slow &= counts.keys()

    @property
    def usual(self) -> float:
        return median([own for worker, own in self.seconds.items() if worker not in self.slow] or [1.0])


class Links:
    """Whose link is slow, from how long the words between agents take, there and back.

    A link that training keeps busy holds up the agents' words as well. A host is found slow, or no longer slow, when
    two looks in a row say so; with two hosts nobody knows at whose end it is.
    """

    def __init__(self) -> None:
        self._before: frozenset[str] = frozenset()
        self.slow: frozenset[str] = frozenset()

    def look(self, seconds: Mapping[tuple[str, str], float]) -> None:
        """Take in the usual time for each pair of agents."""
        now = frozenset(slow_links(seconds))
        self.slow = (now & self._before) | (self.slow & (now | self._before))
        self._before = now


def slow_links(seconds: Mapping[tuple[str, str], float]) -> dict[str, tuple[float, float]]:
    """Agents whose words take far longer than those between the others; with both times."""
    found = {}
    for agent in {agent for pair in seconds for agent in pair}:
        own = [time for pair, time in seconds.items() if agent in pair]
        others = [time for pair, time in seconds.items() if agent not in pair]
        if others and median(own) > max(LINK_FACTOR * median(others), median(others) + LINK_S):
            found[agent] = median(own), median(others)
    return found


def slow_members(seconds: Mapping[str, float], factor: float = SLOW_FACTOR) -> tuple[str, ...]:
    """Who takes that much longer for a micro-batch than the others do."""
    slow = []
    for worker, own in seconds.items():
        others = [other for name, other in seconds.items() if name != worker]
        if others and own > factor * median(others):
            slow.append(worker)
    return tuple(slow)


def weights_by_speed(
    seconds: Mapping[str, float], slow: Collection[str], now: Mapping[str, float]
) -> dict[str, float] | None:
    """Shares by speed for those who are slow, a whole one for the others; None if those they have now will do."""
    usual = median([own for worker, own in seconds.items() if worker not in slow] or [1.0])
    wanted = {
        worker: round(min(1.0, max(LEAST_WEIGHT, usual / seconds[worker])), 2)
        if worker in slow and worker in seconds
        else 1.0
        for worker in now
    }
    # Speeds are never quite the same twice: shares move only when it is worth a change of view.
    return wanted if any(abs(wanted[worker] - now[worker]) > 0.2 * now[worker] for worker in now) else None
