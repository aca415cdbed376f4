"""A budget shared between activations and optimizer state that lives on the host. Pure.

What of the state is on the device when the backward pass ends need not be copied in before the optimizer's step. To
leave room for it, activations must be rebuilt or swapped in every pass of the step; to leave none, the step waits for
the link. In between is what costs least.
"""

from __future__ import annotations

from weft.errors import BudgetError
from weft.lms.planner import make_plan
from weft.lms.plans import Plan
from weft.lms.recording import Rates, Recording

PARTS = 8  # of the state: so finely it is looked


def share(
    recording: Recording, budget: int, rates: Rates, host: int | None, *, state: int, passes: int
) -> int:
    """Bytes to leave to state, for steps of so many passes like the one recorded."""
    best, least = 0, float("inf")
    for part in range(PARTS + 1):
        reserve = state * part // PARTS
        try:
            plan = make_plan(recording, budget - reserve, rates, host)
        except BudgetError:
            break
        cost = passes * plan.timeline.seconds + wait(plan, budget, rates, state)
        if cost < least:
            best, least = reserve, cost
    return best


def wait(plan: Plan, budget: int, rates: Rates, state: int) -> float:
    """Seconds that the optimizer's step waits for state: what is away, less what comes during the backward pass."""
    resident = min(state, max(0, budget - plan.timeline.peak))
    recording = plan.recording
    first = min((site.uses[0] for site in recording.sites if site.uses), default=recording.events)
    backward = plan.timeline.seconds - sum(recording.seconds[: first + 1])
    early = max(0.0, backward * rates.back - plan.timeline.moved)  # activations come back over the same link
    return max(0.0, state - resident - early) / rates.back
