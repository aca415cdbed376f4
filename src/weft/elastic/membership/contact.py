"""`Contact` notes how long a host has been alone in an elastic run, and says when that ends its part, or the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.elastic.membership.endings import RunEnd, can_go_on, end_without_launcher


@dataclass(frozen=True)
class ReachableAgents:
    """The agents that this host reaches, itself included, by what they can do together."""

    quorum: bool  # they are enough voters to decide on a view
    possible: int  # workers that they can have


class Contact:
    """Notes since when a host has been alone: the run cannot go on from it, and no launcher is heard."""

    def __init__(self, *, least: int, now: float) -> None:
        self._least = least
        self._alone_since = now
        self._patience_s: float | None = None  # while too few voters are reached

    def excuse(self, late_s: float, now: float) -> None:
        """Take off time in which this host itself was stopped and could have heard nobody."""
        self._alone_since = min(now, self._alone_since + late_s)

    def note(self, reach: ReachableAgents, *, launcher_heard_at: float, now: float) -> None:
        """Note until when this host was not alone."""
        goes_on = can_go_on(quorum=reach.quorum, possible=reach.possible, least=self._least)
        self._alone_since = now if goes_on else max(self._alone_since, launcher_heard_at)

    def end_of_run(self, reach: ReachableAgents, now: float) -> RunEnd | None:
        """Return how the run ends, if it does: too few places for workers, and no launcher to help, for long."""
        waited_s = now - self._alone_since
        return end_without_launcher(
            quorum=reach.quorum, possible=reach.possible, least=self._least, waited_s=waited_s
        )

    def gives_up_after_s(
        self, reach: ReachableAgents, now: float, patience_s: Callable[[], float]
    ) -> float | None:
        """Return the patience of a host that was cut off for longer than that; None while it stays in the run.

        `patience_s` is asked once, when too few voters are reached for the first time: later, others that are known to
        be dead may have finished the run.
        """
        if reach.quorum:
            self._patience_s = None
            return None
        if self._patience_s is None:
            self._patience_s = patience_s()
        return self._patience_s if now - self._alone_since > self._patience_s else None
