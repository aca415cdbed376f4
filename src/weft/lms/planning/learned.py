"""The plans of one budget: made from recordings, guessed for similar shapes, and made again as steps tell more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from weft.errors import BudgetError
from weft.lms.budget import Budget, ModelUsage
from weft.lms.planning.blocks import BlockPlan, ModuleSpan, is_worth_trying, plan_blocks
from weft.lms.planning.launching import LaunchCost, learned_share
from weft.lms.planning.plan import Plan
from weft.lms.planning.recording import Recording
from weft.lms.planning.search import PlanSoFar, kept, plans
from weft.lms.planning.shapes import ShapeKey, StepShape, StepShapes
from weft.lms.planning.split import OptimizerStep, share


class Planning:
    """The shapes of steps that were seen under one budget, and a plan for each."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.transfer, self.tuning = budget, budget.transfer, budget.tuning
        self.shapes = StepShapes(budget.tuning)
        self.replans = 0
        self.seconds = 0.0  # spent making plans
        self.spare = 0  # bytes of room to leave in a step without a plan, since one ran out of memory
        self.stall_s: float | None = (
            None  # waited for copies in the last step that was compared with its plan
        )

    def _reserve(self, shape: StepShape) -> int:
        """Return the bytes that plans of a shape should leave to optimizer state."""
        split = self.budget.split
        return (split.last if shape.is_last_pass else split.usual) if shape.shares else 0

    @property
    def last_pass_differs(self) -> bool:
        """Whether the last pass before an optimizer's step should leave more to state than those before it."""
        split = self.budget.split
        return split.last > split.usual

    @property
    def measured_steps(self) -> int:
        """The number of planned steps of a shape that are measured; one more where times decide about a split."""
        return self.tuning.memory_recordings + self.tuning.time_recordings + self.budget.pages_state

    # Before a step.

    def guess(self, key: ShapeKey) -> StepShape | None:
        """Return a shape never seen, with a plan from shapes like it; None if too little is known."""
        found = self.shapes.guess(key)
        if found is None:
            return None
        recording, like, size = found
        try:
            plan = self._planned(recording, 0, like.plan).plan
        except BudgetError:
            return None
        watched = self.tuning.watched_steps
        shape = StepShape(recording, plan, size, key.kind, guessed=True, watched=watched, called=like.called)
        shape.origin, shape.spans = like, like.spans
        shape.wanted, shape.may_call = like.wanted, like.may_call
        self.shapes.add(self.shapes.bucket(key), shape)
        return shape

    def adjust(self, shape: StepShape, base: int) -> None:
        """Plan again if more, or for a while much less, than `base` bytes was in use when the plan was made."""
        shift = base - shape.plan.recording.base
        peak = shape.plan.timeline.peak + shift
        # Of steps that take turns, such as those with and without gradients from before, the larger one counts.
        less = shift < -self.tuning.freed_share * self.budget.limit and not shape.plan.keeps_all
        shape.slack_steps = shape.slack_steps + 1 if less else 0
        reserve = self._reserve(shape)
        over = peak > self.budget.plannable - shape.margin - reserve
        if over or reserve != shape.reserve or shape.slack_steps > self.tuning.slack_steps:
            self._replan(shape, shape.recording.shifted(base), shape.plan)
            shape.slack_steps = 0

    def last_pass_shape(self, shape: StepShape) -> StepShape:
        """Return the shape of last passes before an optimizer's step: one of its own if these leave more to state."""
        if not self.last_pass_differs:
            return shape
        if shape.last_pass is None:
            shape.last_pass = replace(
                shape,
                is_last_pass=True,
                reserve=0,
                steps=0,
                changes=0,
                marks=None,
                waits=[],
                last_pass=None,
                search=None,
            )
        return shape.last_pass

    def headroom(self) -> int:
        """Return the bytes of room to leave in a step that has no plan yet."""
        limit, tuning = self.budget.limit, self.tuning
        known = [
            max(shape.recording.other) - min(shape.recording.other) for shape in self.shapes.known.values()
        ]
        growth = min(max(known, default=0), limit // tuning.headroom_share)
        return max(growth, min(self.spare, limit // tuning.spare_share))

    # After a step.

    def recorded(self, key: ShapeKey, recording: Recording, spans: tuple[ModuleSpan, ...] = ()) -> StepShape:
        """Plan a shape that was recorded for the first time; `spans` are the modules that ran."""
        shape = StepShape(recording, kept(recording, self.budget.plannable, self.tuning), key.bytes, key.kind)
        shape.spans, shape.watched = spans, self.tuning.watched_steps
        # The times of a first step are those of measuring it, too: little is known of how long one takes.
        try:
            planned = self._planned_with_margin(shape, patience=self.tuning.first_planning_share)
        except BudgetError as error:
            found = self._blocks(shape)
            if found is None:
                raise
            shape.wanted, shape.without = found.modules, error
            self.shapes.add(key, shape)
            return shape
        plan = shape.plan = planned.plan
        found = None if plan.keeps_all else self._blocks(shape)
        # A better plan may be found yet, but hardly one that much better.
        hoped_s = plan.timeline.seconds / (1.0 if planned.is_over else self.tuning.first_plan_excess)
        if found is not None and is_worth_trying(found, hoped_s, hoped_s, self.tuning):
            shape.wanted = found.modules
        self.shapes.add(key, shape)
        return shape

    def recorded_called(self, key: ShapeKey, recording: Recording, plain: StepShape) -> StepShape:
        """Plan steps that call the modules again that those of a shape wanted; the shape itself if no plan fits."""
        shape = StepShape(
            recording,
            plain.plan,
            key.bytes,
            plain.kind,
            margin=0 if plain.without is not None or plain.varies else plain.margin,
            launching=plain.launching,
            watched=self.tuning.watched_steps,
            called=plain.wanted,
            plain=plain,
        )
        try:
            shape.plan = self._planned_with_margin(shape).plan
        except BudgetError:
            if plain.without is not None:
                raise
            plain.wanted = frozenset()
            return plain
        plain.wanted = frozenset()
        self.shapes.replace_guesses(plain)
        self.shapes.add(key, shape)
        return shape

    def tried(self, shape: StepShape | None, may_call: bool, failed: bool = False) -> None:
        """Take in whether the modules that a shape wants to call again may be; they may not if the step `failed`, whose
        own error is told then.
        """
        if shape is None:
            return
        for each in (shape, shape.origin) if shape.origin is not None else (shape,):
            each.may_call, each.weighed = may_call, True
            each.wanted = shape.wanted if may_call else frozenset()
        if not may_call:
            if shape.without is not None:
                self.shapes.forget(shape)
                if failed:
                    return
                raise shape.without
            self._replan(shape, shape.recording, shape.plan)  # by what is known of launching

    def measured(self, shape: StepShape, recording: Recording) -> None:
        """Plan a shape again after a planned step, which tells the times better than the first one."""
        shape.steps += 1
        # The first of these steps is measured with memory, so its times tell little that is new.
        thorough = shape.steps >= self.measured_steps
        least = shape.steps > self.tuning.memory_recordings + self.tuning.time_recordings
        self._replan(shape, shape.recording.measured_again(recording, least=least), shape.plan, thorough)

    def compare(self, shape: StepShape) -> None:
        """Compare the last step of a shape with its plan, and plan again if it was faster, or waited longer.

        A faster step had less time to hide copies in, and one that waited had too little. Nothing is known yet about a
        step that still runs: waiting for it would leave the device with nothing to do when the next step begins, which
        would then be as slow as its launching.
        """
        if shape.marks is None or not self.transfer.passed(shape.marks[1]):
            return
        took = self.transfer.seconds(*shape.marks)
        self.stall_s = sum(self.transfer.seconds(*marks) for marks in shape.waits)
        shape.marks, shape.waits = None, []
        shape.fastest_s = min(shape.fastest_s, took)
        tuning = self.tuning
        most = tuning.varied_changes if shape.varies else tuning.max_plan_changes
        if shape.changes < most:
            self._change_by(shape, took, self.stall_s)
        if shape.steps >= self.measured_steps + tuning.compared_steps:
            self._weigh_calling(shape)

    def _change_by(self, shape: StepShape, took: float, stall_s: float) -> None:
        """Plan again if a step was not as planned."""
        tuning, timeline = self.tuning, shape.plan.timeline
        worked, planned = took - stall_s, timeline.seconds - timeline.stall_s
        if self._was_better(shape, took) or self._waits_for_launching(shape, worked, took):
            return
        if timeline.launch_s:
            return  # what is left of the difference is not known well enough to learn from
        if 0 < worked < tuning.faster_than_planned * planned:
            recording = shape.recording.sped_up(max(tuning.most_speed_up, worked / planned))
        elif stall_s > timeline.stall_s + tuning.stall_tolerance * took:
            recording = shape.recording
            shape.link *= tuning.link_derating
        else:
            return
        self._replan(shape, recording, shape.plan)
        shape.changes += 1
        shape.steps = min(shape.steps, self.measured_steps)  # the new plan is compared again

    def _weigh_calling(self, shape: StepShape) -> None:
        """Decide whether steps should call modules again, once it is known what they take by their plan.

        On paper that is never faster than to rebuild a part of what modules save. Steps that take longer than their
        plans say, as where the launching thread holds them up, may be slower than those that call modules again: these
        are tried then, and given up if they take as long.
        """
        if shape.weighed or (shape.plain is None and shape.search is not None):
            return  # or it is not over yet what plans can do
        shape.weighed = True
        if shape.plain is not None:
            if shape.fastest_s >= shape.plain.fastest_s:
                self.shapes.forget(shape)
            return
        found = self._blocks(shape)
        if found is None:
            return
        # What the host takes is not known well enough to weigh: where it holds steps up, they are tried.
        planned_s = shape.plan.timeline.seconds
        if shape.launching > 0 or is_worth_trying(found, planned_s, shape.fastest_s, self.tuning):
            shape.wanted = found.modules

    def _blocks(self, shape: StepShape) -> BlockPlan | None:
        """Return the best plan that calls modules again; None if there is none, or they cannot be tried."""
        plain = not (shape.guessed or shape.is_last_pass or shape.called)
        over = shape.plan.native.peak - self.budget.plannable  # which leaves in the steps that try it
        if not plain or self.budget.pages_state or self.budget.pages_parameters or over > self._host_bytes():
            return None
        cost, limit = LaunchCost(shape.launching, self.tuning), self.budget.plannable - shape.margin
        rates = self.transfer.rates()
        with self._timed():
            return plan_blocks(shape.recording, shape.spans, limit, rates, cost, self.tuning)

    def _was_better(self, shape: StepShape, took: float) -> bool:
        """Go back to the plan before launching was counted if its steps were no slower; return whether they were."""
        if shape.before is None:
            return False
        before_s, plan = shape.before
        shape.before = None
        room = self.budget.plannable - shape.margin - shape.reserve
        if took < before_s or plan.timeline.peak + shape.recording.base - plan.recording.base > room:
            return False
        shape.plan, shape.launching, shape.fastest_s, shape.search = plan, 0.0, before_s, None
        shape.changes = self.tuning.max_plan_changes  # it was compared before
        shape.watched = self.tuning.watched_steps
        return True

    def _waits_for_launching(self, shape: StepShape, worked: float, took: float) -> bool:
        """Plan again if the device waited for the launching that the plan adds; return whether it did."""
        plan, timeline = shape.plan, shape.plan.timeline
        excess_s = worked - (timeline.seconds - timeline.stall_s - timeline.launch_s)
        tuning = self.tuning
        if excess_s <= tuning.launch_tolerance * took or shape.launched_s < tuning.launch_bound_share * took:
            return False
        share = learned_share(plan.recording, plan.choices, excess_s, tuning)
        if share <= shape.launching + tuning.launch_tolerance:
            return False
        shape.launching, shape.changes = share, shape.changes + 1
        if shape.plain is None:
            self._weigh_calling(shape)
        if shape.wanted:
            return True  # which adds less to launching
        self._replan(shape, shape.recording)
        added, less = (
            LaunchCost(1.0, tuning).of(each.recording, each.choices) for each in (plan, shape.plan)
        )
        if less > (1 - tuning.launch_gain) * added:
            shape.plan, shape.fastest_s, shape.search = plan, took, None  # known, and as good
        else:
            shape.before = (took, plan)
            shape.steps = min(shape.steps, self.measured_steps)
        return True

    def varied(self, shape: StepShape, evicted: int, intervals: Sequence[tuple[int, float]] | None) -> None:
        """Take in a step whose sizes were not the planned ones: the bytes that had to leave in it, and the times of its
        intervals, if they were measured. From the first one on, plans leave some room, and hang on no size.
        """
        recording = shape.recording if intervals is None else shape.recording.timed_by(intervals)
        first, part = not shape.varies, self.budget.limit >> self.tuning.varied_limit_shift
        more = part if first else 0
        if not first and evicted and shape.changes < self.tuning.varied_changes:
            more, shape.changes = min(evicted, part), shape.changes + 1
        if not more and intervals is None:
            return
        shape.varies = True
        rates = self.transfer.rates()
        late_s = evicted / rates.out + evicted / rates.back
        self._replan(shape, recording, shape.plan if intervals is None else None)
        if more:
            self._leave_more(shape, more, late_s)
        self._want_calling(shape, late_s)

    def _leave_more(self, shape: StepShape, more: int, late_s: float) -> None:
        """Have plans of a shape leave more room, unless that takes longer than to wait for what leaves late."""
        margin, plan, search = shape.margin, shape.plan, shape.search
        shape.margin += more
        self._replan(shape, shape.recording, plan)
        if shape.plan.timeline.seconds > plan.timeline.seconds + late_s:
            shape.margin, shape.plan, shape.search = margin, plan, search

    def _want_calling(self, shape: StepShape, late_s: float) -> None:
        """Have modules called again where sizes follow the data, if that is faster: it depends on no size."""
        if shape.weighed or shape.plan.keeps_all:
            return
        found, planned_s = self._blocks(shape), shape.plan.timeline.seconds + late_s
        if found is not None and is_worth_trying(found, planned_s, planned_s, self.tuning):
            shape.wanted = found.modules

    def reached(self, shape: StepShape, peak: int) -> None:
        """Take in the peak of a step that ran by its plan; above the limit, plan with a larger margin."""
        if peak <= self.budget.limit:
            return
        if shape.plan.keeps_all and not self.budget.pages_state and shape.plain is None:
            self.shapes.forget(shape)
        else:
            shape.margin += peak - self.budget.limit
            self._replan(shape, shape.recording, shape.plan)

    def squeezed(self, shape: StepShape, evicted: int) -> None:
        """Take in that `evicted` bytes left in a watched step: unwatched, it would have gone over the budget."""
        self.squeeze(shape, evicted)
        self._replan(shape, shape.recording, shape.plan)

    def squeeze(self, shape: StepShape, evicted: int) -> None:
        """Have plans of a shape leave more room, by a part of what had to leave: that was whole tensors."""
        shape.margin += min(evicted, self.budget.limit >> self.tuning.squeeze_shift)

    def ran_out(self, shape: StepShape | None) -> None:
        """Leave more room in the next step, since one ran out of memory."""
        limit, tuning = self.budget.limit, self.tuning
        self.spare = max(2 * self.spare, limit // tuning.first_spare_share)
        if shape is not None:
            shape.margin += limit // tuning.out_of_memory_margin_share
            if shape.plan.keeps_all:
                self.shapes.forget(shape)

    def share(self, model: ModelUsage, shape: StepShape, step: OptimizerStep) -> None:
        """Choose how much of the budget a model's state gets, for optimizer steps whose passes have this shape."""
        recording = shape.recording.shifted(max(shape.highest_base, shape.recording.base))
        plannable, rates = self.budget.plannable - shape.margin, self.transfer.rates()
        with self._timed():
            split = share(recording, plannable, rates, self._host_bytes(), step, self.tuning)
        if split != model.split:
            model.split = split
            shape.steps, shape.changes, shape.shares = 0, 0, True  # the next plan was never measured
            shape.recording, shape.last_pass = recording, None

    # Making plans.

    def _planned_with_margin(self, shape: StepShape, patience: float | None = None) -> PlanSoFar:
        """Look for a plan that leaves the margin of a shape free, or the least margin where there is none."""
        planned = partial(self._planned, shape.recording, exact=True, launching=shape.launching)
        try:
            return planned(shape.margin, patience=patience)
        except BudgetError:
            shape.margin = self._least_margin
            return planned(shape.margin, patience=patience)

    @property
    def _least_margin(self) -> int:
        """The margin below zero of plans that take all of the budget, where there are no others."""
        return self.budget.plannable - self.budget.limit

    def _planned(
        self,
        recording: Recording,
        margin: int,
        like: Plan | None = None,
        exact: bool = False,
        link: float = 1.0,
        launching: float = 0.0,
        thorough: bool = False,
        patience: float | None = None,
    ) -> PlanSoFar:
        """Look for a plan as long as the patience of one step lasts."""
        rates, host = self.transfer.rates().times(link), self._host_bytes()
        cost, limit = LaunchCost(launching, self.tuning), self.budget.plannable - margin
        search = plans(recording, limit, rates, host, like, self.tuning, cost, thorough)
        found = PlanSoFar(search, exact)
        with self._timed():
            found.look(self._patience_s(recording, patience))
        return found

    def _patience_s(self, recording: Recording, share: float | None = None) -> float:
        """Return the seconds for which plans are looked for between two steps: a share of a step."""
        if not self.transfer.is_launched:
            return float("inf")  # a clock that knows nothing of the host's time
        return (self.tuning.planning_share if share is None else share) * sum(recording.seconds)

    def look_on(self, shape: StepShape) -> None:
        """Go on to look for a better plan, where there was no time for that; none but a better one is followed."""
        search = shape.search
        settled = shape.steps >= self.measured_steps + self.tuning.compared_steps
        if search is None or not settled or shape.marks is not None or shape.is_on_trial:
            return
        with self._timed():
            search.look(self._patience_s(shape.recording))
        if search.is_over:
            shape.search = None
        found_s, least_gain = search.plan.timeline.seconds, self.tuning.search_tolerance
        if found_s < (1 - least_gain) * shape.plan.timeline.seconds:
            self._follow(shape, search.plan)
            shape.steps = min(shape.steps, self.measured_steps)  # it is compared, too
        elif search.is_over:
            self._weigh_calling(shape)

    def _follow(self, shape: StepShape, plan: Plan) -> None:
        """Follow a new plan, of which nothing is known yet."""
        shape.plan, shape.marks, shape.waits = plan, None, []
        shape.fastest_s = float("inf")
        shape.watched = self.tuning.watched_steps
        self.replans += 1

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began

    def _host_bytes(self) -> int:
        """Return the bytes of host memory that activations may take."""
        share = int(self.tuning.host_plan_share * self.transfer.host_limit)
        return max(0, share - self.budget.paged_host_bytes)

    def _replan(
        self, shape: StepShape, recording: Recording, like: Plan | None = None, thorough: bool = False
    ) -> None:
        """Make the plan of a shape from a recording, without room for state if it does not fit otherwise."""
        shape.recording = recording
        shape.reserve = self._reserve(shape)
        planned = partial(
            self._planned,
            recording,
            like=like,
            exact=not (shape.guessed or shape.varies),
            link=shape.link,
            launching=shape.launching,
            thorough=thorough,
        )
        while True:
            try:
                found = planned(shape.margin + shape.reserve)
                shape.search = found.left
                self._follow(shape, found.plan)
                return
            except BudgetError:
                if shape.reserve:
                    shape.reserve, shape.shares = 0, False
                elif shape.margin > self.budget.limit >> self.tuning.least_margin_shift:
                    shape.margin //= 2  # some of it is better than no plan; memory is watched
                elif shape.margin > 0:
                    shape.margin = 0
                elif shape.margin > self._least_margin:
                    shape.margin = self._least_margin
                elif shape.plain is not None:
                    self.shapes.forget(shape)  # more is in use now: its plan has no room any more
                    return
                else:
                    raise
