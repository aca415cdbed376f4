"""What an agent finds when it leads, as the first voter that is there: which view should follow the present one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from weft.elastic.agent.peers import Message
from weft.elastic.agent.process import READY
from weft.elastic.membership.policy import AgentReport, Rules, next_view
from weft.elastic.membership.stragglers import Slowness
from weft.elastic.membership.view import View
from weft.elastic.timing import Timing

LINK_BEATS = 8  # between two looks at how long words take


class Leading:
    """The leader's looks at all workers of the run, and its memory of them."""

    def __init__(self, rules: Rules, timing: Timing, slowness: Slowness, expected: int) -> None:
        self._rules, self._timing, self._slowness, self._expected = rules, timing, slowness, expected
        self._first_ready_at: float | None = None
        self._proposed_at = 0.0
        self._adopted_at = time.monotonic()
        self._next_look_at_links = 0.0

    def adopted(self) -> None:
        """A view is decided."""
        self._proposed_at, self._adopted_at = 0.0, time.monotonic()
        self._slowness.forget_weights()

    def wish(
        self, view: View, living: Mapping[str, AgentReport], statuses: Mapping[str, Message], now: float
    ) -> View | None:
        """The view to propose now; None if the present one will do, or if it was proposed a moment ago.

        `living`: the agents that are there; `statuses`: what each of them last said of itself.
        """
        if self._first_ready_at is None:
            states = [worker.state for agent in living.values() for worker in agent.workers]
            self._first_ready_at = now if READY in states else None
        hosts = {agent: statuses[agent] for agent, report in living.items() if not report.witness}
        self._look_at_links(view, hosts, now)
        micros = {worker: counts for each in statuses.values() for worker, counts in each["micros"].items()}
        change = next_view(
            view,
            list(living.values()),
            self._rules,
            age_s=now - self._adopted_at,
            waited_s=now - self._first_ready_at if self._first_ready_at is not None else 0.0,
            expected=self._expected,
            weights=self._slowness.weights(view, micros),
        )
        if change is None or now < self._proposed_at + self._timing.retry_s:
            return None
        self._proposed_at = time.monotonic()
        return replace(change.view, cause=f"{change.kind}: {change.view.cause}")

    def _look_at_links(self, view: View, statuses: Mapping[str, Message], now: float) -> None:
        """Now and then, see whose link is slow; one to a witness, on which nothing is reduced, says nothing of it."""
        if now < self._next_look_at_links:
            return
        self._next_look_at_links = now + LINK_BEATS * self._timing.beat_s
        round_trip_s = {
            (agent, peer): seconds
            for agent, status in statuses.items()
            for peer, seconds in status["round_trip_s"].items()
            if peer in statuses
        }
        self._slowness.look_at_links(view, round_trip_s)
