"""A budget shared between activations and optimizer state that lives on the host. Pure.

What of the state is on the device when the backward pass ends need not be copied in before the optimizer's step. To
leave room for it, activations must be rebuilt or swapped in every pass of the step; to leave none, the step waits for
the link. In between is what costs least.
"""

from __future__ import annotations

from weft.errors import BudgetError
from weft.lms.planner import least, make_plan
from weft.lms.plans import Plan
from weft.lms.recording import Rates, Recording

PARTS = 8  # of the state: so finely it is looked, and twice as finely around the best


def share(
    recording: Recording, budget: int, rates: Rates, host: int | None, *, state: int, passes: int
) -> int:
    """Bytes to leave to state, for steps of so many passes like the one recorded."""
    lowest = least(recording, rates).peak
    costs: dict[int, float] = {}  # by parts
    like: Plan | None = None

    def look(part: int) -> bool:
        """Whether more room for state may be better still: not where the passes alone take longer than the best did."""
        nonlocal like
        reserve = state * part // (2 * PARTS)
        if budget - reserve < lowest:
            return False
        try:
            plan = like = make_plan(recording, budget - reserve, rates, host, like)
        except BudgetError:
            return False
        working = passes * plan.timeline.seconds
        costs[part] = working + wait(plan, budget, rates, state)
        return working < min(costs.values())

    for part in range(0, 2 * PARTS + 1, 2):
        if not look(part):
            break
    if not costs:
        return 0
    cheapest = _cheapest(costs)
    for part in (cheapest - 1, cheapest + 1):
        if 0 < part < 2 * PARTS:
            look(part)
    return state * _cheapest(costs) // (2 * PARTS)


def _cheapest(costs: dict[int, float]) -> int:
    return min(costs, key=lambda part: (costs[part], part))


def wait(plan: Plan, budget: int, rates: Rates, state: int) -> float:
    """Seconds that the optimizer's step waits for state: what is away, less what comes during the backward pass."""
    resident = min(state, max(0, budget - plan.timeline.peak))
    recording = plan.recording
    first = min((site.uses[0] for site in recording.sites if site.uses), default=recording.events)
    backward = plan.timeline.seconds - sum(recording.seconds[: first + 1])
    early = max(0.0, backward * rates.back - plan.timeline.moved)  # activations come back over the same link
    return max(0.0, state - resident - early) / rates.back
