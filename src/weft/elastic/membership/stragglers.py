"""Slow workers and slow links, as the leader finds them; what follows is the policy that the user chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.elastic.membership.speeds import LinkSpeeds, Speeds, slow_links, weights_by_speed
from weft.elastic.membership.view import View


@dataclass(frozen=True)
class SlowFinding:
    """Workers that were found to be slow, the cause, and whether they are to leave."""

    workers: tuple[str, ...]
    cause: str
    evict: bool


class Stragglers:
    """The leader's memory of speeds. `policy` is report, rebalance or evict."""

    def __init__(self, policy: str, least: int) -> None:
        self.policy, self._least = policy, least
        self._speeds = Speeds()
        self._links = LinkSpeeds()
        self._reported: set[str] = set()
        self._weights: dict[str, float] | None = None  # other shares for the members of the present view

    def on_view(self) -> None:
        """Forget the shares that were wanted for the view before the one that was decided."""
        self._weights = None

    def weights(self, view: View, micros: Mapping[str, tuple[int, float]]) -> dict[str, float] | None:
        """Return other shares for the members of the view; None if the present ones will do."""
        return self._weights if _is_complete(view, micros) else None

    def look_at_speeds(self, view: View, micros: Mapping[str, tuple[int, float]]) -> Iterator[SlowFinding]:
        """Find slow members, from the micro-batches that each worker has computed and the seconds they took."""
        if not _is_complete(view, micros):
            return
        now = {member.worker: member.weight for member in view.members}
        if not self._speeds.look({worker: micros[worker] for worker in now}):
            return
        for worker in sorted(self._speeds.slow - self._reported):
            factor = self._speeds.seconds[worker] / self._speeds.usual
            yield self._finding(view, (worker,), f"{factor:.1f} times as slow as usual")
        self._reported = set(self._speeds.slow)
        if self.policy == "rebalance":
            self._weights = weights_by_speed(self._speeds.seconds, self._speeds.slow, now)

    def look_at_links(
        self, view: View, round_trip_s: Mapping[tuple[str, str], float]
    ) -> Iterator[SlowFinding]:
        """Find members behind a slow link, from the round trip of messages between each two agents."""
        known = self._links.slow
        self._links.look(round_trip_s)
        for agent in sorted((self._links.slow - known) & view.agents):
            own_s, usual_s = slow_links(round_trip_s)[agent]
            workers = tuple(member.worker for member in view.members if member.agent == agent)
            cause = f"behind a slow link: answers in {1e3 * own_s:.0f} ms, others in {1e3 * usual_s:.1f} ms"
            yield self._finding(view, workers, cause)

    def _finding(self, view: View, workers: tuple[str, ...], cause: str) -> SlowFinding:
        evict = self.policy == "evict" and view.size - len(workers) >= self._least
        return SlowFinding(workers, cause, evict)


def _is_complete(view: View, micros: Mapping[str, tuple[int, float]]) -> bool:
    """Return whether there are several members to compare, and the counts of all of them are known."""
    return view.size > 1 and all(member.worker in micros for member in view.members)
