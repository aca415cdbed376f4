"""The time-outs of an elastic run, all from one number: within how many seconds a fault must be noticed."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import UsageError

DETECT_WITHIN_S = 2.0  # the default
SHORTEST_S = 0.4  # with less, the agents' status messages would cost more than they tell
LONGEST_S = 3600.0


@dataclass(frozen=True)
class Timing:
    """The time-outs that follow from `detect_within`, in seconds; each says what it leaves room for."""

    detect_within: float = DETECT_WITHIN_S
    steps_to_be_stuck: float = 3.0  # a step may take longer than detect_within: then in steps

    def __post_init__(self) -> None:
        if not SHORTEST_S <= self.detect_within <= LONGEST_S:
            raise UsageError(
                f"detect_within must be between {SHORTEST_S:g} and {LONGEST_S:g} seconds, "
                f"got {self.detect_within:g}"
            )
        assert self.beat_s * 4 <= self.silence_s < self.detect_within, "the ladder of time-outs must rise"

    @property
    def beat_s(self) -> float:
        """Return the seconds between two status messages of an agent to the others."""
        return self.detect_within / 16

    @property
    def silence_s(self) -> float:
        """Return the silence after which a host is lost: eight beats, half of which are left to agree on it."""
        return self.detect_within / 2

    @property
    def look_s(self) -> float:
        """Return the seconds between two checks of the workers' progress."""
        return self.detect_within / 20

    @property
    def retry_s(self) -> float:
        """Return the seconds until a proposal that found no quorum is made again."""
        return self.detect_within / 8

    @property
    def broken_s(self) -> float:
        """Return when a group that broke without a loss is formed again; a silent host is known by then."""
        return self.silence_s + 2 * self.beat_s

    @property
    def gather_s(self) -> float:
        """Return the seconds for which a change of view waits for workers that join at the same time."""
        return self.detect_within / 10

    @property
    def all_idle_s(self) -> float:
        """Return after how long without progress an idle worker is stuck, even if others make none either."""
        return 15 * self.detect_within

    @property
    def busy_s(self) -> float:
        """Return after how long without progress a computing worker is stuck if all others wait for it."""
        return 60 * self.detect_within

    @property
    def all_busy_s(self) -> float:
        """Return after how long without progress a computing worker is stuck, even if others make none either."""
        return 150 * self.detect_within

    def stuck_s(self, step_s: float) -> float:
        """Return after how long without progress an idle worker, whose steps take `step_s`, may be stuck."""
        return max(self.detect_within, self.steps_to_be_stuck * step_s)
