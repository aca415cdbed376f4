"""Steps under a budget: which plan a step gets, when it is recorded, and what is looked at while it runs.

The first tensor that autograd saves tells the shape of a step. A shape that is new is recorded, under the budget; the
next steps follow its plan and are measured again, since they tell the times better; after that nothing is measured but
the peak. A shape that fits as it is has its hooks taken off at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from weft.errors import BudgetError, UsageError
from weft.lms.activations.engine import Engine, Packed
from weft.lms.activations.guard import Guard, Guarding
from weft.lms.activations.recorder import Recorder
from weft.lms.activations.saved import Kept
from weft.lms.device.transfer import Transfer
from weft.lms.paging.modules import named_modules
from weft.lms.paging.page import KeptPage, page_of
from weft.lms.plan.learned import LOOKED, Planning
from weft.lms.plan.plan import Plan
from weft.lms.plan.shapes import Key, Shape
from weft.text import format_size

if TYPE_CHECKING:
    from weft.lms.paging.model import Keeper

COMPARED = 3  # steps whose whole time is compared with the plan's
QUIET = 8  # of so many steps that fit, one is looked at
AHEAD = 0.3  # of a step that is measured is launched before it begins
AUTO = 0.95  # of what is free
SLACK = 64 << 20  # bytes that an operation may take besides what shapes tell


@dataclass
class Session:
    """One budget on one device."""

    transfer: Transfer
    limit: int
    smallest: int = 1 << 20
    engine: Engine = field(init=False)
    planning: Planning = field(init=False)
    recorded: int = 0
    steps: int = 0
    peak: int = 0
    over: int = 0  # steps whose peak was above the budget

    def __post_init__(self) -> None:
        self.engine = Engine(self.transfer, self.smallest)
        self.planning = Planning(self.transfer, self.limit)
        self.keepers = self.planning.keepers
        self._hooked = False
        self._open = self._chosen = self._looks = False
        self._key: Key | None = None
        self._sort: Hashable = None
        self._left: int | None = None
        self._may_bring = False  # state, for the last step before the optimizer's
        self._shape: Shape | None = None
        self._usual: Shape | None = None
        self._recorder: Recorder | None = None
        self._around = ExitStack()
        self._started: Any = None
        self._idle = False  # the device was waited for since the last step
        self._base = 0  # bytes in use when the step began
        self._modes = 0  # that a step of ours begins with

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def shape(self) -> Shape | None:
        """Of steps like the one that runs, wherever they come before the optimizer's."""
        return self._usual

    @property
    def follows(self) -> bool:
        """Whether a plan is followed, event by event."""
        return self._open and self._chosen and not self._fits() and self.engine.plan is not None

    def unfilled(self) -> int:
        """Bytes that pages may still take, less those that more of them are here than need be."""
        return sum(keeper.unfilled for keeper in self.keepers)

    def tighten(self) -> None:
        """A step ran out of memory: leave more room in the next."""
        self.planning.ran_out(self._shape)

    # A step.

    def begin(self, sort: Hashable = None, left: int | None = None) -> None:
        """A step may begin: look at the first tensor that is saved. Steps of different sorts are never alike.

        After it so many others come before the optimizer's step, if anybody knows.
        """
        if self._open:
            self.end()
        self._sort, self._left = sort, left
        self._may_bring = left in (0, 1) and self.planning.closes_apart
        modes = torch._C._len_torch_dispatch_stack()
        self._around.enter_context(self.transfer.watching())
        self._modes = torch._C._len_torch_dispatch_stack() - modes
        self._open, self._chosen, self._looks = True, False, False
        self._push(self.save_first)

    def _push(self, pack: Any) -> None:
        torch._C._autograd._push_saved_tensors_default_hooks(pack, self.engine.unpack)
        self._hooked = True

    def _pop(self) -> None:
        if self._hooked:
            torch._C._autograd._pop_saved_tensors_default_hooks()
            self._hooked = False

    def save_first(self, tensor: torch.Tensor) -> Packed:
        """Autograd saves: the first tensor that is no parameter tells the shape."""
        page = page_of(tensor)
        if page is not None:
            return KeptPage(tensor, page)
        if isinstance(tensor, torch.nn.Parameter) or (tensor.is_leaf and tensor.requires_grad):
            return Kept(tensor)
        if isinstance(tensor, FakeTensor):
            return Kept(tensor)  # of a graph that is captured meanwhile
        self._pop()
        autocast = torch.is_autocast_enabled(tensor.device.type)
        kind = (tensor.dtype, tensor.dim(), autocast, self._sort)
        self._choose(Key(kind, tuple(tensor.shape), tensor.nbytes))
        if self._fits() and not self._pages_parameters():
            return Kept(tensor)  # everything fits: nothing is hooked for the rest of the step
        self._push(self.engine.pack)
        return self.engine.pack(tensor)

    def _fits(self) -> bool:
        shape = self._shape
        if shape is None or self._recorder is not None:
            return False
        return shape.plan.keeps_all and not self._may_bring

    def _pages_parameters(self) -> bool:
        """Whether all that is saved must be seen, since parameters leave between the passes."""
        return bool(self.keepers) and any(keeper.parameters is not None for keeper in self.keepers)

    def _choose(self, key: Key) -> None:
        """The plan for this shape, or a recording."""
        self._key, self._chosen = key, True
        shape = self._usual = self.planning.shapes.find(key)
        if self.keepers:
            self._base = self._in_use()
            if shape is not None:
                shape.highest = max(shape.highest, self._base)
        if shape is not None and self._left == 0:
            shape = self.planning.closing(shape)
        self._shape = shape
        if shape is not None and shape.plan.keeps_all and not self._is_measured(shape):
            shape.steps += 1
            followed = self._may_bring or self._pages_parameters()
            if shape.steps > self.planning.measured_steps and shape.steps % QUIET and not followed:
                return
        self._looks = True
        base = self._base = self._base if self.keepers else self._in_use()
        if base > self.limit:
            raise BudgetError(
                f"limit must hold what is on the device before the step, {format_size(base)}, got "
                f"{format_size(self.limit)}; give at least that and the largest operation, or page optimizer state "
                "and parameters with lms.wrap",
                short=base - self.limit,
            )
        shape = self._shape = shape or self.planning.guess(key)
        self._usual = self._usual or shape
        planning = self.planning.seconds
        if shape is not None:
            self.planning.compare(shape)
            self.planning.adjust(shape, base)
        # Or, while this thread did other things, the device did all that it had to: then this step is as slow as its
        # launching.
        undisturbed = not self._idle and self.planning.seconds == planning
        self._idle = False
        self.transfer.reset_peak()
        if shape is None:
            self.let_go(lambda: True)
        measure = shape is None or self._is_measured(shape)
        self._recorder = None
        if measure:  # last without looking at memory: to look takes time, which would be taken for the step's
            looks = shape is None or shape.steps < LOOKED
            self._recorder = Recorder(self.transfer, shape is None, looks, self.unfilled)
            if shape is not None and not looks:  # or the device would wait for what measuring takes to launch
                self.transfer.busy(AHEAD * shape.plan.timeline.seconds)
        if shape is None:
            self._around.enter_context(named_modules())
        plan = None if shape is None else shape.plan
        compared = undisturbed and shape is not None and not measure and self._is_compared(shape)
        self._started = self.transfer.mark() if compared else None
        self.engine.mover.waits = [] if compared else None
        self.engine.follow = self._follow if self.planning.shares else None
        self.engine.start(self.planning.budget, plan, self._recorder, headroom=self.planning.headroom())
        if shape is None:
            engine, slack = self.engine, min(SLACK, self.planning.budget >> 6)
            guard = Guard(engine.before_operation, slack, engine.graph.changed, engine.is_quiet)
            engine.guarded = self._around.enter_context(Guarding(guard, self._modes))

    def _is_measured(self, shape: Shape) -> bool:
        """Whether the next step of a shape should be: times tell what to share where all is kept, too."""
        wanted = self.planning.shares or not shape.plan.keeps_all
        return shape.steps < self.planning.measured_steps and wanted and not shape.guessed

    def _is_compared(self, shape: Shape) -> bool:
        """With its plan; the one before it must have been."""
        return shape.steps < self.planning.measured_steps + COMPARED and shape.marks is None

    @property
    def brings(self) -> bool:
        """Whether state comes in as the step leaves room."""
        return self._may_bring and self.follows

    def _in_use(self) -> int:
        """Bytes, with those that pages may still take, and less those that go when they are asked to."""
        return self.transfer.allocated() + self.unfilled()

    def ahead(self) -> int | None:
        """Bytes that the rest of a planned step will take besides those in use now; None if nobody knows."""
        shape = self._shape
        if not self._open or not self._chosen or shape is None or self.engine.lost:
            return None
        timeline, shift = shape.plan.timeline, self._more_than(shape)
        event = min(self.engine.event, len(timeline.ahead) - 1)
        peak = timeline.ahead[event] if self.follows else timeline.peak
        wanted = peak + shift + shape.margin
        if self._left == 1 and self._may_bring:
            # What comes stays through the next step, which leaves so much.
            wanted = max(wanted, self.planning.budget - self.planning.split.last)
        return max(0, wanted - self._in_use())

    def link(self, within: float) -> tuple[float, float] | None:
        """By the plan's clock, the time, and the seconds of all copies back that start until so much later; None where
        none are planned.
        """
        if not self.follows or self._shape is None or self.engine.lost:
            return None
        timeline = self._shape.plan.timeline
        now = timeline.times[min(self.engine.event, len(timeline.times) - 1)]
        return now, timeline.back[bisect_right(timeline.times, now + within) - 1]

    def _more_than(self, shape: Shape) -> int:
        """Bytes that were in use when the step began and are in no plan; one that began with less makes gradients."""
        return max(0, self._base - shape.plan.recording.base)

    def _follow(self, event: int) -> None:
        """State goes before an event if what follows until the next ones leaves it less room than it has."""
        shape = self._shape
        assert shape is not None
        plan = shape.plan
        next_ones = max(plan.timeline.levels[event + 1 : event + 3], default=0)
        room = self.planning.budget - shape.margin - next_ones - self._more_than(shape)
        self.let_go(lambda: self._leaving() > room)

    def _leaving(self) -> int:
        return sum(keeper.pager.leaving for keeper in self.keepers if keeper.pager is not None)

    def beside(self, shape: Shape | None) -> int:
        """Bytes of the budget that passes of a shape leave to others all along."""
        if shape is None:
            return 0
        base = max(shape.highest, self._base)
        return max(0, self.planning.budget - shape.plan.timeline.peak - base + shape.plan.recording.base)

    def let_go(self, more: Callable[[], bool], last: Keeper | None = None) -> None:
        """State leaves as long as more of it should, that of one model last."""
        for keeper in sorted(self.keepers, key=lambda keeper: keeper is last):
            if keeper.pager is not None and more():
                keeper.pager.let_go(more)

    def end(self, failed: bool = False) -> None:
        """The step is over, or was left by an exception."""
        if not self._open:
            return
        self._open = False
        self._pop()
        try:
            self.engine.recorder = None
            if self._chosen and not failed:
                self._learn()
        finally:
            self._around.close()
            self._recorder = None
            self.engine.mover.bury()

    def _learn(self) -> None:
        self.steps += 1
        if self._recorder is not None:
            recording = self._recorder.finish()
            self._idle = True
            self.recorded += 1
            self.note(self._recorder.highest or self.transfer.peak())
            if self._shape is None:
                assert self._key is not None
                self._shape = self.planning.recorded(self._key, recording)
            elif self._was_as_planned(self._shape):
                self.planning.measured(self._shape, recording)
        elif self._looks:
            shape, peak = self._shape, self.transfer.peak()
            if shape is not None and self._started is not None and not shape.plan.keeps_all:
                shape.steps += 1
                shape.marks = (self._started, self.transfer.mark())
                shape.waits = self.engine.mover.waits or []
            self.note(peak)
            if shape is not None and self._was_as_planned(shape):
                self.planning.reached(shape, peak)

    def _was_as_planned(self, shape: Shape) -> bool:
        if self.engine.lost:
            # It was another step than it looked like: the next one is recorded.
            self.planning.shapes.forget(shape)
        return not self.engine.lost

    def note(self, peak: int) -> None:
        """The most bytes that were in use for a while."""
        self.peak = max(self.peak, peak)
        self.over += peak > self.limit

    def last_plan(self) -> Plan:
        """The plan made last."""
        shape = self._usual or self._shape or next(reversed(self.planning.shapes.known.values()), None)
        if shape is None:
            raise UsageError("a plan must come from a step, got none yet; run one inside lms.fit first")
        paged = "\n".join(keeper.explain(shape.plan.native.seconds) for keeper in self.keepers)
        return replace(shape.plan, paged=paged)
