"""The scheduler that runs every trial to its end."""

from __future__ import annotations

from collections.abc import Sequence

from weft.tune.schedulers.actions import ResumeTrial, StartTrial, TrialAction
from weft.tune.study.state import SearchState


class RunAll:
    """Starts trials while there is room; none is paused."""

    def decide(self, state: SearchState, free: int, starts: int) -> Sequence[TrialAction]:
        resource = state.config.resource
        until = None if resource is None else resource.max
        resting = state.resting()[:free]
        actions: list[TrialAction] = [ResumeTrial(trial.number, until) for trial in resting]
        return actions + [StartTrial(until)] * min(free - len(resting), starts)
