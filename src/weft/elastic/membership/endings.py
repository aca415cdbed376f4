"""Ends of a run, pure: whether the run is over because its workers left their loops, or cannot have enough workers.

A script may leave its loop early, as early stopping does. If all members do so after the same step, that is the end of
the run. A member that leaves alone while the others wait for it is named, and the others go on without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
ALONE_S = 600.0  # until an agent that can neither go on nor be helped ends its workers


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


def end_without_launcher(
    host: str, *, quorum: bool, possible: int, least: int, waited_s: float
) -> RunEnd | None:
    """Return how the run ends on a host that cannot go on, with no launcher to help it, for `waited_s` now.

    `quorum`: enough voters are reached to decide on a view. `possible`: workers that the hosts that are reached can
    have. Nobody else would ever end such a run.
    """
    if can_go_on(quorum=quorum, possible=possible, least=least) or waited_s <= ALONE_S:
        return None
    if not quorum:
        return RunEnd(f"{host} was cut off from the others and from its launcher for {ALONE_S:g} s", 1)
    return RunEnd(
        f"the run must have at least {least} workers, got places for {possible} and no launcher to bring hosts in for "
        f"{ALONE_S:g} s; start it again, or adopt it sooner",
        1,
    )


def can_go_on(*, quorum: bool, possible: int, least: int) -> bool:
    """Return whether the hosts that are reached can decide on a view with enough workers."""
    return quorum and possible >= least
