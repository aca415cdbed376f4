"""`KnownAgents` keeps the last status of every agent of a run, and tells which agents are alive and what they have."""

from __future__ import annotations

from collections.abc import Callable

from weft.elastic.membership.contact import ReachableAgents
from weft.elastic.membership.copies import may_end
from weft.elastic.membership.council import is_quorum
from weft.elastic.membership.endings import RunEnd, end_of_loops, end_of_slots, patience_when_cut_off_s
from weft.elastic.membership.policy import MembershipRules
from weft.elastic.membership.reports import AgentReport, AgentStatus, WorkerReport, WorkerState
from weft.elastic.membership.view import View


class KnownAgents:
    """The statuses of all agents that are known to one of them, itself included.

    `own_status` makes its own status, and `own_report` the report in it, which costs less. `is_alive` tells whether
    another agent has given a sign of life lately.
    """

    def __init__(
        self,
        name: str,
        *,
        own_status: Callable[[], AgentStatus],
        own_report: Callable[[], AgentReport],
        is_alive: Callable[[str], bool],
    ) -> None:
        self._name, self._is_alive = name, is_alive
        self._own_status, self._own_report = own_status, own_report
        self._statuses: dict[str, AgentStatus] = {}  # the last one of every other agent

    def take(self, agent: str, status: AgentStatus) -> bool:
        """Keep the status that another agent has sent; return whether states of its workers have changed."""
        before = self._statuses.get(agent)
        self._statuses[agent] = status
        return before is None or _worker_states(before) != _worker_states(status)

    def forget(self, agent: str) -> None:
        """Forget an agent whose process has ended."""
        self._statuses.pop(agent, None)

    def living(self) -> dict[str, AgentStatus]:
        """Return the agents that are alive, the own one first, with their statuses."""
        return {self._name: self._own_status(), **self._others_alive()}

    def _others_alive(self) -> dict[str, AgentStatus]:
        return {name: status for name, status in self._statuses.items() if self._is_alive(name)}

    def workers(self) -> list[WorkerReport]:
        """Return the workers of all agents that are alive."""
        reports = [self._own_report(), *(status.report for status in self._others_alive().values())]
        return [worker for report in reports for worker in report.workers]

    def waits_s(self, view: View) -> dict[str, float]:
        """Return the seconds for which each member of a view, here or elsewhere, has waited for the others."""
        waits = {worker.worker: worker.waits_s for worker in self.workers()}
        return {member.worker: waits[member.worker] for member in view.members if member.worker in waits}

    def others_stay(self, view: View) -> bool:
        """Return whether a member of a view, here or elsewhere, is not about to leave."""
        members = {member.worker for member in view.members}
        return any(
            worker.worker in members and worker.state != WorkerState.LEAVING for worker in self.workers()
        )

    def may_end(self, worker: str, *, idle_s: float, saved: bool) -> bool:
        """Return whether a worker that is stuck can be ended without the loss of a committed step."""
        return may_end(worker, self.workers(), idle_s=idle_s, saved=saved)

    def reach(self, view: View) -> ReachableAgents:
        """Return what the agents that are alive can do together."""
        living = self.living()
        possible = sum(status.possible for status in living.values())
        return ReachableAgents(is_quorum(view.voters, living.keys()), possible)

    def run_end(self, view: View, rules: MembershipRules) -> RunEnd | None:
        """Return how the run ends, if it does: scripts have left their loops, or too few workers can ever be there."""
        statuses = list(self.living().values())
        reports = [status.report for status in statuses]
        troubles = [status.trouble for status in statuses if status.trouble[0]]
        return end_of_loops(view, reports, least=rules.least, patience_s=rules.waiting_s) or end_of_slots(
            sum(status.possible for status in statuses), rules.least, troubles
        )

    def patience_when_cut_off_s(self, view: View, alone_s: float) -> float:
        """Return for how long this host waits, now that it is cut off, before it ends its workers."""
        alive = self._others_alive()
        unreached = [status.report for name, status in self._statuses.items() if name not in alive]
        return patience_when_cut_off_s(view, self._own_report(), unreached, alone_s=alone_s)


def _worker_states(status: AgentStatus) -> list[tuple[str, WorkerState]]:
    return [(worker.worker, worker.state) for worker in status.report.workers]
