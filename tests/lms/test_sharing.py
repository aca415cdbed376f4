"""A budget between activations and optimizer state: the split that costs least, and a run that keeps to it."""

from __future__ import annotations

import copy
import gc
from dataclasses import replace

import pytest
import torch
from tests.lms.families import LlamaBlock, Transformer
from tests.lms.stage import back
from tests.lms.test_planner import MB, transformer
from torch import Tensor, nn

import weft.lms.api
from weft import lms
from weft.lms import wrapping
from weft.lms.paging import SHARE, TAKEN
from weft.lms.planner import make_plan
from weft.lms.recording import Rates
from weft.lms.sharing import share, wait
from weft.lms.simulated import SimulatedTransfer

RATES = Rates(out=50e9, back=50e9)
RECORDING = transformer()
PEAK = make_plan(RECORDING, 1 << 60, RATES).timeline.peak


def test_state_that_stays_need_not_be_waited_for() -> None:
    plan = make_plan(RECORDING, 1 << 60, RATES)
    backward = plan.timeline.seconds * 2 / 3
    away = int(10 * backward * RATES.back)
    assert wait(plan, PEAK + away, RATES, away) == 0
    assert wait(plan, PEAK, RATES, away) == pytest.approx(9 * backward, rel=0.05)
    assert wait(plan, PEAK + away // 2, RATES, away) == pytest.approx(4 * backward, rel=0.1)
    assert wait(plan, PEAK, RATES, int(backward * RATES.back / 2)) == 0  # it comes during the backward pass


def test_activations_give_way_where_that_is_cheaper_than_to_wait() -> None:
    state = 24_000 * MB
    room = PEAK + state // 4

    def best(passes: int, rates: Rates = RATES) -> int:
        return share(RECORDING, room, rates, None, state=state, passes=passes)

    assert best(1) > state // 4
    assert best(1000) <= state // 4  # every pass would pay for it
    fast = Rates(out=5000e9, back=5000e9)
    assert best(1, fast) <= state // 4  # nobody waits anyway
    everywhere = [
        (passes * plan.timeline.seconds + wait(plan, room, RATES, state), reserve)
        for passes in (4,)
        for reserve in range(0, state // 2 + 1, state // 8)
        for plan in [make_plan(RECORDING, room - reserve, RATES)]
    ]
    assert best(4) == min(everywhere)[1]


def test_state_gets_no_more_than_activations_can_give() -> None:
    state = 40_000 * MB
    budget = PEAK // 2
    found = share(RECORDING, budget, RATES, None, state=state, passes=1)
    make_plan(RECORDING, budget - found, RATES)
    assert found < budget
    tight = replace(RECORDING, other=tuple(budget - 300 * MB for _ in RECORDING.other))
    assert share(tight, budget, RATES, None, state=state, passes=1) == 0


def model_and_batch() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Transformer(6, lambda: LlamaBlock(128, 4, 2, 384), 128), torch.randn(2, 64, 128)


def steps(shared: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, float, float]:
    """A model after some steps of AdamW; seconds, and bytes of state that came in, of the last of them."""
    lms.forget()
    monkeypatch.setattr(wrapping, "SHARED", wrapping.SHARED if shared else ())
    model, x = model_and_batch()
    transfer = SimulatedTransfer(limit=23_000_000, link=2e9, product_rate=3e12)
    transfer.adopt(*model.parameters(), *model.buffers(), x)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    lms.wrap(model, optimizer, limit=23_000_000, transfer=transfer)
    seconds, paged = 0.0, 0.0
    for _ in range(7):
        seconds, paged = (
            transfer.clock,
            float(paged if not weft.lms.api._latest else lms.stats()["paged_in_bytes"]),
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
    for _ in range(6):
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
    # Passes that make gradients and those that add to them in full and for their times, the latter again with state.
    assert recorded[2] <= 8
    assert recorded[2:] == recorded[2:3] * 4
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
        self.early = self.late = 0.0  # bytes of state that came in before the last step, and in it
        self.seconds: list[float] = []  # of its backward passes

    def train(self, steps: int, passes: int = 4) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            self.seconds = []
            for _ in range(passes):
                logits = self.model(self.x)
                loss = nn.functional.cross_entropy(logits[0, :-1], self.x[0, 1:])
                del logits
                begun, came = self.transfer.clock, lms.stats()["paged_in_bytes"]
                back(loss)
                self.seconds.append(self.transfer.clock - begun)
                self.early = lms.stats()["paged_in_bytes"] - came
            came = lms.stats()["paged_in_bytes"]
            self.optimizer.step()
            self.late = lms.stats()["paged_in_bytes"] - came


def test_state_comes_in_once_a_step_and_before_it_where_there_is_room() -> None:
    """The last backward pass lets activations go: there is room for state, if gradients are not counted twice."""
    made = Accumulating(4.3, link=2e9, rate=2e12)
    made.train(6)
    session = weft.lms.api.latest()
    assert 0 < made.early + made.late <= 2 * made.weights - session.planning.reserve + session.limit // SHARE
    assert made.late <= 0.1 * made.early
    assert session.over == 0
    (keeper,) = session.keepers
    assert keeper.pager is not None
    assert keeper.pager._taken < TAKEN  # it was seen, the parameter without a gradient notwithstanding
    session.end(failed=True)


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


def test_state_that_comes_early_does_not_delay_activations() -> None:
    made = Accumulating(4.22, link=7e7, rate=2e10)
    made.train(6)
    session = weft.lms.api.latest()
    assert session.last_plan().timeline.moved > 0
    assert made.early > 0
    assert made.seconds[-1] < 1.02 * made.seconds[-2]
    assert session.over == 0
    session.end(failed=True)


def test_a_shared_budget_is_kept_and_less_state_travels(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert 0 < less < came / 2
    assert seconds < waited
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
        pagers = [keeper.pager for keeper in session.keepers if keeper.pager is not None]
        assert pagers
        for pager in pagers:
            here = [page for pages in pager.pages.values() for page in pages if page.here]
            assert pager.leaving == sum(page.bytes for page in here)
            assert pager.leaving == sum(page.bytes for page in pager._leaving)
        assert session.over == 0
        assert all(shape.margin == 0 for shape in session.planning.shapes.known.values())
        session.end(failed=True)


def test_operations_between_two_modules_have_their_room() -> None:
    made = Setting(12_000_000)
    made.train(8)
    assert weft.lms.api.latest().planning.reserve > 0
    assert weft.lms.api.latest().planning.replans < 10
    made.assert_kept()


def test_state_that_somebody_read_goes_like_any_other() -> None:
    made = Setting(12_000_000)
    for _ in range(6):
        made.train(1)
        for state in made.optimizers[0].state.values():
            assert bool(state["exp_avg"].isfinite().all())
    made.assert_kept()


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
    assert session.planning.reserve > 0
    session.end(failed=True)
    del made
    gc.collect()
    assert session.planning.reserve == 0
