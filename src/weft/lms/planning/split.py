"""A split: how a budget is shared between activations and optimizer state that lives on the host. Pure.

State that is on the device when the backward pass ends need not be copied in before the optimizer's step. To leave room
for it, activations must be rebuilt or swapped in every pass of the step; to leave none, the step waits for the link. In
between is the split that costs least. The last pass before the step may leave more room than the others: it pays for
that once, and state comes in from the backward pass before it on.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import BudgetError
from weft.lms.planning.plan import Plan
from weft.lms.planning.recording import Rates, Recording
from weft.lms.planning.search import least, make_plan
from weft.lms.tuning import DEFAULTS, LmsTuning


@dataclass(frozen=True, kw_only=True)
class Split:
    """Bytes of a budget that are left to state: in every pass, and in the last one before the optimizer's step."""

    usual: int = 0
    last: int = 0


@dataclass(frozen=True, kw_only=True)
class OptimizerStep:
    """One step of an optimizer: the passes before it, its state, and its own compute."""

    passes: int
    state: int  # bytes
    gradients: int = 0  # bytes, which the first pass makes
    seconds: float = 0.0  # of the optimizer's compute, during which state comes in, too


def share(
    recording: Recording,
    budget: int,
    rates: Rates,
    host: int | None,
    step: OptimizerStep,
    tuning: LmsTuning = DEFAULTS,
) -> Split:
    """Return the split that costs least, for optimizer steps whose passes are like the recorded one."""
    return _SplitSearch(recording, budget, rates, host, step, tuning).best()


class _SplitSearch:
    """The search for a split on a grid: plans that leave so many parts of the state, and the seconds that they cost."""

    def __init__(
        self,
        recording: Recording,
        budget: int,
        rates: Rates,
        host: int | None,
        step: OptimizerStep,
        tuning: LmsTuning,
    ) -> None:
        self.recording, self.budget, self.rates, self.host, self.step = recording, budget, rates, host, step
        self.tuning = tuning
        self.parts = 2 * tuning.split_parts  # of the finer grid
        self.lowest = least(recording, rates, tuning).peak
        self.plans: dict[int, Plan | None] = {}  # by parts that are left to state
        self.like: Plan | None = None  # where the next search for a plan starts
        self.costs: dict[tuple[int, int], float] = {}  # seconds, by parts in usual passes and in the last one

    def best(self) -> Split:
        every = range(0, self.parts + 1, 2)
        for usual in every:
            if not self._look(usual, usual):
                break
            for last in every[usual // 2 + 1 :] if self.step.passes > 1 else ():
                if not self._look(usual, last):
                    break
        if not self.costs:
            return Split()
        usual, last = self._cheapest()
        for near in (usual - 1, usual, usual + 1):
            for then in (last - 1, last, last + 1):
                if 0 <= near <= then <= self.parts and (near == then or self.step.passes > 1):
                    self._look(near, then)
        usual, last = self._cheapest()
        return Split(usual=self._bytes(usual), last=self._bytes(last))

    def _cheapest(self) -> tuple[int, int]:
        return min(self.costs, key=lambda parts: (self.costs[parts], parts))

    def _bytes(self, parts: int) -> int:
        return self.step.state * parts // self.parts

    def _look(self, usual: int, last: int) -> bool:
        """Cost a split; return whether one that leaves more to state may be better, as while passes alone are faster
        than the best split.
        """
        plan, final = self._plan(usual), self._plan(last)
        if plan is None or final is None:
            return False
        working = (self.step.passes - 1) * plan.timeline.seconds + final.timeline.seconds
        if (usual, last) not in self.costs:
            self.costs[usual, last] = working + wait_for_state(
                plan, final, self.budget, self.rates, self.step
            )
        return working < min(self.costs.values())

    def _plan(self, parts: int) -> Plan | None:
        """Return the plan of passes that leave some parts of the state; None if there is none."""
        if parts not in self.plans:
            self.plans[parts] = self._planned(self.budget - self._bytes(parts))
            self.like = self.plans[parts] or self.like
        return self.plans[parts]

    def _planned(self, budget: int) -> Plan | None:
        if budget < self.lowest:
            return None
        try:
            return make_plan(self.recording, budget, self.rates, self.host, self.like, self.tuning)
        except BudgetError:
            return None


def wait_for_state(usual: Plan, last: Plan, budget: int, rates: Rates, step: OptimizerStep) -> float:
    """Return the seconds of an optimizer step in which compute waits for state: to come in, and to leave again."""
    resident = here = min(step.state, budget - usual.timeline.peak)
    if step.passes > 1:
        here = state_after(usual, here, budget, rates, most=min(step.state, budget - last.timeline.peak))
    here = state_after(last, here, budget, rates, most=step.state)
    coming = max(0.0, (step.state - here) / rates.back - step.seconds)
    return coming + _wait_to_leave(usual, step.state - resident, coming, rates, step)


def _wait_to_leave(usual: Plan, leaving: int, coming: float, rates: Rates, step: OptimizerStep) -> float:
    """Return the seconds that passes wait for `leaving` bytes of state: these go out as they are stepped, and must be
    gone when the peak of a pass comes.
    """
    timeline = usual.timeline
    until = step.seconds + coming + timeline.times[timeline.peak_interval]
    if step.passes == 1:
        return max(0.0, (leaving + timeline.moved) / rates.out - until)
    first = (leaving - step.gradients) / rates.out - until
    return max(0.0, first, (leaving + timeline.moved) / rates.out - until - timeline.seconds)


def state_after(plan: Plan, here: int, budget: int, rates: Rates, most: int) -> int:
    """Return the bytes of state on the device after a pass that began with `here` of them, and `most` of all: they come
    as the link and memory have room.
    """
    timeline = plan.timeline
    ahead = (*timeline.ahead[1:], 0)
    state, clock, free, back = float(here), 0.0, 0.0, 0.0
    for event, now in enumerate(timeline.times):
        idle = max(0.0, now - max(clock, free))
        state = max(state, min(most, budget - ahead[event], state + idle * rates.back))
        free = max(free, now) + timeline.back[event] - back  # activations come back over the same link
        clock, back = now, timeline.back[event]
    return int(state)
