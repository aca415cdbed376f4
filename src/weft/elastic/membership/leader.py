"""The leader's decisions: which workers are slow, and which view should follow the present one.

The first voter that is alive leads. Every agent has a `Leader`; only that of the agent that leads is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from weft.elastic.membership.policy import MembershipRules, next_view
from weft.elastic.membership.reports import AgentReport, AgentStatus, WorkerState
from weft.elastic.membership.stragglers import SlowFinding, Stragglers
from weft.elastic.membership.view import View
from weft.elastic.timing import Timing

LINK_BEATS = 8  # status messages of an agent between two looks at the round trips


@dataclass(frozen=True)
class LeaderDecision:
    """Findings to report, and the view to propose; None if the present view stays, or a proposal is under way."""

    findings: tuple[SlowFinding, ...]
    proposal: View | None


class Leader:
    """The decisions of one agent while it leads, and its memory of earlier ones. Times are monotonic seconds."""

    def __init__(
        self, rules: MembershipRules, timing: Timing, stragglers: Stragglers, expected: int, *, now: float
    ) -> None:
        self._rules, self._timing, self._stragglers, self._expected = rules, timing, stragglers, expected
        self._first_ready_at: float | None = None
        self._proposed_at = 0.0
        self._view_since = now
        self._links_due_at = 0.0

    def expect(self, workers: int) -> None:
        """Note for how many workers the first view is to wait."""
        self._expected = workers

    def on_view(self, now: float) -> None:
        """Note that a view was decided."""
        self._proposed_at, self._view_since = 0.0, now
        self._stragglers.on_view()

    def decide(
        self,
        view: View,
        living: Mapping[str, AgentReport],
        statuses: Mapping[str, AgentStatus],
        now: float,
    ) -> LeaderDecision:
        """Decide what should follow.

        `living`: the agents that are alive; `statuses`: the last status of each of them.
        """
        if self._first_ready_at is None:
            states = [worker.state for agent in living.values() for worker in agent.workers]
            self._first_ready_at = now if WorkerState.READY in states else None
        with_workers = {agent: statuses[agent] for agent, report in living.items() if not report.witness}
        micros = {worker: counts for each in statuses.values() for worker, counts in each.micros.items()}
        findings = (
            *self._look_at_links(view, with_workers, now),
            *self._stragglers.look_at_speeds(view, micros),
        )
        return LeaderDecision(
            findings, self._propose(view, living, self._stragglers.weights(view, micros), now)
        )

    def _propose(
        self,
        view: View,
        living: Mapping[str, AgentReport],
        weights: Mapping[str, float] | None,
        now: float,
    ) -> View | None:
        change = next_view(
            view,
            list(living.values()),
            self._rules,
            age_s=now - self._view_since,
            waited_s=now - self._first_ready_at if self._first_ready_at is not None else 0.0,
            expected=self._expected,
            weights=weights,
        )
        if change is None or now < self._proposed_at + self._timing.retry_s:
            return None
        self._proposed_at = now
        return replace(change.view, cause=f"{change.kind}: {change.view.cause}")

    def _look_at_links(
        self, view: View, statuses: Mapping[str, AgentStatus], now: float
    ) -> Iterator[SlowFinding]:
        """Look for slow links now and then; links to a witness do not count, as no gradients are reduced over them."""
        if now < self._links_due_at:
            return
        self._links_due_at = now + LINK_BEATS * self._timing.beat_s
        round_trip_s = {
            (agent, peer): seconds
            for agent, status in statuses.items()
            for peer, seconds in status.round_trip_s.items()
            if peer in statuses
        }
        yield from self._stragglers.look_at_links(view, round_trip_s)
