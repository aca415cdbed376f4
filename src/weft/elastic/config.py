"""The settings of an elastic run, beside those of every run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from weft.elastic.membership.endings import ALONE_S
from weft.elastic.timing import DETECT_WITHIN_S, Timing
from weft.errors import UsageError

SLOW_POLICIES = ("report", "rebalance", "evict")


@dataclass(frozen=True, kw_only=True)
class ElasticConfig:
    """The settings of an elastic run: its number of workers, how soon faults are noticed, and where hosts come from."""

    least: int = 1  # workers that the run needs
    most: int = 1  # workers that the run uses
    detect_within_s: float = DETECT_WITHIN_S
    start_within_s: float = 30.0  # seconds for which the first step waits for workers beyond the least
    alone_s: float = (
        ALONE_S  # seconds for which a host that is cut off from all waits before it ends its workers
    )
    slow: str = "report"  # what follows when a worker is slow: one of SLOW_POLICIES
    hostfile: Path | None = None  # read again when it changes
    discover: str | None = None  # a command that prints the hosts, run again and again
    bar_hosts: str | None = (
        None  # for how long a host is not used after a worker failed there; None: it is used on
    )
    witness: str | None = None  # a host without workers whose agent votes with the others
    checkpoint: Path | None = None  # the folder of the checkpoints
    checkpoint_every: int | None = None  # steps between two; None: as few as cost little

    def __post_init__(self) -> None:
        if self.least < 1 or self.least > self.most:
            raise UsageError(
                f"--elastic must be MIN:MAX with 1 <= MIN <= MAX, got {self.least}:{self.most}; write --elastic 2:4"
            )
        if self.slow not in SLOW_POLICIES:
            raise UsageError(f"--slow must be one of {', '.join(SLOW_POLICIES)}, got {self.slow!r}")
        if self.start_within_s < 0:
            raise UsageError(f"--start-within must not be negative, got {self.start_within_s:g}")
        if self.alone_s < self.detect_within_s:
            raise UsageError(
                f"--alone must be at least --detect-within, {self.detect_within_s:g} s, got {self.alone_s:g}; a host "
                "that is cut off must have the time to come back"
            )
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise UsageError(f"--checkpoint-every must be at least 1 step, got {self.checkpoint_every}")
        Timing(self.detect_within_s)  # refuses what cannot be

    @property
    def timing(self) -> Timing:
        """The time-outs that follow from `detect_within_s`."""
        return Timing(self.detect_within_s)
