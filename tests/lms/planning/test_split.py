"""A budget between activations and optimizer state: the split that costs least, and a run that keeps to it."""

from __future__ import annotations

import copy
import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from testing.families import LlamaBlock, Transformer
from tests.lms.planning.test_search import MB, transformer
from tests.lms.stage import back
from torch import Tensor, nn

import weft.lms.api
from weft import lms
from weft.lms.device.simulated import SimulatedTransfer
from weft.lms.planning.plan import Plan
from weft.lms.planning.recording import Rates
from weft.lms.planning.search import make_plan
from weft.lms.planning.split import OptimizerStep, Split, share, state_after, wait_for_state
from weft.lms.tuning import DEFAULTS

RATES = Rates(out=50e9, back=50e9)
RECORDING = transformer()
PEAK = make_plan(RECORDING, 1 << 60, RATES).timeline.peak


def waited(plan: Plan, budget: int, state: int, step: float = 0.0) -> float:
    """For state to come."""
    rates = Rates(out=1e18, back=RATES.back)
    return wait_for_state(plan, plan, budget, rates, OptimizerStep(passes=1, state=state, seconds=step))


def test_state_that_stays_need_not_be_waited_for() -> None:
    plan = make_plan(RECORDING, 1 << 60, RATES)
    backward = plan.timeline.seconds * 2 / 3
    away = int(10 * backward * RATES.back)
    assert waited(plan, PEAK + away, away) == 0
    assert waited(plan, PEAK, away) == pytest.approx(9 * backward, rel=0.05)
    assert waited(plan, PEAK + away // 2, away) == pytest.approx(4 * backward, rel=0.1)
    assert waited(plan, PEAK, int(backward * RATES.back / 2)) == 0  # it comes during the backward pass
    assert waited(plan, PEAK, away, step=backward) == pytest.approx(8 * backward, rel=0.05)


def test_state_comes_as_fast_as_the_link_and_memory_let_it() -> None:
    plan = make_plan(RECORDING, 1 << 60, RATES)
    timeline = plan.timeline
    much = 1 << 50
    at_once, slowly = Rates(out=1e18, back=1e18), Rates(out=1e6, back=1e6)
    assert state_after(plan, 7, PEAK + 7, at_once, most=much) == PEAK + 7 - timeline.levels[-1]
    assert state_after(plan, 7, PEAK + 7, at_once, most=100) == 100
    assert state_after(plan, 7, much, slowly, most=much) == pytest.approx(7 + 1e6 * timeline.seconds, abs=1)
    backward = timeline.seconds - timeline.times[timeline.peak_interval]
    assert state_after(plan, 7, PEAK + 7, slowly, most=much) == pytest.approx(7 + 1e6 * backward, rel=0.05)
    swaps = make_plan(RECORDING, int(0.8 * PEAK), RATES)
    assert swaps.timeline.moved
    free = swaps.timeline.seconds - swaps.timeline.back[-1]  # activations come back over the same link
    assert state_after(swaps, 0, much, slowly, most=much) == pytest.approx(1e6 * free, rel=0.01)


def test_activations_give_way_where_that_is_cheaper_than_to_wait() -> None:
    state = 24_000 * MB
    room = PEAK + state // 4

    def best(passes: int, rates: Rates = RATES) -> Split:
        return share(RECORDING, room, rates, None, OptimizerStep(passes=passes, state=state))

    assert best(1).usual == best(1).last > state // 4
    free = make_plan(RECORDING, room - best(1000).usual, RATES)
    assert free.slowdown == 1.0  # every pass would pay for more
    assert best(1000).usual < best(1).usual
    fast = Rates(out=5000e9, back=5000e9)
    assert best(1, fast).usual <= state // 4  # nobody waits anyway


@pytest.mark.parametrize("passes", [1, 2, 4, 8])
def test_no_other_split_costs_less(passes: int) -> None:
    state = 24_000 * MB
    room = PEAK + state // 4
    steps = OptimizerStep(passes=passes, state=state, seconds=0.02)

    def cost(split: Split) -> float:
        usual, last = (make_plan(RECORDING, room - left, RATES) for left in (split.usual, split.last))
        working = (passes - 1) * usual.timeline.seconds + last.timeline.seconds
        return working + wait_for_state(usual, last, room, RATES, steps)

    lefts = range(0, state // 2 + 1, state // 8)
    splits = [Split(usual=one, last=two) for one in lefts for two in lefts if two >= one]
    found = cost(share(RECORDING, room, RATES, None, steps))
    assert found <= 1.002 * min(cost(split) for split in splits if passes > 1 or split.usual == split.last)
    if passes > 1:
        assert found < min(cost(split) for split in splits if split.usual == split.last)


def test_state_gets_no_more_than_activations_can_give() -> None:
    state = 40_000 * MB
    budget = PEAK // 2
    found = share(RECORDING, budget, RATES, None, OptimizerStep(passes=1, state=state))
    make_plan(RECORDING, budget - found.last, RATES)
    assert found.last < budget
    tight = replace(RECORDING, other=tuple(budget - 300 * MB for _ in RECORDING.other))
    assert share(tight, budget, RATES, None, OptimizerStep(passes=1, state=state)) == Split()


def model_and_batch() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Transformer(6, lambda: LlamaBlock(128, 4, 2, 384), 128), torch.randn(2, 64, 128)


def state_pages(model: Any) -> Any:
    """The pages of optimizer state of a wrapped model."""
    return model.forward.wrapped.state_pages


def steps(shared: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, float, float]:
    """A model after some steps of AdamW; seconds, and bytes of state that came in, of the last of them."""
    lms.forget()
    tuning = DEFAULTS if shared else replace(DEFAULTS, share_after_steps=())
    monkeypatch.setattr(weft.lms.api, "DEFAULTS", tuning)
    model, x = model_and_batch()
    transfer = SimulatedTransfer(limit=23_000_000, link=2e9, product_rate=3e12)
    transfer.adopt(*model.parameters(), *model.buffers(), x)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    lms.wrap(model, optimizer, limit=23_000_000, transfer=transfer)
    seconds, paged = 0.0, 0.0
    for _ in range(7):
        seconds, paged = (
            transfer.clock,
            float(paged if weft.lms.api.SESSIONS.latest is None else lms.stats()["paged_in_bytes"]),
        )
        optimizer.zero_grad(set_to_none=True)
        for _ in range(4):
            back(model(x).square().mean())
        optimizer.step()
    assert lms.stats()["over"] == 0
    return model, transfer.clock - seconds, lms.stats()["paged_in_bytes"] - paged


def test_a_loss_outside_of_the_model_has_its_room() -> None:
    """It is the largest of the step, and no module's call comes before it that could make room."""
    torch.manual_seed(0)
    words = 4000
    model = Transformer(4, lambda: LlamaBlock(128, 4, 2, 384), 128, vocabulary=words)
    x = torch.randint(words, (1, 64))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    transfer = SimulatedTransfer(limit=23_400_000, link=2e9, product_rate=3e12)
    transfer.adopt(*model.parameters(), *model.buffers(), x)
    lms.wrap(model, optimizer, limit=23_400_000, transfer=transfer)
    recorded = []
    for _ in range(8):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(4):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits[0, :-1].double(), x[0, 1:])
            del logits
            back(loss)
        optimizer.step()
        recorded.append(lms.stats()["recorded"])
    assert lms.stats()["paged_in_bytes"] > 0
    assert lms.stats()["over"] == 0
    # Passes that make gradients and those that add to them in full, and again for their times, the latter, and the last
    # one of each step, with state, too.
    assert recorded[2] <= 10
    assert recorded[-1] <= 14
    assert recorded[-3:] == recorded[-1:] * 3
    weft.lms.api.latest().end(failed=True)


class Accumulating:
    """A model whose state is paged, with several passes for each step; what the last pass and the last step took."""

    def __init__(self, share: float, link: float, rate: float) -> None:
        lms.forget()
        torch.manual_seed(0)
        words = 1000
        self.model = Transformer(8, lambda: LlamaBlock(128, 4, 2, 384), 128, vocabulary=words)
        self.x = torch.randint(words, (1, 110))
        self.weights = sum(parameter.nbytes for parameter in self.model.parameters())
        limit = int(share * self.weights)
        self.transfer = SimulatedTransfer(limit=limit, link=link, product_rate=rate)
        self.transfer.adopt(*self.model.parameters(), *self.model.buffers(), self.x)
        self.model.register_parameter("unused", nn.Parameter(torch.zeros(8)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        lms.wrap(self.model, self.optimizer, limit=limit, transfer=self.transfer)
        # Bytes of state that came in with the last backward pass, in the last step, and with each pass before it.
        self.early = self.late = 0.0
        self.before: list[float] = []
        self.seconds: list[float] = []  # of its backward passes

    def train(self, steps: int, passes: int = 4) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            self.seconds, self.before = [], []
            for _ in range(passes):
                self.run()
            came = self._came()
            self.optimizer.step()
            self.late = self._came() - came

    def run(self) -> None:
        came = self._came()
        logits = self.model(self.x)
        loss = nn.functional.cross_entropy(logits[0, :-1], self.x[0, 1:])
        del logits
        begun, until = self.transfer.clock, self._came()
        back(loss)
        self.seconds.append(self.transfer.clock - begun)
        self.early = self._came() - until
        self.before += [until - came, self.early]

    def _came(self) -> float:
        return float(lms.stats()["paged_in_bytes"]) if weft.lms.api.SESSIONS.latest is not None else 0.0


def test_state_stays_through_the_pass_before_the_last_where_that_has_no_plan_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weft.lms.api, "DEFAULTS", replace(DEFAULTS, share_after_steps=()))
    made = Accumulating(4.3, link=2e9, rate=2e12)
    made.train(5)
    (usage,) = weft.lms.api.latest().budget.models
    made.optimizer.zero_grad(set_to_none=True)
    here = []
    for _ in range(3):
        made.run()
        here.append(usage.state_on_device)
    assert here[2] == here[1] > 0
    weft.lms.api.latest().end(failed=True)


@pytest.mark.long
def test_the_last_pass_before_a_step_leaves_more_room_to_state_than_the_others() -> None:
    """So it comes in from the backward pass before that one on, and once."""
    made = Accumulating(4.22, link=7e7, rate=2e10)
    made.train(8)
    session = weft.lms.api.latest()
    split = session.budget.split
    assert split.last > split.usual
    *others, before, forward, backward = made.before
    assert not any(others)
    assert min(before, forward + backward) > 0
    stays = session.limit - session.last_plan().timeline.peak
    came = sum(made.before) + made.late
    assert came <= 2 * made.weights - min(stays, split.usual) + session.limit // DEFAULTS.chunk_share
    assert session.over == 0
    assert "in the last pass before the step" in lms.plan().explain()
    session.end(failed=True)


@pytest.mark.long
def test_a_last_pass_that_was_another_step_than_it_looked_like_is_recorded_again() -> None:
    made = Accumulating(4.22, link=7e7, rate=2e10)
    made.train(8)
    session = weft.lms.api.latest()
    recorded, shapes = session.recorded, set(session.planning.shapes.known)
    made.optimizer.zero_grad(set_to_none=True)
    for _ in range(3):
        made.run()
    assert session.planning.shapes.known.keys() == shapes
    back(made.model(made.x).sigmoid().square().sigmoid().mean())
    made.optimizer.step()
    assert session.recorded == recorded
    assert session.planning.shapes.known.keys() < shapes
    made.train(2)
    assert session.recorded > recorded
    assert session.over == 0
    session.end(failed=True)


@pytest.mark.long
def test_state_comes_in_once_a_step_and_before_it_where_there_is_room() -> None:
    """The last backward pass lets activations go: there is room for state, if gradients are not counted twice."""
    made = Accumulating(4.3, link=2e9, rate=2e12)
    made.train(6)
    session = weft.lms.api.latest()
    assert (
        0
        < made.early + made.late
        <= 2 * made.weights - session.budget.split.usual + session.limit // DEFAULTS.chunk_share
    )
    assert made.late <= 0.1 * made.early
    assert session.over == 0
    state = state_pages(made.model)
    assert (
        state._temporaries < DEFAULTS.step_temporaries
    )  # it was seen, the parameter without a gradient notwithstanding
    session.end(failed=True)


@pytest.mark.long
def test_state_that_came_early_for_a_step_that_did_not_follow_comes_again() -> None:
    made = Accumulating(4.3, link=2e9, rate=2e12)
    made.train(6)
    came = made.early
    made.train(1, passes=6)  # two more than before every step so far
    assert not made.early
    made.optimizer.load_state_dict(made.optimizer.state_dict())
    made.train(1, passes=6)
    assert made.early > 0.9 * came
    session = weft.lms.api.latest()
    assert session.over == 0
    session.end(failed=True)


@pytest.mark.long
@pytest.mark.xfail(
    strict=True, reason="plans of finer segments leave copies less slack: 6 % late, must be 3 %"
)
def test_state_that_comes_early_does_not_delay_activations() -> None:
    made = Accumulating(4.22, link=7e7, rate=2e10)
    made.train(6)
    session = weft.lms.api.latest()
    (last,) = (
        shape.last_pass for shape in session.planning.shapes.known.values() if shape.last_pass is not None
    )
    timeline = last.plan.timeline
    assert timeline.moved > 0
    assert made.early > 0
    assert made.seconds[-1] < 1.03 * (timeline.seconds - timeline.times[timeline.peak_interval])
    assert session.over == 0
    session.end(failed=True)


@pytest.mark.long
def test_a_shared_budget_is_kept_and_steps_are_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = model_and_batch()
    native, x = copy.deepcopy(model), model_and_batch()[1]
    optimizer = torch.optim.AdamW(native.parameters(), 1e-3)
    for _ in range(7):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(4):
            back(native(x).square().mean())
        optimizer.step()
    with monkeypatch.context() as context:
        _, waited, came = steps(False, context)
    shared, seconds, less = steps(True, monkeypatch)
    assert 0 < less <= came
    assert seconds < 0.9 * waited
    assert "activations leave" in lms.plan().explain()
    for found, wanted in zip(shared.parameters(), native.parameters(), strict=True):
        assert torch.equal(found, wanted)
    weft.lms.api.latest().end(failed=True)


class Setting:
    """Models of some blocks with AdamW, whose state is paged, on a device of one limit."""

    def __init__(self, limit: int, blocks: int = 3, models: int = 1) -> None:
        lms.forget()
        torch.manual_seed(0)
        self.limit = limit
        self.x = torch.randn(6, 64, 128)
        self.transfer = SimulatedTransfer(limit=limit, link=2e9, product_rate=3e12)
        self.models = [Transformer(blocks, lambda: LlamaBlock(128, 4, 2, 384), 128) for _ in range(models)]
        self.transfer.adopt(*(each for model in self.models for each in model.parameters()), self.x)
        self.optimizers = [torch.optim.AdamW(model.parameters(), 1e-3) for model in self.models]
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            lms.wrap(model, optimizer, limit=limit, transfer=self.transfer)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            for model, optimizer in zip(self.models, self.optimizers, strict=True):
                optimizer.zero_grad(set_to_none=True)
                back(model(self.x).square().mean())
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    def assert_kept(self) -> None:
        session = weft.lms.api.latest()
        for model in self.models:
            state = state_pages(model)
            here = [page for pages in state.pages.values() for page in pages if page.here]
            assert state.traffic.usage.state_on_device == sum(page.bytes for page in here)
            assert state.traffic.usage.state_on_device == sum(page.bytes for page in state._on_device)
        assert session.over == 0
        # A plan that fits to the byte leaves too little for what its recording did not see; watched steps say so.
        assert all(
            shape.margin <= session.budget.limit >> 4 for shape in session.planning.shapes.known.values()
        )
        session.end(failed=True)


def test_operations_between_two_modules_have_their_room() -> None:
    made = Setting(12_000_000)
    made.train(8)
    assert weft.lms.api.latest().budget.split.usual > 0
    assert weft.lms.api.latest().planning.replans < 10
    made.assert_kept()


def test_state_that_somebody_read_goes_like_any_other() -> None:
    made = Setting(12_000_000)
    for _ in range(6):
        made.train(1)
        for state in made.optimizers[0].state.values():
            assert bool(state["exp_avg"].isfinite().all())
    made.assert_kept()


@pytest.mark.long
def test_two_models_share_one_budget() -> None:
    made = Setting(16_000_000, blocks=4, models=2)
    made.train(6)
    made.assert_kept()


def test_a_pass_without_gradients_has_the_room_of_state() -> None:
    made = Setting(12_000_000)
    made.train(5)
    with torch.no_grad(), made.transfer.watching():
        made.models[0](torch.cat([made.x, made.x]))
    made.train(1)
    made.assert_kept()


def test_what_was_left_to_state_is_there_again_when_its_model_is_gone() -> None:
    made = Setting(12_000_000)
    made.train(3)
    session = weft.lms.api.latest()
    assert session.budget.split.usual > 0
    session.end(failed=True)
    del made
    gc.collect()
    assert session.budget.split.usual == 0
