"""Where no plan keeps the budget, more of a model leaves the device than was guessed at first."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from tests.lms.paging.test_paging import (
    adamw,
    assert_same,
    bytes_of,
    model_and_batch,
    no_step_stays_open,
    trained,
    wrapped,
)
from tests.lms.stage import back
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from weft import lms
from weft.errors import BudgetError
from weft.lms.paging.page import AwayParameter

__all__ = ["no_step_stays_open"]  # after each of these, too


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "micro", "limit", "kinds"),
    [
        (12, 2, 3.2, ("state", "gradient")),  # which are there when the second pass begins
        (16, 1, 3.0, ("state", "gradient", "parameter")),  # far too little was left to activations
    ],
)
def test_more_is_paged_where_no_plan_keeps_the_budget(
    rows: int, micro: int, limit: float, kinds: tuple[str, ...]
) -> None:
    model, x = model_and_batch()
    x = torch.cat([x] * rows)
    other = copy.deepcopy(model)
    native, optimizer = adamw(model), adamw(other)
    wrapped(other, optimizer, int(limit * bytes_of(model)), hard=False)
    before = lms.stats()["paged_bytes"]
    trained(model, native, x, micro=micro)
    trained(other, optimizer, x, micro=micro)
    over = lms.stats()["over"]
    assert over <= 2  # passes of which nobody knew yet that they would not fit
    assert lms.stats()["paged_bytes"] > before
    explained = lms.plan().explain()
    assert all(kind in explained for kind in kinds)
    trained(model, native, x, micro=micro)
    trained(other, optimizer, x, micro=micro)
    assert lms.stats()["over"] == over
    assert_same(other, model)


def test_gradients_that_a_pass_makes_and_those_it_finds_are_not_counted_together() -> None:
    model, x = model_and_batch()
    x = torch.cat([x] * 4)
    optimizer = adamw(model)
    wrapped(model, optimizer, int(3.2 * bytes_of(model)))
    before = lms.stats()["paged_bytes"]
    trained(model, optimizer, x)
    assert lms.stats()["paged_bytes"] == before
    assert lms.stats()["over"] == 0


@pytest.mark.long
def test_more_is_paged_between_the_steps_of_an_optimizer_with_a_closure() -> None:
    model, x = model_and_batch()
    x = torch.cat([x] * 24)
    other = copy.deepcopy(model)
    wrapped(other, second := adamw(other), int(5.5 * bytes_of(model)), hard=False)
    assert lms.stats()["paged_bytes"] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each, optimizer in ((model, adamw(model)), (other, second)):
            closed(each, optimizer, x)
    assert lms.stats()["paged_bytes"] > 0
    assert_same(other, model)


def closed(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def closure() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        back(loss)
        return float(loss.detach())

    for _ in range(4):
        optimizer.step(closure)
        scheduler.step()


def test_a_parameter_that_autograd_saved_by_itself_stays_where_it_is() -> None:
    """A pass that fits has no hooks, and its graph may live on while parameters are paged."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(layer for _ in range(8) for layer in (nn.Conv2d(32, 32, 3, padding=1), nn.Tanh()))
    )
    other = copy.deepcopy(model)
    small, large = torch.randn(1, 32, 6, 6), torch.randn(1, 32, 64, 32)
    wrapped(other, torch.optim.SGD(other.parameters(), 0.1), int(2.6 * bytes_of(model)), hard=False)
    for each in (model, other):
        for _ in range(6):
            each.zero_grad(set_to_none=True)
            back(each(small).square().mean())
        each.zero_grad(set_to_none=True)
        first = each(small).square().mean()
        back(each(large).square().mean())
        each(small)
        with _disable_current_modes():  # the simulated device would bring what is missing; no other does
            back(first)
    assert any(type(parameter) is AwayParameter for parameter in other.parameters())
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert one.grad is not None
        assert two.grad is not None
        assert torch.equal(one.grad, two.grad.clone())


def test_a_model_that_is_shared_after_it_was_wrapped_has_its_state_paged_at_most() -> None:
    model, x = model_and_batch()
    limit = int(5.5 * bytes_of(model))
    wrapped(model, optimizer := adamw(model), limit, hard=False)
    model.forward.wrapped._replicated = True  # type: ignore[attr-defined]  # as inside of DistributedDataParallel
    with pytest.raises(BudgetError, match="limit must hold"):
        trained(model, optimizer, torch.cat([x] * 40), micro=1)
