"""Slow workers and slow links: seen by whoever leads, told, and dealt with as the user asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.elastic.agent.journal import Journal
from weft.elastic.membership.policy import Links, Speeds, slow_links, weights_by_speed
from weft.elastic.membership.view import View


class Slowness:
    """What the leader knows of speeds. `policy` is report, rebalance or evict; `evict` has a worker ended."""

    def __init__(self, policy: str, least: int, journal: Journal, evict: Callable[[str], None]) -> None:
        self._policy, self._least, self._journal, self._evict = policy, least, journal, evict
        self._speeds = Speeds()
        self._links = Links()
        self._told: set[str] = set()
        self._weights: dict[str, float] | None = None

    def forget_weights(self) -> None:
        """A view was decided: what was wanted for the one before is void."""
        self._weights = None

    def weights(self, view: View, micros: Mapping[str, list[float]]) -> dict[str, float] | None:
        """Other shares for the members of a view, from how many micro-batches each has computed in how many seconds."""
        now = {member.worker: member.weight for member in view.members}
        if len(now) < 2 or not micros.keys() >= now.keys():
            return None
        if self._speeds.look({worker: (int(micros[worker][0]), micros[worker][1]) for worker in now}):
            for worker in sorted(self._speeds.slow - self._told):
                factor = self._speeds.seconds[worker] / self._speeds.usual
                self._tell(view, [worker], f"{factor:.1f} times as slow as usual")
            self._told = set(self._speeds.slow)
            if self._policy == "rebalance":
                self._weights = weights_by_speed(self._speeds.seconds, self._speeds.slow, now)
        return self._weights

    def look_at_links(self, view: View, round_trip_s: Mapping[tuple[str, str], float]) -> None:
        """See whose link is slow, from how long words take between each two agents."""
        known = self._links.slow
        self._links.look(round_trip_s)
        for agent in sorted((self._links.slow - known) & view.agents):
            own_s, usual_s = slow_links(round_trip_s)[agent]
            who = [member.worker for member in view.members if member.agent == agent]
            cause = f"behind a slow link: answers in {1e3 * own_s:.0f} ms, others in {1e3 * usual_s:.1f} ms"
            self._tell(view, who, cause)

    def _tell(self, view: View, who: list[str], cause: str) -> None:
        self._journal.event(
            "detected", view=view.number, kind="slow", who=who, cause=cause, policy=self._policy
        )
        if self._policy == "evict" and view.size - len(who) >= self._least:
            for worker in who:
                self._evict(worker)
