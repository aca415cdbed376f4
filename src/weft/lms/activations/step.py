"""The step that runs under a budget: its shape, how far it is, and the memory and link time that its plan leaves.

The session writes it (`activations/session.py`); pages of optimizer state read it to come and go beside the activations
(`paging/optimizer.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from weft.lms.activations.engine import ActivationEngine
from weft.lms.budget import Budget
from weft.lms.planning.shapes import StepShape


@dataclass
class RunningStep:
    """One forward and backward pass under a budget. It is known by its shape once the first tensor was saved."""

    budget: Budget
    engine: ActivationEngine
    begin: Callable[[], None]  # begins a step, for a part of a model that is called by itself
    is_open: bool = False
    is_known: bool = False  # the first tensor was saved, and the shape looked up
    shape: StepShape | None = None  # whose plan is followed; None in the first step of a shape
    usual_shape: StepShape | None = None  # the same, without regard to how many passes are left
    base: int = 0  # bytes in use when the step began
    passes_left: int | None = None  # before the optimizer's step, if that is known
    may_bring_state: bool = False  # it is among the last passes, which leave room for state

    @property
    def fits(self) -> bool:
        """Whether the step keeps everything, and so needs no hooks."""
        if self.shape is None or self.engine.recorder is not None:
            return False
        return self.shape.plan.keeps_all and not self.may_bring_state

    @property
    def follows_plan(self) -> bool:
        """Whether a plan is followed, event by event."""
        return self.is_open and self.is_known and not self.fits and self.engine.plan is not None

    @property
    def brings_state(self) -> bool:
        """Whether optimizer state comes in while the step runs, as it leaves room."""
        return self.may_bring_state and self.follows_plan

    def bytes_ahead(self) -> int | None:
        """Bytes that the rest of a planned step will take besides those in use now; None if no plan tells."""
        shape = self.shape
        if not self.is_open or not self.is_known or shape is None or self.engine.lost:
            return None
        timeline = shape.plan.timeline
        event = min(self.engine.event, len(timeline.ahead) - 1)
        peak = timeline.ahead[event] if self.follows_plan else timeline.peak
        wanted = peak + self._unplanned(shape) + shape.margin
        if self.passes_left == 1 and self.may_bring_state:
            # State that comes now stays through the next step, whose plan leaves that much room.
            wanted = max(wanted, self.budget.plannable - self.budget.split.last)
        return max(0, wanted - self.budget.in_use())

    def planned_link_use(self, within_s: float) -> tuple[float, float] | None:
        """Return the time by the plan's clock, and the seconds of link time that copies back take in total: all those
        that start from the step's beginning until `within_s` seconds from now. None if no plan is followed.
        """
        if not self.follows_plan or self.shape is None or self.engine.lost:
            return None
        timeline = self.shape.plan.timeline
        now = timeline.times[min(self.engine.event, len(timeline.times) - 1)]
        return now, timeline.back[bisect_right(timeline.times, now + within_s) - 1]

    def _unplanned(self, shape: StepShape) -> int:
        """Bytes that were in use when the step began and are in no plan. A step that began with fewer makes gradients,
        so that difference is not subtracted.
        """
        return max(0, self.base - shape.plan.recording.base)

    def make_state_leave(self, event: int) -> None:
        """Let state leave before an event whose successors, by the plan, leave less room than the state takes."""
        shape = self.shape
        assert shape is not None
        next_peak = max(shape.plan.timeline.levels[event + 1 : event + 3], default=0)
        room = self.budget.plannable - shape.margin - next_peak - self._unplanned(shape)
        self.budget.release_state(lambda: self.budget.state_on_device > room)

    def left_to_state(self, shape: StepShape | None) -> int:
        """Bytes of the budget that passes of a shape leave to optimizer state from beginning to end."""
        if shape is None:
            return 0
        base = max(shape.highest_base, self.base)
        plan = shape.plan
        return max(0, self.budget.plannable - plan.timeline.peak - base + plan.recording.base)
