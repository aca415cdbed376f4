"""The policy of membership, pure: from the agents' reports, which view should follow the present one.

A lost member changes the view at once; a worker that joins, leaves or is slow changes it at the end of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from weft.elastic.membership.endings import describe_left, members_who_left
from weft.elastic.membership.reports import AgentReport, WorkerReport, WorkerState
from weft.elastic.membership.view import Member, View, order_members


@dataclass(frozen=True)
class MembershipRules:
    """The limits within which the leader changes the view; times in seconds."""

    least: int  # workers that the run needs
    most: int  # workers that the run uses
    gather_s: float  # a change waits this long for other workers that join at the same time
    broken_s: float  # a group that broke with no member lost is formed again after this
    waiting_s: float  # if all members wait for each other for this long, the group is formed again
    start_within_s: float  # the first view waits this long for all expected workers


@dataclass(frozen=True)
class ViewChange:
    """A view that should follow, and whether it can wait for the end of the step."""

    view: View
    urgent: bool
    kind: str  # death, join, leave, left, slow, broken, start


@dataclass(frozen=True)
class _Situation:
    """The present view and the workers that are there."""

    view: View
    agents: Sequence[AgentReport]
    rules: MembershipRules

    @cached_property
    def worker_reports(self) -> dict[str, tuple[AgentReport, WorkerReport]]:
        return {report.worker: (agent, report) for agent in self.agents for report in agent.workers}

    def report(self, member: Member) -> WorkerReport:
        return self.worker_reports[member.worker][1]

    @cached_property
    def staying(self) -> list[Member]:
        """Members that are still there.

        Names are never used again, so a worker that is there under a member's name is that member, even if its agent
        reported it before it knew of the view.
        """
        return [member for member in self.view.members if member.worker in self.worker_reports]

    @cached_property
    def lost(self) -> list[Member]:
        return [member for member in self.view.members if member not in self.staying]

    @cached_property
    def leaving(self) -> list[Member]:
        return [member for member in self.staying if self.report(member).state == WorkerState.LEAVING]

    @cached_property
    def left(self) -> list[Member]:
        """Members that have left their loops early."""
        return [member for member in self.staying if self.report(member).left >= 0]

    @cached_property
    def left_alone(self) -> tuple[WorkerReport, ...]:
        """The reports of members that have left their loops early while the others go on."""
        return members_who_left(map(self.report, self.staying), self.rules.waiting_s)

    @cached_property
    def ready(self) -> list[Member]:
        """Workers that are no members and could be, those with the newest commit first."""
        members = {member.worker for member in self.staying}
        return [
            _member(*self.worker_reports[name])
            for name in sorted(
                self.worker_reports, key=lambda name: (-self.worker_reports[name][1].commit, name)
            )
            if self.worker_reports[name][1].state == WorkerState.READY and name not in members
        ]

    @cached_property
    def broken_s(self) -> float:
        """Seconds for which a member has had no group; -1 if all have theirs."""
        reports = [self.report(member) for member in self.staying]
        return max((r.broken_for for r in reports if r.broken >= self.view.number), default=-1.0)

    def stepped(self, members: Iterable[Member]) -> bool:
        """Return whether one of these members has committed a step in this view.

        Then all members have formed its group. Before that, a change that does not interrupt them could part them: a
        newcomer that hears of both views at once goes to the later one, and the others wait for it in the earlier.
        """
        return any(self.report(member).stepped >= self.view.number for member in members)


def next_view(
    view: View,
    agents: Sequence[AgentReport],
    rules: MembershipRules,
    *,
    age_s: float = 0.0,
    waited_s: float = 0.0,
    expected: int | None = None,
    weights: Mapping[str, float] | None = None,
) -> ViewChange | None:
    """Return the view that should follow; None if the present one should stay, or if too few workers are there.

    `agents`: those that are alive. `age_s`: since the present view was decided. `waited_s`: since the first worker of
    the run was ready; `expected`: how many the run was started for. `weights`: new shares for slow members.
    """
    now = _Situation(view, agents, rules)
    if not view.members:
        return _first_view(now, waited_s, expected)
    if now.lost:
        return _change(now, now.staying, now.ready, "death", f"lost {_names(now.lost)}", urgent=True)
    if now.left_alone:
        return _without_left(now)
    if now.leaving:
        change = _without_leaving(now)
        if change is not None:
            return change
    if min(now.broken_s, age_s) >= rules.broken_s:
        return _change(now, now.staying, now.ready, "broken", "the group broke", urgent=True)
    if min(age_s, *(now.report(member).waiting_s for member in now.staying)) >= rules.waiting_s:
        return _change(now, now.staying, now.ready, "broken", "all wait for each other", urgent=True)
    if not now.stepped(now.staying) or now.left:
        return None
    if now.ready and len(now.staying) < rules.most and now.broken_s < 0:
        newest_s = min(now.report(member).since for member in now.ready)
        if newest_s >= rules.gather_s or len(now.staying) + len(now.ready) >= rules.most:
            return _change(now, now.staying, now.ready, "join", f"{_names(now.ready)} joins", urgent=False)
    if weights:
        shifted = [
            replace(member, weight=weights.get(member.worker, member.weight)) for member in now.staying
        ]
        if shifted != now.staying:
            return _change(now, shifted, [], "slow", "shares follow speeds", urgent=False)
    return None


def _first_view(now: _Situation, waited_s: float, expected: int | None) -> ViewChange | None:
    """Begin with all expected workers and voters, or after a while with those that are there."""
    wanted = min(now.rules.most, expected or now.rules.most)
    ready = len(now.ready)
    if ready < now.rules.least or (ready < wanted and waited_s < now.rules.start_within_s):
        return None
    heard = {agent.agent for agent in now.agents}
    if not heard.issuperset(now.view.voters) and waited_s < now.rules.waiting_s:
        return None  # a witness that is heard too late would have no vote until the next change
    return _change(now, [], now.ready, "start", "the run begins", urgent=True)


def _without_left(now: _Situation) -> ViewChange | None:
    """Go on without the members that left their loops alone, if another one has the training state."""
    names = {report.worker for report in now.left_alone}
    rest = [member for member in now.staying if member.worker not in names]
    if not any(now.report(member).has_state for member in rest):
        return None
    return _change(now, rest, now.ready, "left", describe_left(now.left_alone), urgent=True)


def _without_leaving(now: _Situation) -> ViewChange | None:
    """Go on without the members that leave, as soon as another one has the training state."""
    rest = [member for member in now.staying if member not in now.leaving]
    if now.stepped(rest):
        return _change(now, rest, now.ready, "leave", f"{_names(now.leaving)} leaves", urgent=False)
    if rest or not now.ready or not now.stepped(now.leaving):
        return None
    room = replace(now, rules=replace(now.rules, most=now.rules.most + len(now.leaving)))
    cause = f"{_names(now.ready)} joins before {_names(now.leaving)} leaves"
    return _change(room, now.staying, now.ready, "join", cause, urgent=False)


def _change(
    now: _Situation,
    staying: Sequence[Member],
    ready: Sequence[Member],
    kind: str,
    cause: str,
    *,
    urgent: bool,
) -> ViewChange | None:
    """Make the next view of members that stay and as many others as there is room for; None if they are too few."""
    coming = list(ready)[: max(0, now.rules.most - len(staying))]
    if len(staying) + len(coming) < now.rules.least:
        return None
    if not staying and not coming:
        return None
    members = order_members(now.view.members, [*staying, *coming])
    with_members = {member.agent for member in members}
    voting = with_members | _voters_who_stay(now) if len(with_members) > 1 else with_members
    before = [voter for voter in now.view.voters if voter in voting]
    witnesses = [agent.agent for agent in now.agents if agent.witness]
    voters = choose_voters([*before, *sorted(with_members.difference(before))], witnesses)
    return ViewChange(View(now.view.number + 1, members, voters, cause), urgent, kind)


def _voters_who_stay(now: _Situation) -> set[str]:
    """Return the voters that are alive and whose hosts stay, with members or without.

    A host whose worker has just died gets another one in a moment. Without its vote the hosts that are left would be
    fewer than they are, and two of them that are lost meanwhile too many. Where a single host has all members, its
    agent decides alone: it alone can go on.
    """
    leaving = {member.agent for member in now.leaving}
    return {agent.agent for agent in now.agents if not agent.witness} & {*now.view.voters} - leaving


def choose_voters(agents: Sequence[str], witnesses: Iterable[str]) -> tuple[str, ...]:
    """Return the voters: these agents, and a witness where they could be parted into equal halves."""
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
