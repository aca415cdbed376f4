"""What the user asks of an elastic run, beside what every run is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from weft.elastic.timing import DETECT_WITHIN_S, Timing
from weft.errors import UsageError

SLOW_POLICIES = ("report", "rebalance", "evict")


@dataclass(frozen=True, kw_only=True)
class ElasticConfig:
    """How many workers there may be, and how soon what is noticed."""

    least: int = 1
    most: int = 1
    detect_within_s: float = DETECT_WITHIN_S
    start_within_s: float = 30.0  # the first step waits so long for workers beyond the least
    slow: str = "report"
    hostfile: Path | None = None  # watched
    discover: str | None = None  # a command that prints hosts, asked again and again
    witness: str | None = None  # a host without workers whose agent votes with the others
    checkpoint: Path | None = None
    checkpoint_every: int | None = None  # steps; None: as often as costs little
    timing: Timing = field(init=False)

    def __post_init__(self) -> None:
        if self.least < 1 or self.least > self.most:
            raise UsageError(
                f"--elastic must be MIN:MAX with 1 <= MIN <= MAX, got {self.least}:{self.most}; write --elastic 2:4"
            )
        if self.slow not in SLOW_POLICIES:
            raise UsageError(f"--slow must be one of {', '.join(SLOW_POLICIES)}, got {self.slow!r}")
        if self.start_within_s < 0:
            raise UsageError(f"--start-within must not be negative, got {self.start_within_s:g}")
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise UsageError(f"--checkpoint-every must be at least 1 step, got {self.checkpoint_every}")
        object.__setattr__(self, "timing", Timing(self.detect_within_s))


def parse_limits(text: str) -> tuple[int, int]:
    """`2:8`, or `4` for four that may all come and go but must all be there."""
    least, colon, most = text.partition(":")
    try:
        return int(least), int(most if colon else least)
    except ValueError:
        raise UsageError(
            f"--elastic must be MIN:MAX, two numbers of workers, got {text!r}; write --elastic 2:4"
        ) from None
