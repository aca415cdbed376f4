"""The plans of one budget: made from recordings, for shapes that were seen and for those like them, and made again as
steps teach better.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from weft.errors import BudgetError
from weft.lms.device.transfer import Transfer
from weft.lms.plan.plan import Plan
from weft.lms.plan.recording import Recording
from weft.lms.plan.search import make_plan
from weft.lms.plan.shapes import Key, Shape, Shapes
from weft.lms.plan.split import Split, Steps, share

if TYPE_CHECKING:
    from weft.lms.paging.model import Keeper
    from weft.lms.paging.optimizer import Pager

QUICKER = 0.97
WAITED = 0.02  # of a step, more than planned: then copies are late
SLOWER = 0.9  # of the link's rate is counted on after that, and again where that is not enough
CHANGES = 8  # of a plan at most, after steps that were not as planned
LOOKED = 1  # planned steps in which memory is looked at again,
TIMED = 1  # and after it time alone
PATIENCE = 8  # steps with room to spare before it is used
MARGIN = 0.01  # of the budget: for what no timeline sees
WHOLE = 0.95  # of the host's memory can be planned for: pieces leave gaps between them


@dataclass
class Planning:
    """What is known about the steps of one budget."""

    transfer: Transfer
    limit: int
    shapes: Shapes = field(default_factory=Shapes)
    keepers: WeakSet[Keeper] = field(default_factory=WeakSet)  # of models whose memory is paged
    replans: int = 0
    seconds: float = 0.0  # that plans took to make
    spare: int = 0  # room to leave in a step of which nothing is known
    stall_s: float | None = None  # that the compute waited for copies in the last step that was timed

    @property
    def budget(self) -> int:
        """What plans may use: a little less than the limit."""
        return int(self.limit * (1 - MARGIN))

    @property
    def split(self) -> Split:
        """What of the budget is left to optimizer state."""
        splits = [keeper.split for keeper in self.keepers]
        return Split(usual=sum(split.usual for split in splits), last=sum(split.last for split in splits))

    def _reserve(self, shape: Shape) -> int:
        """Bytes that plans of a shape should leave to state."""
        return (self.split.last if shape.closes else self.split.usual) if shape.shares else 0

    @property
    def closes_apart(self) -> bool:
        """Whether the last pass before an optimizer's step should leave more to state than those before it."""
        split = self.split
        return split.last > split.usual

    @property
    def shares(self) -> bool:
        """Whether what a step takes, in time, too, decides about the memory of others."""
        return bool(self.keepers) and any(keeper.pager is not None for keeper in self.keepers)

    @property
    def measured_steps(self) -> int:
        """How many planned steps are measured: times, where they decide about more than one step, twice."""
        return LOOKED + TIMED + self.shares

    # Before a step.

    def guess(self, key: Key) -> Shape | None:
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

    def adjust(self, shape: Shape, base: int) -> None:
        """Plan again if more, or much less, is in use than when the plan was made."""
        shift = base - shape.plan.recording.base
        peak = shape.plan.timeline.peak + shift
        # Of steps that take turns, such as those with and without gradients from before, the larger one counts.
        shape.slack = shape.slack + 1 if shift < -0.02 * self.limit and not shape.plan.keeps_all else 0
        reserve = self._reserve(shape)
        if peak > self.budget - shape.margin - reserve or reserve != shape.reserve or shape.slack > PATIENCE:
            self._replan(shape, shape.recording.shifted(base), shape.plan)
            shape.slack = 0

    def closing(self, shape: Shape) -> Shape:
        """For the last pass before an optimizer's step: where it should leave more to state, it has its own plan."""
        if not self.closes_apart:
            return shape
        if shape.last is None:
            shape.last = replace(
                shape, closes=True, reserve=0, steps=0, changes=0, marks=None, waits=[], last=None
            )
        return shape.last

    def headroom(self) -> int:
        """Room to leave where nothing is known yet."""
        known = [
            max(shape.recording.other) - min(shape.recording.other) for shape in self.shapes.known.values()
        ]
        return max(min(max(known, default=0), self.limit // 4), min(self.spare, self.limit // 2))

    # After it.

    def recorded(self, key: Key, recording: Recording) -> Shape:
        """A shape was seen for the first time."""
        shape = Shape(recording, self._planned(recording, 0, None, exact=True), key.bytes, key.kind)
        self.shapes.add(key, shape)
        return shape

    def measured(self, shape: Shape, recording: Recording) -> None:
        """A planned step tells the times better."""
        shape.steps += 1
        # The first time is measured while memory is looked at, too: it tells little that is new.
        like = shape.plan if shape.steps < self.measured_steps else None
        again = shape.recording.measured_again(recording, least=shape.steps > LOOKED + TIMED)
        self._replan(shape, again, like)

    def compare(self, shape: Shape) -> None:
        """A step that was quicker than planned had less time to hide copies in, and one that waited had too little.

        Of one that still runs nothing is known yet: to wait for it would leave the device with nothing to do when the
        next one begins, which would then be as slow as its launching.
        """
        if shape.marks is None or shape.changes >= CHANGES or not self.transfer.passed(shape.marks[1]):
            return
        timeline, took = shape.plan.timeline, self.transfer.seconds(*shape.marks)
        self.stall_s = sum(self.transfer.seconds(*marks) for marks in shape.waits)
        shape.marks, shape.waits = None, []
        worked, planned = took - self.stall_s, timeline.seconds - timeline.stall_s
        if 0 < worked < QUICKER * planned:
            recording = shape.recording.sped_up(max(0.5, worked / planned))
        elif self.stall_s > timeline.stall_s + WAITED * took:
            recording = shape.recording
            shape.link *= SLOWER
        else:
            return
        self._replan(shape, recording, shape.plan)
        shape.changes += 1
        shape.steps = min(shape.steps, self.measured_steps)  # what is planned now is compared again

    def reached(self, shape: Shape, peak: int) -> None:
        """The peak of a step that was as planned otherwise."""
        if peak <= self.limit:
            return
        if shape.plan.keeps_all and not self.shares:
            self.shapes.forget(shape)
        else:
            shape.margin += peak - self.limit
            self._replan(shape, shape.recording)

    def ran_out(self, shape: Shape | None) -> None:
        """Of memory: leave more room in the next step."""
        self.spare = max(2 * self.spare, self.limit // 8)
        if shape is not None:
            shape.margin += self.limit // 20
            if shape.plan.keeps_all:
                self.shapes.forget(shape)

    def share(self, pager: Pager, passes: int) -> None:
        """Leave as much of the budget to optimizer state as is best for steps of so many passes like the last one."""
        shape = pager.shape
        if shape is None or shape.guessed:
            return
        recording = shape.recording.shifted(max(shape.highest, shape.recording.base))
        rates, host = self.transfer.rates(), self._host()
        budget = self.budget - shape.margin
        gradients = pager.keeper.residence.sizes.gradients
        steps = Steps(passes=passes, state=pager.bytes, gradients=gradients, seconds=pager.seconds())
        with self._timed():
            split = share(recording, budget, rates, host, steps)
        if split != pager.keeper.split:
            pager.keeper.split = split
            shape.steps, shape.changes, shape.shares = 0, 0, True  # what is planned now was never measured
            shape.recording, shape.last = recording, None

    # Plans.

    def _planned(
        self, recording: Recording, margin: int, like: Plan | None, exact: bool = False, link: float = 1.0
    ) -> Plan:
        rates, host = self.transfer.rates().times(link), self._host()
        with self._timed():
            plan = make_plan(recording, self.budget - margin, rates, host, like)
        return plan if exact else replace(plan, keys=tuple((op, -1) for op, _ in plan.keys))

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began

    def _host(self) -> int:
        """Bytes of host memory that activations may take."""
        hosted = sum(keeper.residence.hosted for keeper in self.keepers)
        return max(0, int(WHOLE * self.transfer.host_limit) - hosted)

    def _replan(self, shape: Shape, recording: Recording, like: Plan | None = None) -> None:
        shape.recording = recording
        shape.reserve = self._reserve(shape)
        shape.marks, shape.waits = None, []  # of steps that followed another plan
        planned = partial(self._planned, recording, like=like, exact=not shape.guessed, link=shape.link)
        try:
            shape.plan = planned(shape.margin + shape.reserve)
        except BudgetError:
            if not shape.reserve:
                raise
            shape.reserve, shape.shares = 0, False
            shape.plan = planned(shape.margin)
        self.replans += 1
