"""Who should be in the next view, from what the agents report: a pure function, asked by whoever leads.

Somebody lost changes the view at once; somebody who comes, leaves or is slow changes it at the end of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from weft.elastic.view import Member, View, order_members

SLOW_FACTOR = 1.4  # so that 1.5 is surely seen
SLOW_MICROS = 8  # micro-batches over which speeds are compared


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

    `agents`: those that are alive. `age_s`: since the present view was decided. `waited_s`: since the first worker of the run was ready; `expected`: how many the
    run was started for. `weights`: new shares for slow members.
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
        return _change(view, [], ready, rules, "start", "the run begins", urgent=True)
    if lost:
        names = ", ".join(member.worker for member in lost)
        return _change(view, staying, ready, rules, "death", f"lost {names}", urgent=True)
    if leaving:
        names = ", ".join(member.worker for member in leaving)
        rest = [member for member in staying if member not in leaving]
        return _change(view, rest, ready, rules, "leave", f"{names} leaves", urgent=False)
    if min(broken, age_s) >= rules.broken_s:
        return _change(view, staying, ready, rules, "broken", "the group broke", urgent=True)
    if min(age_s, *(here[member.worker][1].waiting_s for member in staying)) >= rules.waiting_s:
        return _change(view, staying, ready, rules, "broken", "all wait for each other", urgent=True)
    if ready and len(staying) < rules.most and broken < 0:
        newest = min(here[member.worker][1].since for member in ready)
        if newest >= rules.gather_s or len(staying) + len(ready) >= rules.most:
            names = ", ".join(member.worker for member in ready)
            return _change(view, staying, ready, rules, "join", f"{names} joins", urgent=False)
    if weights:
        shifted = [replace(member, weight=weights.get(member.worker, member.weight)) for member in staying]
        if shifted != staying:
            return _change(view, shifted, [], rules, "slow", "shares follow speeds", urgent=False)
    return None


def _change(
    view: View,
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
    agents = {member.agent for member in members}
    before = [voter for voter in view.voters if voter in agents]
    voters = (*before, *sorted(agents.difference(before)))
    return Change(View(view.number + 1, members, voters, cause), urgent, kind)


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


def _broken_for(view: View, here: Mapping[str, tuple[AgentReport, WorkerReport]]) -> float:
    """For how long a member has had no group; -1 if all have theirs."""
    reports = [here[member.worker][1] for member in view.members if member.worker in here]
    return max((report.broken_for for report in reports if report.broken >= view.number), default=-1.0)


def slow_members(seconds: Mapping[str, float], factor: float = SLOW_FACTOR) -> tuple[str, ...]:
    """Who takes that much longer for a micro-batch than the others do."""
    slow = []
    for worker, own in seconds.items():
        others = [other for name, other in seconds.items() if name != worker]
        if others and own > factor * median(others):
            slow.append(worker)
    return tuple(slow)


def weights_by_speed(seconds: Mapping[str, float], slow: Iterable[str]) -> dict[str, float]:
    """Shares by speed for those who are slow; a whole one for the others."""
    slow = set(slow)
    usual = median([own for worker, own in seconds.items() if worker not in slow] or [1.0])
    return {
        worker: round(max(0.05, usual / own), 2) if worker in slow else 1.0 for worker, own in seconds.items()
    }
