"""A budget's life: which plan a step gets, when a step is recorded, and what is learned from how it went.

The first tensor that autograd saves tells the shape of a step. A shape that is new is recorded, under the budget; the
next steps follow its plan and are measured again, since they tell the times better; after that nothing is measured but
the peak. A shape that fits as it is has its hooks taken off at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch._subclasses.fake_tensor import FakeTensor

from weft.errors import BudgetError, UsageError
from weft.lms.engine import Engine, Packed
from weft.lms.guard import Guard, Guarding
from weft.lms.modules import named_modules
from weft.lms.pages import KeptPage, page_of
from weft.lms.planner import make_plan
from weft.lms.plans import Plan
from weft.lms.recorder import Recorder
from weft.lms.recording import Recording
from weft.lms.records import Kept
from weft.lms.shapes import Key, Shape, Shapes
from weft.lms.sharing import share
from weft.lms.sizes import show_bytes
from weft.lms.transfer import Transfer

if TYPE_CHECKING:
    from weft.lms.keeping import Keeper
    from weft.lms.paging import Pager

MEASURED = 2  # planned steps that are measured again
COMPARED = 3  # steps whose whole time is compared with the plan's
QUICKER = 0.97
WAITED = 0.02  # of a step, more than planned: then copies are late
SLOWER = 0.8  # of the link's rate is counted on after that
PATIENCE = 8  # steps with room to spare before it is used
QUIET = 8  # of so many steps that fit, one is looked at
AUTO = 0.95  # of what is free
SLACK = 64 << 20  # bytes that an operation may take besides what shapes tell
MARGIN = 0.01  # of the budget: for what no timeline sees
WHOLE = 0.95  # of the host's memory can be planned for: pieces leave gaps between them


@dataclass
class Session:
    """One budget on one device."""

    transfer: Transfer
    limit: int
    smallest: int = 1 << 20
    engine: Engine = field(init=False)
    shapes: Shapes = field(default_factory=Shapes)
    replans: int = 0
    recorded: int = 0
    steps: int = 0
    peak: int = 0
    stall_s: float | None = None  # that the compute waited for copies in the last step that was timed
    over: int = 0  # steps whose peak was above the budget
    keepers: WeakSet[Keeper] = field(default_factory=WeakSet)  # of models whose memory is paged
    spare: int = 0  # room to leave in a step of which nothing is known

    def __post_init__(self) -> None:
        self.engine = Engine(self.transfer, self.smallest)
        self._hooked = False
        self._open = self._chosen = self._looks = False
        self._key: Key | None = None
        self._shape: Shape | None = None
        self._recorder: Recorder | None = None
        self._around = ExitStack()
        self._started: Any = None
        self._base = 0  # bytes in use when the step began
        self._modes = 0  # that a step of ours begins with

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def shape(self) -> Shape | None:
        """Of the step that runs, or of the last one."""
        return self._shape

    @property
    def reserve(self) -> int:
        """Bytes of the budget that are left to optimizer state."""
        return sum(keeper.reserve for keeper in self.keepers)

    @property
    def follows(self) -> bool:
        """Whether a plan is followed, event by event."""
        return self._open and self._chosen and not self._fits() and self.engine.plan is not None

    def unfilled(self) -> int:
        """Bytes that pages may still take, less those that more of them are here than need be."""
        return sum(keeper.unfilled for keeper in self.keepers)

    # A step.

    def begin(self) -> None:
        """A step may begin: look at the first tensor that is saved."""
        if self._open:
            self.end()
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
        self._choose(Key((tensor.dtype, tensor.dim(), autocast), tuple(tensor.shape), tensor.nbytes))
        if self._fits() and not self._pages_parameters():
            return Kept(tensor)  # everything fits: nothing is hooked for the rest of the step
        self._push(self.engine.pack)
        return self.engine.pack(tensor)

    def _fits(self) -> bool:
        return self._shape is not None and self._shape.plan.keeps_all and self._recorder is None

    def _pages_parameters(self) -> bool:
        """Whether all that is saved must be seen, since parameters leave between the passes."""
        return any(keeper.parameters is not None for keeper in self.keepers)

    def _shares(self) -> bool:
        """Whether what a step takes, in time, too, decides about the memory of others."""
        return any(keeper.pager is not None for keeper in self.keepers)

    def _choose(self, key: Key) -> None:
        """The plan for this shape, or a recording."""
        self._key, self._chosen = key, True
        shape = self._shape = self.shapes.find(key)
        if self.keepers:
            self._base = self._in_use()
            if shape is not None:
                shape.highest = max(shape.highest, self._base)
        if shape is not None and shape.plan.keeps_all:
            shape.steps += 1
            if shape.steps > MEASURED and shape.steps % QUIET and not self._pages_parameters():
                return
        self._looks = True
        base = self._base = self._base if self.keepers else self._in_use()
        if base > self.limit:
            raise BudgetError(
                f"limit must hold what is on the device before the step, {show_bytes(base)}, got "
                f"{show_bytes(self.limit)}; give at least that and the largest operation, or page optimizer state "
                "and parameters with lms.wrap",
                short=base - self.limit,
            )
        shape = self._shape = shape or self._guess(key)
        if shape is not None:
            self._compare(shape)
            self._adjust(shape, base)
        self.transfer.reset_peak()
        if shape is None:
            self.let_go(lambda: True)
        measure = shape is None or (
            shape.steps < MEASURED and (self._shares() or not shape.plan.keeps_all) and not shape.guessed
        )
        self._recorder = None
        if measure:  # last without looking at memory: to look takes time, which would be taken for the step's
            looks = shape is None or shape.steps < MEASURED - 1
            self._recorder = Recorder(self.transfer, shape is None, looks, self.unfilled)
        if shape is None:
            self._around.enter_context(named_modules())
        plan = None if shape is None else shape.plan
        compared = shape is not None and not measure and shape.steps < MEASURED + COMPARED
        self._started = self.transfer.mark() if compared else None
        self.engine.mover.waits = [] if compared else None
        self.engine.follow = self._follow if self._shares() else None
        self.engine.start(self.budget, plan, self._recorder, headroom=self._headroom())
        if shape is None:
            engine, slack = self.engine, min(SLACK, self.budget >> 6)
            guard = Guard(engine.before_operation, slack, engine.graph.changed, engine.is_quiet)
            engine.guarded = self._around.enter_context(Guarding(guard, self._modes))

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
        return max(0, peak + shift + shape.margin - self._in_use())

    def _more_than(self, shape: Shape) -> int:
        """Bytes that were in use when the step began and are in no plan; one that began with less makes gradients."""
        return max(0, self._base - shape.plan.recording.base)

    def _follow(self, event: int) -> None:
        """State goes before an event if what follows until the next ones leaves it less room than it has."""
        shape = self._shape
        assert shape is not None
        plan = shape.plan
        next_ones = max(plan.timeline.levels[event + 1 : event + 3], default=0)
        room = self.budget - shape.margin - next_ones - self._more_than(shape)
        self.let_go(lambda: self._leaving() > room)

    def _leaving(self) -> int:
        return sum(keeper.pager.leaving for keeper in self.keepers if keeper.pager is not None)

    def let_go(self, more: Callable[[], bool], last: Keeper | None = None) -> None:
        """State leaves as long as more of it should, that of one model last."""
        for keeper in sorted(self.keepers, key=lambda keeper: keeper is last):
            if keeper.pager is not None and more():
                keeper.pager.let_go(more)

    def beside(self, shape: Shape | None) -> int:
        """Bytes of the budget that passes of a shape leave to others all along."""
        if shape is None:
            return 0
        base = max(shape.highest, self._base)
        return max(0, self.budget - shape.plan.timeline.peak - base + shape.plan.recording.base)

    def share(self, pager: Pager, passes: int) -> None:
        """Leave as much of the budget to optimizer state as is best for steps of so many passes like the last one."""
        shape = pager.shape
        if shape is None or shape.guessed:
            return
        recording = shape.recording.shifted(max(shape.highest, shape.recording.base))
        rates, host = self.transfer.rates(), self._host()
        budget = self.budget - shape.margin
        reserve = share(recording, budget, rates, host, state=pager.bytes, passes=passes)
        if reserve != pager.keeper.reserve:
            pager.keeper.reserve = reserve
            shape.steps, shape.shares = 0, True  # what is planned now was never measured
            shape.recording = recording

    @property
    def budget(self) -> int:
        """What plans may use: a little less than the limit."""
        return int(self.limit * (1 - MARGIN))

    def tighten(self) -> None:
        """A step ran out of memory: leave more room in the next."""
        self.spare = max(2 * self.spare, self.limit // 8)
        if self._shape is not None:
            self._shape.margin += self.limit // 20
            if self._shape.plan.keeps_all:
                self.shapes.forget(self._shape)

    def _headroom(self) -> int:
        """Room to leave where nothing is known yet."""
        known = [
            max(shape.recording.other) - min(shape.recording.other) for shape in self.shapes.known.values()
        ]
        return max(min(max(known, default=0), self.limit // 4), min(self.spare, self.limit // 2))

    def _guess(self, key: Key) -> Shape | None:
        """For a shape never seen: as others were, larger or smaller."""
        found = self.shapes.guess(key)
        if found is None:
            return None
        recording, like, size = found
        try:
            plan = self._planned(recording, 0, like)
        except BudgetError:
            return None
        shape = Shape(recording, plan, size, key.kind, guessed=True)
        self.shapes.add(self.shapes.bucket(key), shape)
        return shape

    def _planned(
        self, recording: Recording, margin: int, like: Plan | None, exact: bool = False, link: float = 1.0
    ) -> Plan:
        rates, host = self.transfer.rates().times(link), self._host()
        plan = make_plan(recording, self.budget - margin, rates, host, like)
        return plan if exact else replace(plan, keys=tuple((op, -1) for op, _ in plan.keys))

    def _host(self) -> int:
        """Bytes of host memory that activations may take."""
        hosted = sum(keeper.residence.hosted for keeper in self.keepers)
        return max(0, int(WHOLE * self.transfer.host_limit) - hosted)

    def _compare(self, shape: Shape) -> None:
        """A step that was quicker than planned had less time to hide copies in, and one that waited had too little."""
        if shape.marks is None:
            return
        took, planned = self.transfer.seconds(*shape.marks), shape.plan.timeline.seconds
        self.stall_s = sum(self.transfer.seconds(*marks) for marks in shape.waits)
        shape.marks, shape.waits = None, []
        if 0 < took < QUICKER * planned:
            self._replan(shape, shape.recording.sped_up(max(0.5, took / planned)))
        elif self.stall_s > shape.plan.timeline.stall_s + WAITED * took:
            shape.link *= SLOWER
            self._replan(shape, shape.recording)

    def _adjust(self, shape: Shape, base: int) -> None:
        """Plan again if more, or much less, is in use than when the plan was made."""
        shift = base - shape.plan.recording.base
        peak = shape.plan.timeline.peak + shift
        # Of steps that take turns, such as those with and without gradients from before, the larger one counts.
        shape.slack = shape.slack + 1 if shift < -0.02 * self.limit and not shape.plan.keeps_all else 0
        reserve = self.reserve if shape.shares else 0
        if peak > self.budget - shape.margin - reserve or reserve != shape.reserve or shape.slack > PATIENCE:
            self._replan(shape, shape.recording.shifted(base))
            shape.slack = 0

    def _replan(self, shape: Shape, recording: Recording) -> None:
        shape.recording = recording
        shape.reserve = self.reserve if shape.shares else 0
        planned = partial(self._planned, recording, like=None, exact=not shape.guessed, link=shape.link)
        try:
            shape.plan = planned(shape.margin + shape.reserve)
        except BudgetError:
            if not shape.reserve:
                raise
            shape.reserve, shape.shares = 0, False
            shape.plan = planned(shape.margin)
        self.replans += 1

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
            self.recorded += 1
            self._note(self._recorder.highest or self.transfer.peak())
            self._learn_from(recording)
        elif self._looks:
            shape = self._shape
            if shape is not None and self._started is not None and not shape.plan.keeps_all:
                shape.steps += 1
                shape.marks = (self._started, self.transfer.mark())
                shape.waits = self.engine.mover.waits or []
            peak = self.transfer.peak()
            self._note(peak)
            self._look_at(peak)

    def _note(self, peak: int) -> None:
        self.peak = max(self.peak, peak)
        self.over += peak > self.limit

    def _learn_from(self, recording: Recording) -> None:
        shape, key = self._shape, self._key
        if shape is not None and self.engine.lost:
            self.shapes.forget(shape)  # this was another step than it looked like: the next one is recorded
            return
        if shape is None:
            assert key is not None
            plan = self._planned(recording, 0, None, exact=True)
            self._shape = Shape(recording, plan, key.bytes, key.kind)
            self.shapes.add(key, self._shape)
            return
        shape.steps += 1
        self._replan(shape, shape.recording.measured_again(recording))

    def _look_at(self, peak: int) -> None:
        """A step that was not measured: was it as planned?"""
        shape = self._shape
        if shape is None:
            return
        if self.engine.lost or (peak > self.limit and shape.plan.keeps_all and not self._shares()):
            self.shapes.forget(shape)
        elif peak > self.limit:
            shape.margin += peak - self.limit
            self._replan(shape, shape.recording)

    def last_plan(self) -> Plan:
        """The plan made last."""
        shape = self._shape or next(reversed(self.shapes.known.values()), None)
        if shape is None:
            raise UsageError("a plan must come from a step, got none yet; run one inside lms.fit first")
        paged = "\n".join(keeper.explain(shape.plan.native.seconds) for keeper in self.keepers)
        return replace(shape.plan, paged=paged)
