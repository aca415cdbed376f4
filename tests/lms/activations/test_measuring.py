"""How long a step takes is measured, and compared with what was planned, whatever else goes on meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from testing.families import GptBlock, Transformer
from tests.lms.planning.test_search import transformer
from tests.lms.stage import Stage, assert_equal, back
from torch import nn

import weft.lms.api
from weft import lms
from weft.lms.activations.recorder import StepRecorder
from weft.lms.budget import Budget
from weft.lms.device.simulated import SimulatedTransfer
from weft.lms.planning.learned import Planning
from weft.lms.planning.shapes import ShapeKey
from weft.lms.tuning import DEFAULTS


@pytest.mark.parametrize("memory", [True, False])
def test_what_others_move_is_none_of_the_steps_time(memory: bool) -> None:
    transfer = SimulatedTransfer()
    recorder = StepRecorder(transfer, tries_recipes=False, memory=memory)
    recorder.open([])
    transfer.advance(1.0)
    with recorder.others():
        transfer.advance(5.0)
    transfer.advance(2.0)
    recorder.close()
    with recorder.others():  # between two intervals
        transfer.advance(7.0)
    recorder.open([])
    transfer.advance(4.0)
    assert recorder.finish().seconds == (3.0, 4.0)


class Compared:
    """A shape with a plan that swaps, and steps of it that took so long and waited so long."""

    def __init__(self) -> None:
        self.transfer = SimulatedTransfer(link=50e9)
        recording = transformer()
        self.planning = Planning(Budget(self.transfer, int(0.6 * 2**60)))
        native = self.planning.recorded(ShapeKey("a", (1,), 1), recording).plan.native
        self.planning.budget.limit = int(0.6 * native.peak)
        self.shape = self.planning.recorded(ShapeKey("a", (1,), 1), recording)
        assert self.shape.plan.timeline.moved
        self.shape.steps = self.planning.measured_steps + 1

    def step(self, took: float, stall: float = 0.0) -> Any:
        self.transfer.advance(took)
        self.shape.marks, self.shape.waits = (0.0, took), [(0.0, stall)]
        self.planning.compare(self.shape)
        return self.shape.plan


def test_a_step_as_planned_changes_nothing() -> None:
    made = Compared()
    planned = made.shape.plan
    assert made.step(planned.timeline.seconds) is planned
    assert made.shape.steps == made.planning.measured_steps + 1


def test_a_step_that_waited_was_quicker_than_it_took() -> None:
    made = Compared()
    before = made.shape.plan.timeline
    plan = made.step(before.seconds, stall=0.1 * before.seconds)
    assert plan.timeline.moved < before.moved  # there is less time to copy in
    assert made.shape.link == 1.0
    assert sum(made.shape.recording.seconds) < sum(transformer().seconds)
    # The new plan is compared as often as the first was.
    assert made.shape.steps == made.planning.measured_steps


def test_a_step_that_worked_as_long_as_planned_and_waited_has_a_slower_link() -> None:
    made = Compared()
    before = made.shape.plan.timeline
    plan = made.step(1.1 * before.seconds, stall=0.1 * before.seconds)
    assert made.shape.link == DEFAULTS.link_derating
    assert plan.timeline.moved < before.moved
    for _ in range(20):  # it has to end
        made.step(1.5 * made.shape.plan.timeline.seconds, stall=0.5 * made.shape.plan.timeline.seconds)
    assert made.shape.link > 0.4


def test_a_step_that_still_runs_is_not_waited_for() -> None:
    made = Compared()
    before = made.shape.plan
    took = before.timeline.seconds
    made.shape.marks, made.shape.waits = (0.0, took), [(0.0, 0.1 * took)]
    made.planning.compare(made.shape)
    assert made.shape.plan is before
    assert made.shape.marks == (0.0, took)  # to be looked at later
    made.transfer.advance(took)
    made.planning.compare(made.shape)
    assert made.shape.plan is not before
    assert made.shape.marks is None


def test_a_step_that_found_the_device_idle_is_not_compared_with_its_plan() -> None:
    """It takes as long as its launching: after one that was recorded or measured, and after a plan was made."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(8))
    )
    x = torch.randn(512, 64)
    transfer = SimulatedTransfer()
    transfer.adopt(*model.parameters(), x)
    compared = []
    for _ in range(8):
        model.zero_grad(set_to_none=True)
        with lms.fit(1_600_000, transfer=transfer):
            back(model(x).square().mean())
        (shape,) = weft.lms.api.latest().planning.shapes.known.values()
        compared.append(shape.marks is not None)
    measured = weft.lms.api.latest().planning.measured_steps
    assert compared == [False] * (1 + measured) + [False] + [True] * 3 + [False]


def test_times_that_were_taken_twice_are_the_least_of_both() -> None:
    """A device that waited for its launching thread looks as if it had worked."""
    recording = transformer()
    slow = [value * (3 if place % 2 else 1) for place, value in enumerate(recording.seconds)]
    other = [value * (1 if place % 2 else 3) for place, value in enumerate(recording.seconds)]
    first = recording.measured_again(replace(recording, seconds=tuple(slow)))
    again = first.measured_again(replace(recording, seconds=tuple(other)), least=True)
    assert again.seconds == pytest.approx(recording.seconds)


def test_recipes_that_are_alike_are_tried_and_timed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[float] = []
    tried: list[object] = []
    likes: set[object] = set()
    time_recipe, try_recipe = StepRecorder.time_recipe, StepRecorder.try_recipe

    def trying(self: StepRecorder, storage: Any, *given: Any) -> Any:
        tried.append(storage.site)
        return try_recipe(self, storage, *given)

    def timing(self: StepRecorder, like: Any, build: Any) -> Any:
        likes.add(like)
        return time_recipe(self, like, build)

    monkeypatch.setattr(SimulatedTransfer, "busy", lambda _, seconds=0.0: timed.append(seconds))
    monkeypatch.setattr(StepRecorder, "try_recipe", trying)
    monkeypatch.setattr(StepRecorder, "time_recipe", timing)
    torch.manual_seed(0)
    model = Transformer(6, lambda: GptBlock(32, 4), 32)
    x = torch.randn(2, 32, 32)
    transfer = SimulatedTransfer()
    transfer.adopt(*model.parameters(), x)
    with lms.fit(1 << 22, transfer=transfer):
        back(model(x).square().mean())
    sites = [site for site in lms.plan().recording.sites if site.recipe_s is not None]
    assert len(sites) > 3 * len(likes)
    assert len(tried) <= 2 * len(likes)
    assert len(timed) <= 2 * len(likes)


def test_a_step_that_is_timed_is_launched_ahead_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each shape: else the device would wait for measuring, and that would be taken for its own time."""
    waits: list[float] = []
    monkeypatch.setattr(
        SimulatedTransfer, "busy", lambda _, seconds=0.0: waits.append(seconds) if seconds else None
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(8))
    )
    x = torch.randn(512, 64)
    transfer = SimulatedTransfer()
    transfer.adopt(*model.parameters(), x)
    for _ in range(8):
        model.zero_grad(set_to_none=True)
        with lms.fit(1_600_000, transfer=transfer):
            back(model(x).square().mean())
    plan = lms.plan()
    assert not plan.keeps_all
    assert len(waits) == 1
    assert 0 < waits[0] < plan.timeline.seconds
    assert weft.lms.api.latest().over == 0


def test_a_plan_that_counts_too_little_memory_is_watched_and_corrected() -> None:
    """Whatever a plan missed, its first steps stay within the budget, and later ones leave room for it."""
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8))
    made = Stage(nn.Sequential(*layers), torch.randn(128, 64))
    limit = made.budget(0.5)
    transfer = made.device(limit)
    for step in range(14):
        made.model.zero_grad(set_to_none=True)
        with lms.fit(limit, transfer=transfer) as session:
            back(made.forward(made.model, made.x))
        assert_equal(made.model, made.expected, f"step {step}")
        if step == 3:  # times and memory are measured: from here on nothing else would change the plan
            (shape,) = session.planning.shapes.known.values()
            missed = limit // 12
            seen = shape.recording
            other, rest = (tuple(value - missed for value in values) for values in (seen.other, seen.rest))
            session.planning._replan(shape, replace(seen, other=other, rest=rest))
            assert shape.plan.timeline.peak + missed > limit
        if step == 4:
            assert session.engine.evicted_bytes
    assert session.over == 0
    assert shape.margin > 0
    assert not session.engine.evicted_bytes


@pytest.mark.long
def test_plans_are_looked_for_a_little_at_a_time_where_the_host_has_time_of_its_own() -> None:
    torch.manual_seed(0)
    made = Stage(Transformer(4, lambda: GptBlock(32, 4), 32), torch.randn(4, 16, 32), link=1e7)
    transfer = made.device()
    transfer.is_launched = True
    searches, planned = [], []
    for _ in range(200):
        with lms.fit(made.budget(0.4), transfer=transfer) as session:
            back(made.forward(made.model, made.x))
        assert_equal(made.model, made.expected)
        made.model.zero_grad(set_to_none=True)
        (shape,) = session.planning.shapes.known.values()
        searches.append(shape.search is not None)
        planned.append(shape.plan.timeline.seconds)
    assert searches[1]  # a plan is followed while a better one is still looked for,
    assert not searches[-1]  # until all were looked at
    assert planned[-1] <= 1.01 * planned[3]
    assert session.over == 0
