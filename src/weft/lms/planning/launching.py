"""Launching: what a plan adds to the work of the thread that launches a step, and how much longer the step takes by it.

Rebuilding, swapping and taping are done by Python code. Where the device has enough to do meanwhile they cost its time
alone; where it waits for the next operation, as with many small ones, their launching is what counts. Which of the two
it is cannot be told from a recording: it is learned from steps that took longer than the device's work in them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.lms.planning.playback import Choice
from weft.lms.planning.recording import Recording
from weft.lms.tuning import DEFAULTS, LmsTuning


@dataclass(frozen=True)
class LaunchCost:
    """The seconds that a step takes longer because of what a plan has the launching thread do."""

    share: float = 0.0  # of that thread's time: 0 while the device has enough to do, 1 where it always waits
    tuning: LmsTuning = DEFAULTS

    def of(self, recording: Recording, choices: Sequence[Choice]) -> float:
        """Return the seconds of a plan with these choices."""
        if not self.share:
            return 0.0
        rebuilt = [index for index, choice in enumerate(choices) if choice == "recipe"]
        return self.of_rebuilt(recording, rebuilt) + self.share * self.tuning.swap_launch_s * choices.count(
            "swap"
        )

    def of_rebuilt(self, recording: Recording, rebuilt: Iterable[int]) -> float:
        """Return the seconds of plans that rebuild these sites, without what they swap."""
        if not self.share:
            return 0.0
        sites = [recording.sites[index] for index in rebuilt]
        repeated = sum(len(site.replayed) for site in sites)
        added = self.tuning.rebuild_launch_s * len(sites) + self.tuning.repeated_operation_s * repeated
        return self.share * added + (self.of_taping(recording) if repeated else 0.0)

    def of_called(self, operations: int, modules: int) -> float:
        """Return the seconds of modules that are called again, with so many operations in them."""
        tuning = self.tuning
        return self.share * (tuning.called_operation_s * operations + tuning.called_module_s * modules)

    def of_taping(self, recording: Recording) -> float:
        """Return the seconds in which a tape sees the operations of a step."""
        return self.share * self.tuning.taped_operation_s * taped_operations(recording)

    @property
    def of_one(self) -> float:
        """The seconds of one site that is rebuilt, which make small ones dear."""
        return self.share * self.tuning.rebuild_launch_s


def taped_operations(recording: Recording) -> int:
    """Return how many operations a tape sees at least."""
    return 1 + max((max(site.replayed) for site in recording.sites if site.replayed), default=-1)


def learned_share(
    recording: Recording, choices: Sequence[Choice], excess_s: float, tuning: LmsTuning = DEFAULTS
) -> float:
    """Return the share of launching that a step waited for, which took `excess_s` longer than the device's work."""
    added = LaunchCost(1.0, tuning).of(recording, choices)
    return min(1.0, max(0.0, excess_s) / added) if added > 0 else 0.0
