"""Every time-out of an elastic run, from one number: within how many seconds a fault must be noticed."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import UsageError

DETECT_WITHIN_S = 2.0
SHORTEST_S = 0.4  # below it the beats would cost more than they tell


@dataclass(frozen=True)
class Timing:
    """What follows from `detect_within`; each line says what it leaves room for."""

    detect_within: float = DETECT_WITHIN_S
    steps_to_be_stuck: float = 3.0  # a step may take longer than detect_within; then it is measured in steps

    def __post_init__(self) -> None:
        if not SHORTEST_S <= self.detect_within <= 3600:
            raise UsageError(
                f"detect_within must be between {SHORTEST_S:g} and 3600 seconds, got {self.detect_within:g}"
            )
        assert self.beat_s * 4 <= self.silence_s < self.detect_within, "the ladder of time-outs must rise"

    @property
    def beat_s(self) -> float:
        """Between two words of an agent to the others."""
        return self.detect_within / 16

    @property
    def silence_s(self) -> float:
        """Without a word for so long, a host is lost: eight beats, and half of the time is left to agree."""
        return self.detect_within / 2

    @property
    def look_s(self) -> float:
        """Between two looks at the workers' progress."""
        return self.detect_within / 20

    @property
    def retry_s(self) -> float:
        """Until a vote that found no quorum is tried again."""
        return self.detect_within / 8

    @property
    def broken_s(self) -> float:
        """A group that broke with nobody dead is made again after this; a silent host is known by then."""
        return self.silence_s + 2 * self.beat_s

    @property
    def gather_s(self) -> float:
        """How long a change waits for others that would come at the same time."""
        return self.detect_within / 10

    def stuck_s(self, step_s: float) -> float:
        """Without progress for so long, a worker whose steps usually take `step_s` is stuck."""
        return max(self.detect_within, self.steps_to_be_stuck * step_s)
