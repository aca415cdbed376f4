"""Ends of a run, pure: whether the run is over because its workers left their loops, or cannot have enough workers.

A script may leave its loop early, as early stopping does. If all members do so after the same step, that is the end of
the run. A member that leaves alone while the others wait for it is named, and the others go on without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.elastic.membership.council import is_quorum
from weft.elastic.membership.reports import AgentReport, WorkerReport
from weft.elastic.membership.view import View

NEXT = "what decides on leaving the loop must have the same value on all workers"


@dataclass(frozen=True)
class RunEnd:
    """The end of a run: `finished`, or why it failed, and its exit code."""

    how: str
    code: int


FINISHED = RunEnd("finished", 0)
PAUSED = RunEnd("paused", 75)  # as EX_TEMPFAIL: to be started again
ALONE_S = 60.0  # until a host that was cut off from the others and from its launcher ends its workers
LAST_S = 600.0  # the same of hosts that cannot go on and may be the last ones to have the training state


def members_who_left(reports: Iterable[WorkerReport], patience_s: float) -> tuple[WorkerReport, ...]:
    """Return the members that have left their loops alone: others have waited for them for `patience_s`."""
    members = list(reports)
    left = tuple(report for report in members if report.left >= 0)
    waits_s = max((report.waits_s for report in members if report.left < 0), default=0.0)
    if not left or min(waits_s, *(report.left_for for report in left)) < patience_s:
        return ()
    return left


def describe_left(left: Sequence[WorkerReport]) -> str:
    """Say which workers left their loops alone, and after which step."""
    names = ", ".join(f"{report.worker} left its loop after step {report.left}" for report in left)
    return f"{names}, the others did not; {NEXT}"


def end_of_loops(
    view: View, agents: Iterable[AgentReport], *, least: int, patience_s: float
) -> RunEnd | None:
    """Return how the run ends, if it does, because members left their loops."""
    here = {report.worker: report for agent in agents for report in agent.workers}
    members = [here[member.worker] for member in view.members if member.worker in here]
    if members and len(members) == view.size and all(report.left >= 0 for report in members):
        return FINISHED
    left = members_who_left(members, patience_s)
    rest = [report for report in members if report.left < 0]
    too_few = len(rest) < least or not any(report.has_state for report in rest)
    return RunEnd(describe_left(left), 1) if left and too_few else None


def end_of_slots(possible: int, least: int, troubles: Sequence[tuple[str, int]]) -> RunEnd | None:
    """Return how the run ends if only so many workers are possible; `troubles`: why places were given up, and codes.

    A place whose script came to its end with exit code 0 counts as no trouble, if all have.
    """
    if possible >= least or not troubles:
        return None
    worst = next((trouble for trouble in troubles if trouble[1]), None)
    if worst is not None:
        return RunEnd(*worst)
    return FINISHED if not possible else RunEnd(troubles[0][0], 1)


def end_without_launcher(*, quorum: bool, possible: int, least: int, waited_s: float) -> RunEnd | None:
    """Return how a run ends that has too few places for workers, with no launcher to help it, for `waited_s` now.

    `quorum`: enough voters are reached to decide on a view. `possible`: workers that the hosts that are reached can
    have. Nobody else would ever end such a run.
    """
    if not quorum or possible >= least or waited_s <= LAST_S:
        return None
    return RunEnd(
        f"the run must have at least {least} workers, got places for {possible} and no launcher to bring hosts in for "
        f"{LAST_S:g} s; start it again, or adopt it sooner",
        1,
    )


def others_go_on(view: View, own: AgentReport, unreached: Iterable[AgentReport]) -> bool:
    """Return whether the agents that `own` does not reach and does not know to be dead can do without it.

    They can if they are enough to decide on the next view, and a member on one of their hosts has the training state:
    all members hold the newest commit or compute the step after it, so nothing is lost with this host. A step that was
    committed here in this view shows that all its members have the state, even if they have not told of it yet.
    """
    there = {report.agent for report in unreached if report.agent != own.agent}
    holders = {worker.worker for report in unreached for worker in report.workers if worker.has_state}
    stepped = any(worker.stepped == view.number for worker in own.workers)
    with_state = [m for m in view.members if m.agent in there and (stepped or m.worker in holders)]
    return bool(with_state) and is_quorum(view.voters, there)


def patience_when_cut_off_s(
    view: View, own: AgentReport, unreached: Sequence[AgentReport], *, alone_s: float
) -> float:
    """Return for how long a host waits that reaches too few voters and no launcher, before it ends its workers.

    `unreached`: the last reports of agents that are out of reach and not known to be dead. Without a worker that has
    the training state there is nothing to keep. A host that may be the last to have it waits for a launcher that adopts
    the run.
    """
    has_state = any(worker.has_state for worker in own.workers)
    if not has_state or others_go_on(view, own, unreached):
        return alone_s
    return max(alone_s, LAST_S)


def can_go_on(*, quorum: bool, possible: int, least: int) -> bool:
    """Return whether the hosts that are reached can decide on a view with enough workers."""
    return quorum and possible >= least
