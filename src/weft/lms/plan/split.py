"""A budget shared between activations and optimizer state that lives on the host. Pure.

What of the state is on the device when the backward pass ends need not be copied in before the optimizer's step. To
leave room for it, activations must be rebuilt or swapped in every pass of the step; to leave none, the step waits for
the link. In between is what costs least. The last pass before the step may leave more room than the others: it pays for
that once, and state comes in from the backward pass before it on.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import BudgetError
from weft.lms.plan.plan import Plan
from weft.lms.plan.recording import Rates, Recording
from weft.lms.plan.search import least, make_plan

PARTS = 8  # of the state: so finely it is looked, and twice as finely around the best


@dataclass(frozen=True, kw_only=True)
class Split:
    """Bytes of a budget that are left to state: in every pass, and in the last one before the optimizer's step."""

    usual: int = 0
    last: int = 0


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Those of an optimizer: so many passes, then so much compute with so much state."""

    passes: int
    state: int  # bytes
    gradients: int = 0  # bytes, which the first pass makes
    seconds: float = 0.0  # of the optimizer's own, while which state comes in, too


def share(recording: Recording, budget: int, rates: Rates, host: int | None, steps: Steps) -> Split:
    """What to leave to state, for steps of passes like the one recorded."""
    return _Search(recording, budget, rates, host, steps).best()


class _Search:
    """By parts of the state: plans that leave so much, and what a step costs with them."""

    def __init__(
        self, recording: Recording, budget: int, rates: Rates, host: int | None, steps: Steps
    ) -> None:
        self.recording, self.budget, self.rates, self.host, self.steps = recording, budget, rates, host, steps
        self.lowest = least(recording, rates).peak
        self.plans: dict[int, Plan | None] = {}
        self.like: Plan | None = None
        self.costs: dict[tuple[int, int], float] = {}

    def best(self) -> Split:
        every = range(0, 2 * PARTS + 1, 2)
        for usual in every:
            if not self._look(usual, usual):
                break
            for last in every[usual // 2 + 1 :] if self.steps.passes > 1 else ():
                if not self._look(usual, last):
                    break
        if not self.costs:
            return Split()
        usual, last = self._cheapest()
        for near in (usual - 1, usual, usual + 1):
            for then in (last - 1, last, last + 1):
                if 0 <= near <= then <= 2 * PARTS and (near == then or self.steps.passes > 1):
                    self._look(near, then)
        usual, last = self._cheapest()
        return Split(usual=self._bytes(usual), last=self._bytes(last))

    def _cheapest(self) -> tuple[int, int]:
        return min(self.costs, key=lambda parts: (self.costs[parts], parts))

    def _bytes(self, part: int) -> int:
        return self.steps.state * part // (2 * PARTS)

    def _look(self, usual: int, last: int) -> bool:
        """Whether more room for state may be better still: not where the passes alone take longer than the best did."""
        plan, final = self._plan(usual), self._plan(last)
        if plan is None or final is None:
            return False
        working = (self.steps.passes - 1) * plan.timeline.seconds + final.timeline.seconds
        if (usual, last) not in self.costs:
            self.costs[usual, last] = working + wait(plan, final, self.budget, self.rates, self.steps)
        return working < min(self.costs.values())

    def _plan(self, part: int) -> Plan | None:
        if part not in self.plans:
            self.plans[part] = self._planned(self.budget - self._bytes(part))
            self.like = self.plans[part] or self.like
        return self.plans[part]

    def _planned(self, budget: int) -> Plan | None:
        if budget < self.lowest:
            return None
        try:
            return make_plan(self.recording, budget, self.rates, self.host, self.like)
        except BudgetError:
            return None


def wait(usual: Plan, last: Plan, budget: int, rates: Rates, steps: Steps) -> float:
    """Seconds that is waited for state in a step, until it came and until it left."""
    resident = here = min(steps.state, budget - usual.timeline.peak)
    if steps.passes > 1:
        here = brought(usual, here, budget, rates, most=min(steps.state, budget - last.timeline.peak))
    here = brought(last, here, budget, rates, most=steps.state)
    coming = max(0.0, (steps.state - here) / rates.back - steps.seconds)
    return coming + _leaving(usual, steps.state - resident, coming, rates, steps)


def _leaving(usual: Plan, leaves: int, coming: float, rates: Rates, steps: Steps) -> float:
    """Seconds that passes wait for state to leave: it goes out as it is stepped, and is gone when their peak comes."""
    timeline = usual.timeline
    until = steps.seconds + coming + timeline.times[timeline.peak_interval]
    if steps.passes == 1:
        return max(0.0, (leaves + timeline.moved) / rates.out - until)
    first = (leaves - steps.gradients) / rates.out - until
    return max(0.0, first, (leaves + timeline.moved) / rates.out - until - timeline.seconds)


def brought(plan: Plan, here: int, budget: int, rates: Rates, most: int) -> int:
    """Bytes of state on the device after a pass that began with so many: they come as the link and memory have room."""
    timeline = plan.timeline
    ahead = (*timeline.ahead[1:], 0)
    state, clock, free, back = float(here), 0.0, 0.0, 0.0
    for event, now in enumerate(timeline.times):
        idle = max(0.0, now - max(clock, free))
        state = max(state, min(most, budget - ahead[event], state + idle * rates.back))
        free = max(free, now) + timeline.back[event] - back  # activations come back over the same link
        clock, back = now, timeline.back[event]
    return int(state)
