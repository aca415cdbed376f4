"""A session puts steps under a budget: it picks the plan of each step, or records it, and learns from how it ran.

The first tensor that autograd saves tells the shape of a step. A new shape is recorded, under the budget; its next
steps follow a plan and are measured again, since they tell the times better; after that only the peak is looked at. A
shape that fits without a plan has its hooks taken off at once.

    begin -> save_first (looks the shape up) -> engine.pack, engine.unpack ... -> end (learns)
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from weft.errors import BudgetError, UsageError
from weft.lms.activations.engine import ActivationEngine
from weft.lms.activations.graph import Packed
from weft.lms.activations.guard import GuardedStep, OperationGuard, TapedForward
from weft.lms.activations.module_names import ModuleNames
from weft.lms.activations.recorder import StepRecorder
from weft.lms.activations.saved import Kept, KeptPage, SavedStorage
from weft.lms.activations.step import RunningStep
from weft.lms.activations.step_thread import StepThread
from weft.lms.activations.tape import TapedStep
from weft.lms.blocks.calling import RepeatedBlocks
from weft.lms.blocks.state import tensors_of
from weft.lms.budget import Budget
from weft.lms.device.torch_private import (
    FakeTensor,
    number_of_dispatch_modes,
    pop_saved_tensors_hooks,
    push_saved_tensors_hooks,
    replace_cross_entropy,
)
from weft.lms.loss_pieces import in_pieces, rows_at_once
from weft.lms.paging.page import page_of
from weft.lms.planning.learned import Planning
from weft.lms.planning.plan import Plan
from weft.lms.planning.recording import Recording
from weft.lms.planning.shapes import ShapeKey, StepShape
from weft.text import format_size


class BudgetSession:
    """The steps of one budget on one device."""

    def __init__(self, budget: Budget, smallest: int) -> None:
        self.budget, self.transfer, self.tuning = budget, budget.transfer, budget.tuning
        self.engine = ActivationEngine(budget.transfer, smallest, budget.tuning)
        self.planning = Planning(budget)
        self.step = RunningStep(budget, self.engine, self.begin)
        self.names = ModuleNames()
        self.blocks = RepeatedBlocks(budget.transfer.device)
        self._trying: StepShape | None = None  # whose modules are tried in this step
        self._plain: StepShape | None = None  # whose steps are recorded with modules called again
        self._late = self._asked = frozenset[int]()  # modules that run by the time that this step is known
        # Of steps that are known by what a module is given, since that module saves their first tensor.
        self._keys_by_given: dict[ShapeKey, ShapeKey] = {}
        self.steps = 0
        self.recorded = 0  # steps
        self._key: ShapeKey | None = None
        self._sort: Hashable = None
        self._recorder: StepRecorder | None = None
        self._contexts = ExitStack()  # entered for this step
        self._hooked = False
        self._sees_peak = False  # the step began with a new peak
        self._started: Any = None  # the mark at which a step began that is compared with its plan
        self._launch_began = 0.0  # the host's clock then
        self._device_idle = False  # the device was waited for since the last step
        self._own_modes = 0  # dispatch modes that a step of ours begins with
        self._thread = StepThread()

    @property
    def limit(self) -> int:
        """The budget, in bytes."""
        return self.budget.limit

    @property
    def peak(self) -> int:
        """The most bytes that were in use in any step."""
        return self.budget.peak

    @property
    def over(self) -> int:
        """The number of steps whose peak was above the budget."""
        return self.budget.over

    def leave_more_room(self) -> None:
        """Plan the next step with more room, since this one ran out of memory."""
        self.planning.ran_out(self.step.shape)

    # A step.

    def begin(self, sort: Hashable = None, passes_left: int | None = None) -> None:
        """Begin a step: the first tensor that is saved will tell its shape. Steps of different sorts are never alike.

        `passes_left` is the number of passes after this one before the optimizer's step, if that is known.
        """
        self._take_over()
        try:
            self._begin(sort, passes_left)
        except BaseException:
            if not self.step.is_open:
                self._thread.release()
            raise

    def _take_over(self) -> None:
        """Make this thread the owner of the next step; UsageError while a step of another thread is open."""
        if self._thread.claim():  # hooks and modes of a thread that died have gone with it
            self.step.is_open = self._hooked = False
            self._contexts.pop_all()
        if self.step.is_open:
            self.end()
            self._thread.claim()

    def _begin(self, sort: Hashable, passes_left: int | None) -> None:
        self._sort, step = sort, self.step
        self._trying = self._plain = None
        step.passes_left = passes_left
        step.may_bring_state = passes_left in (0, 1) and self.planning.last_pass_differs
        modes = number_of_dispatch_modes()
        self._contexts.enter_context(self.transfer.watching())
        self._own_modes = number_of_dispatch_modes() - modes
        self._contexts.callback(replace_cross_entropy(partial(in_pieces, rows=self._loss_rows)))
        step.is_open, step.is_known, self._sees_peak = True, False, False
        self._late = self.blocks.noted.first
        self._asked = self.blocks.noted.first & self.planning.shapes.called
        if self._asked:
            self._contexts.enter_context(self.blocks.asking(self._asked, self._know_by))
        self._push_hooks(self.save_first)

    def _loss_rows(self, logits: torch.Tensor, size: int) -> int | None:
        """Return how many rows of a loss are computed at once; None for all, and for losses of other steps."""
        if not self.step.is_open or logits.device != self.transfer.device or not self._thread.is_mine:
            return None
        tuning = self.tuning
        return rows_at_once(
            logits, size, self.budget.limit, tuning.pieced_loss_share, tuning.loss_piece_shift
        )

    def _push_hooks(self, pack: Any) -> None:
        push_saved_tensors_hooks(pack, self.engine.unpack)
        self._hooked = True

    def _pop_hooks(self) -> None:
        if self._hooked:
            pop_saved_tensors_hooks()
            self._hooked = False

    def save_first(self, tensor: torch.Tensor) -> Packed:
        """Take a tensor that autograd saves while the shape is unknown; the first that is no parameter tells it."""
        page = page_of(tensor)
        if page is not None:
            return KeptPage(tensor, page)
        if isinstance(tensor, torch.nn.Parameter) or (tensor.is_leaf and tensor.requires_grad):
            return Kept(tensor)
        if isinstance(tensor, FakeTensor):
            return Kept(tensor)  # of a graph that is captured meanwhile
        self._know(self._key_of(tensor))
        return self.engine.pack(tensor) if self._hooked else Kept(tensor)

    def _key_of(self, tensor: torch.Tensor) -> ShapeKey:
        """Return the key of a step whose first saved tensor this is."""
        autocast = torch.is_autocast_enabled(tensor.device.type)
        kind = (tensor.dtype, tensor.dim(), autocast, self._sort)
        return ShapeKey(kind, tuple(tensor.shape), tensor.nbytes)

    def _know(self, key: ShapeKey) -> None:
        """Take in the key of the step. If everything fits, nothing is hooked for the rest of it."""
        self._pop_hooks()
        self._choose(key)
        if not self.step.fits or self.budget.pages_parameters:
            self._push_hooks(self.engine.pack)

    def _know_by(self, given: Any) -> None:
        """Tell the step by what a module is given that may be called again, and that saves the first tensor."""
        tensor = next(tensors_of(given), None)
        if tensor is None or self.step.is_known or not self._hooked:
            return
        key = self._key_of(tensor)
        key = self._keys_by_given.get(key, key)
        shape = self.planning.shapes.find(key)
        if shape is not None and (shape.called or shape.wanted):
            self._late = frozenset()
            self._know(key)

    def _choose(self, key: ShapeKey) -> None:
        """Look the shape of the step up, and follow its plan or record it."""
        self._key, self.step.is_known = key, True
        self._find_shape(key)
        self._call_again(self.step.shape)
        if self._passes_unseen(self.step.shape):
            return
        self._sees_peak = True
        if not self.budget.models:
            self.step.base = self.budget.in_use()
        self._check_base()
        if self.step.shape is None:
            self.step.shape = self.planning.guess(key)
            self._call_again(self.step.shape)
        shape = self.step.shape
        self.step.usual_shape = self.step.usual_shape or shape
        planning_s = self.planning.seconds
        if shape is not None:
            self.planning.compare(shape)
            if not shape.wanted:
                self.planning.look_on(shape)
                self.planning.adjust(shape, self.step.base)
            shape = self.step.shape = self._with_wanted_modules(shape)
        # While this thread planned or waited, the device may have done all that it had to: then this step takes as long
        # as its launching, and tells nothing about its plan.
        undisturbed = not self._device_idle and self.planning.seconds == planning_s
        self._device_idle = False
        self.transfer.reset_peak()
        if shape is None:
            self.budget.release_state(lambda: True)
        self._recorder = None if self._trying is not None else self._new_recorder(shape)
        compared = undisturbed and shape is not None and self._recorder is None and self._is_compared(shape)
        self._started = self.transfer.mark() if compared else None
        self._launch_began = time.perf_counter()
        self.engine.mover.waits = [] if compared else None
        self._start(shape)

    def _call_again(self, shape: StepShape | None) -> None:
        """Call modules again in this step, if its shape says so."""
        if shape is not None and shape.called:
            self._contexts.enter_context(self.blocks.called_again(shape.called))

    def _with_wanted_modules(self, shape: StepShape) -> StepShape | None:
        """Return the shape whose plan this step follows; None where modules that it wants to call again are tried, and
        for the step that is recorded with these called again.
        """
        late = shape.wanted & self._late
        if late and not self._asked & late:
            return shape  # from the next step on, these are asked before they run
        shape.wanted -= late
        if not shape.wanted:
            return shape
        if shape.may_call:
            self._plain = shape
            self._contexts.enter_context(self.blocks.called_again(shape.wanted))
        else:
            self._trying = shape
            self._contexts.enter_context(self.blocks.trying(shape.wanted))
        return None

    def _find_shape(self, key: ShapeKey) -> None:
        step = self.step
        shape = step.usual_shape = self.planning.shapes.find(key)
        if self.budget.models:
            step.base = self.budget.in_use()
            if shape is not None:
                shape.highest_base = max(shape.highest_base, step.base)
        if shape is not None and step.passes_left == 0:
            shape = self.planning.last_pass_shape(shape)
        step.shape = shape

    def _passes_unseen(self, shape: StepShape | None) -> bool:
        """Return whether a step that fits is among those whose peak is not even looked at."""
        if shape is None or not shape.plan.keeps_all or self._is_measured(shape) or shape.wanted:
            return False
        if shape.is_on_trial:
            return False
        shape.steps += 1
        hooked = self.step.may_bring_state or self.budget.pages_parameters
        return (
            shape.steps > self.planning.measured_steps
            and shape.steps % self.tuning.quiet_steps != 0
            and not hooked
        )

    def _check_base(self) -> None:
        base, limit = self.step.base, self.budget.limit
        if base > limit:
            raise BudgetError(
                f"limit must hold what is on the device before the step, {format_size(base)}, got "
                f"{format_size(limit)}; give at least that and the largest operation, or page optimizer state "
                "and parameters with lms.wrap",
                short=base - limit,
            )

    def _new_recorder(self, shape: StepShape | None) -> StepRecorder | None:
        """Return a recorder if the step is to be measured.

        The last measurements of a shape are of times alone: measuring memory takes time, which counts as the step's.
        """
        if shape is not None and not self._is_measured(shape):
            return None
        memory = shape is None or (shape.steps < self.tuning.memory_recordings and not shape.varies)
        if shape is not None and not memory:  # or the device would wait for the launching that measuring adds
            self.transfer.busy(self.tuning.launch_ahead * shape.plan.timeline.seconds)
        tries_recipes = shape is None
        names = self._note_modules if shape is None else self._module_name
        unfilled = self.budget.unfilled
        recorder = StepRecorder(self.transfer, tries_recipes, memory, unfilled, names, self.tuning)
        if shape is not None and shape.varies:
            recorder.vary()
        return recorder

    def _note_modules(self, storage: SavedStorage) -> str:
        """Note the modules that run while a storage is saved, and return the path of the innermost one."""
        self.blocks.noted.note(self.engine.event, self.engine.tape.operations, storage)
        return self.names.current()

    def _module_name(self, _: SavedStorage) -> str:
        return self.names.current()

    def _start(self, shape: StepShape | None) -> None:
        """Start the engine, and for a shape that is new watch modules and operations."""
        engine, budget = self.engine, self.budget
        if shape is None:
            assert self._key is not None
            for given in self.blocks.noted.clear():
                self._keys_by_given[self._key_of(given)] = self._key
            self._contexts.enter_context(self.names.watched())
        plan = None if shape is None else shape.plan
        engine.after_event = self.step.make_state_leave if budget.pages_state else None
        headroom = self.planning.headroom()
        if shape is None:
            engine.start(budget.plannable, None, self._recorder, headroom)
        else:
            ceiling = budget.limit - (budget.limit >> self.tuning.ceiling_shift)
            if shape.margin < 0:
                ceiling = budget.limit
            if shape.varies:  # what the next operation takes is not known to the byte
                ceiling = budget.plannable
            watched = shape.watched > 0 and not budget.models
            shape.watched -= watched
            engine.start(
                budget.plannable,
                plan,
                self._recorder,
                headroom,
                ceiling=ceiling,
                watched=watched,
                varied=shape.varies,
                largest_surplus=shape.largest_surplus,
            )
        if shape is None:
            slack = min(
                self.tuning.operation_slack_bytes, budget.plannable >> self.tuning.operation_slack_shift
            )
            tape = None if budget.pages_parameters or self._trying is not None else engine.tape
            guard = OperationGuard(
                engine.before_operation,
                slack,
                engine.graph.changed,
                engine.is_quiet,
                tape,
                engine.host_waits,
                engine.operation_bytes,
            )
            engine.guarded = self._contexts.enter_context(GuardedStep(guard, self._own_modes))
            engine.taped = engine.guarded and tape is not None
        elif plan is not None and plan.replays:
            taped = TapedForward(TapedStep(engine.tape), self._own_modes)
            engine.taped = self._contexts.enter_context(taped)
            engine.alone = self._own_modes == 0

    def _is_measured(self, shape: StepShape) -> bool:
        """Return whether the next step of a shape is recorded; one that keeps all is where its times decide a split."""
        wanted = self.budget.pages_state or not shape.plan.keeps_all
        return shape.steps < self.planning.measured_steps and wanted and not shape.guessed

    def _is_compared(self, shape: StepShape) -> bool:
        """Return whether the time of this step is compared with its plan: the last comparison must be over."""
        last = self.planning.measured_steps + self.tuning.compared_steps
        return shape.steps < last and shape.marks is None

    def end(self, failed: bool = False) -> None:
        """End the step; `failed` if an exception left it, so that nothing is learned from it."""
        if not self.step.is_open:
            return
        self._thread.check()
        self.step.is_open = False
        self._pop_hooks()
        try:
            self.engine.recorder = None
            if self.step.is_known and not failed:
                self._learn()
            else:
                self.planning.tried(self._trying or self._plain, False, failed)
        finally:
            self._contexts.close()
            self._recorder = None
            self.engine.tape.clear()
            self.engine.mover.bury()
            self._thread.release()

    def _learn(self) -> None:
        """Take in what a step that ended tells: its recording, its time, or its peak alone."""
        self.steps += 1
        if self._trying is not None:
            self.budget.note_peak(self.transfer.peak())
            may_call = self.engine.guarded and self.blocks.may_repeat(self._trying.wanted)
            self.planning.tried(self._trying, may_call)
        elif self.engine.varied and self.step.shape is not None:
            self._learn_varied(self.step.shape)
        elif self._recorder is not None:
            recording = self._recorder.finish()
            self._device_idle = True
            self.recorded += 1
            peak = self._recorder.highest or self.transfer.peak()
            self.budget.note_peak(peak)
            if self.step.shape is None:
                self.step.shape = self._planned_first(recording)
            elif self._was_as_planned(self.step.shape):
                self.step.shape.margin += max(0, peak - self.budget.limit)
                self.planning.squeeze(self.step.shape, self.engine.evicted_bytes)
                self.planning.measured(self.step.shape, recording)
        elif self._sees_peak:
            self._learn_peak()

    def _planned_first(self, recording: Recording) -> StepShape:
        """Return the shape of the step that was recorded, with its plan."""
        assert self._key is not None
        if self._plain is not None:
            return self.planning.recorded_called(self._key, recording, self._plain)
        return self.planning.recorded(self._key, recording, self.blocks.noted.end())

    def _learn_varied(self, shape: StepShape) -> None:
        """Take in a step whose sizes were not the planned ones."""
        recorder, intervals = self._recorder, None
        if recorder is not None and not self.engine.lost:
            intervals = recorder.finish_times()
            self._device_idle = True
        self._learn_peak()
        if self._was_as_planned(shape):
            shape.largest_surplus = self.engine.largest_surplus
            self.planning.varied(shape, self.engine.evicted_bytes, intervals)

    def _learn_peak(self) -> None:
        """Take in the peak of a step, and its time if that is to be compared with its plan's."""
        if self._recorder is not None:  # a measurement that was given up
            shape = self.step.shape
            assert shape is not None
            shape.steps += 1
            peak = max(self._recorder.highest, self.transfer.peak())
            self.budget.note_peak(peak)
            self.planning.reached(shape, peak)
        else:
            shape, peak = self.step.shape, self.transfer.peak()
            timed = shape is not None and (not shape.plan.keeps_all or shape.is_on_trial)
            if shape is not None and self._started is not None and timed:
                shape.steps += 1
                shape.marks = (self._started, self.transfer.mark())
                took = time.perf_counter() - self._launch_began
                shape.launched_s = took if self.transfer.is_launched else 0.0
                shape.waits = self.engine.mover.waits or []
            self.budget.note_peak(peak)
            if shape is not None and self._was_as_planned(shape):
                engine = self.engine
                if peak <= self.budget.limit and engine.evicted_bytes and not engine.varied:
                    self.planning.squeezed(shape, engine.evicted_bytes)
                else:
                    self.planning.reached(shape, peak)

    def _was_as_planned(self, shape: StepShape) -> bool:
        if self.engine.lost:
            # The step was another one than its first tensor said: the next such step is recorded.
            self.planning.shapes.forget(shape)
        return not self.engine.lost

    def last_plan(self) -> Plan:
        """Return the plan that was used or made last."""
        step = self.step
        shape = step.usual_shape or step.shape or next(reversed(self.planning.shapes.known.values()), None)
        if shape is None:
            raise UsageError("a plan must come from a step, got none yet; run one inside lms.fit first")
        paged = self.budget.explain_pages(shape.plan.native.seconds)
        called = tuple(self.blocks.kinds(shape.called))
        native = shape.plan.native if shape.plain is None else shape.plain.plan.native
        return replace(shape.plan, paged=paged, called=called, native=native)
