"""A budget's life: which plan a step gets, when a step is recorded, and what is learned from how it went.

The first tensor that autograd saves tells the shape of a step. A shape that is new is recorded, under the budget; the
next steps follow its plan and are measured again, since they tell the times better; after that nothing is measured but
the peak. A shape that fits as it is has its hooks taken off at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from weft.errors import BudgetError, UsageError
from weft.lms.engine import Engine, Packed
from weft.lms.modules import named_modules
from weft.lms.plan import Plan
from weft.lms.planner import make_plan
from weft.lms.recorder import Recorder
from weft.lms.recording import Recording
from weft.lms.records import Kept
from weft.lms.sizes import show_bytes
from weft.lms.transfer import Transfer

MEASURED = 2  # planned steps that are measured again
SHAPES = 64  # plans kept
AUTO = 0.95  # of what is free
MARGIN = 0.01  # of the budget: for what no timeline sees


@dataclass
class Shape:
    """What is known about one kind of step."""

    recording: Recording
    plan: Plan
    steps: int = 0
    bytes: int = 0  # of the tensor that names it
    margin: int = 0  # learned from peaks that were higher than planned


@dataclass
class Session:
    """One budget on one device."""

    transfer: Transfer
    limit: int
    smallest: int = 1 << 20
    engine: Engine = field(init=False)
    shapes: OrderedDict[Hashable, Shape] = field(default_factory=OrderedDict)
    replans: int = 0
    recorded: int = 0
    steps: int = 0
    peak: int = 0
    over: int = 0  # steps whose peak was above the budget

    def __post_init__(self) -> None:
        self.engine = Engine(self.transfer, self.smallest)
        self._hooked = False
        self._open = False
        self._key: Hashable = None
        self._shape: Shape | None = None
        self._recorder: Recorder | None = None
        self._around = ExitStack()
        self._base = 0

    # A step.

    def begin(self) -> None:
        """A step may begin: look at the first tensor that is saved."""
        if self._open:
            self.end()
        self._around.enter_context(self.transfer.watching())
        self._open = True
        self._base = self.transfer.allocated()
        if self._base > self.limit:
            self._around.close()
            self._open = False
            raise BudgetError(
                f"limit must hold what is on the device before the step, {show_bytes(self._base)}, got "
                f"{show_bytes(self.limit)}; give at least that and the largest operation, or page optimizer state "
                "and parameters with lms.wrap"
            )
        self.transfer.reset_peak()
        self._key = None
        self._push(self._first)

    def _push(self, pack: Any) -> None:
        torch._C._autograd._push_saved_tensors_default_hooks(pack, self.engine.unpack)
        self._hooked = True

    def _pop(self) -> None:
        if self._hooked:
            torch._C._autograd._pop_saved_tensors_default_hooks()
            self._hooked = False

    def _first(self, tensor: torch.Tensor) -> Packed:
        """Autograd saves: until a tensor that is no parameter tells the shape, parameters are just kept."""
        if isinstance(tensor, torch.nn.Parameter) or (tensor.is_leaf and tensor.requires_grad):
            return Kept(tensor)
        if self._key is None:
            self._key = (tuple(tensor.shape), tensor.dtype, torch.is_autocast_enabled(tensor.device.type))
            self._choose(tensor.nbytes)
            if self._shape is not None and self._shape.plan.keeps_all and self._recorder is None:
                self._pop()  # everything fits: nothing is hooked for the rest of the step
                return Kept(tensor)
            self._pop()
            self._push(self.engine.pack)
        return self.engine.pack(tensor)

    def _choose(self, size: int) -> None:
        """The plan for this shape, or a recording."""
        shape = self.shapes.get(self._key)
        if shape is None:
            shape = self._guess(size)
        if shape is not None:
            self._adjust(shape)
        self._shape = shape
        measure = shape is None or (shape.steps < MEASURED and not shape.plan.keeps_all)
        self._recorder = Recorder(self.transfer, tries_recipes=shape is None) if measure else None
        if shape is None:
            self._around.enter_context(named_modules())
        plan = None if shape is None else shape.plan
        self.engine.start(self.budget, plan, self._recorder, headroom=self._headroom())

    @property
    def budget(self) -> int:
        """What plans may use: a little less than the limit."""
        return int(self.limit * (1 - MARGIN))

    def _headroom(self) -> int:
        """Room to leave where nothing is known yet."""
        known = [max(shape.recording.other) - min(shape.recording.other) for shape in self.shapes.values()]
        return min(max(known, default=0), self.limit // 4)

    def _guess(self, size: int) -> Shape | None:
        """For a shape never seen: the nearest one that was, with its bytes scaled."""
        return None

    def _adjust(self, shape: Shape) -> None:
        """Plan again if more, or much less, is in use than when the plan was made."""
        shift = self._base - shape.plan.recording.base
        peak = shape.plan.timeline.peak + shift
        room = self.budget - shape.margin
        if peak > room or (shift < -0.02 * self.limit and not shape.plan.keeps_all):
            self._replan(shape, shape.recording.shifted(self._base))

    def _replan(self, shape: Shape, recording: Recording) -> None:
        shape.recording = recording
        shape.plan = make_plan(recording, self.budget - shape.margin, self.transfer.rates())
        self.replans += 1

    def end(self, failed: bool = False) -> None:
        """The step is over, or was left by an exception."""
        if not self._open:
            return
        self._open = False
        self._pop()
        try:
            if failed or self._key is None:
                self.engine.recorder = None
                return
            self._learn()
        finally:
            self._around.close()
            self._shape = self._recorder = None

    def _learn(self) -> None:
        self.steps += 1
        self.engine.recorder = None
        if self._recorder is not None:
            recording = self._recorder.finish()
            self.recorded += 1
            self._note(self._recorder.highest)
            self._learn_from(recording)
        else:
            peak = self.transfer.peak()
            self._note(peak)
            self._look_at(peak)

    def _note(self, peak: int) -> None:
        self.peak = max(self.peak, peak)
        self.over += peak > self.limit

    def _learn_from(self, recording: Recording) -> None:
        shape = self._shape
        if shape is None or self.engine.lost:
            plan = make_plan(recording, self.budget, self.transfer.rates())
            self.shapes[self._key] = Shape(recording, plan)
            while len(self.shapes) > SHAPES:
                self.shapes.popitem(last=False)
            return
        shape.steps += 1
        self._replan(shape, shape.recording.measured_again(recording))

    def _look_at(self, peak: int) -> None:
        """A step that was not measured: was it as planned?"""
        shape = self._shape
        if shape is None:
            return
        if self.engine.lost:
            self.shapes.pop(self._key, None)  # the next one is recorded
        elif peak > self.limit:
            shape.margin += peak - self.limit
            if shape.plan.keeps_all:
                self.shapes.pop(self._key, None)
            else:
                self._replan(shape, shape.recording)

    def last_plan(self) -> Plan:
        """The plan made last."""
        shape = self._shape or next(reversed(self.shapes.values()), None)
        if shape is None:
            raise UsageError("a plan must come from a step, got none yet; run one inside lms.fit first")
        return shape.plan
