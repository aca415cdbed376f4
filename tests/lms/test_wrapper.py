"""A model and its optimizer under a budget."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from testing.families import GptBlock, Transformer
from torch import Tensor, nn

from weft import lms
from weft.errors import UsageError
from weft.lms.device.simulated import SimulatedTransfer


def trained(model: nn.Module, optimizer: Any, x: Tensor, steps: int = 6, micro: int = 2) -> list[Tensor]:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(micro):
            loss: Tensor = model(x).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def model_and_batch() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Transformer(3, lambda: GptBlock(64, 4), 64), torch.randn(4, 64, 64)


def make(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    half = list(model.parameters())
    groups: list[dict[str, Any]] = [{"params": half[::2]}, {"params": half[1::2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, 1e-3)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
@pytest.mark.parametrize("page", ["always", "never"])
def test_training_is_the_same(kind: str, page: Any) -> None:
    model, x = model_and_batch()
    other = copy.deepcopy(model)
    expected = trained(model, make(kind, model), x)
    transfer = SimulatedTransfer()
    optimizer = make(kind, other)
    lms.wrap(other, optimizer, limit="8MB", page=page, transfer=transfer)
    for found, wanted in zip(trained(other, optimizer, x), expected, strict=True):
        assert torch.equal(found, wanted)
    assert lms.stats()["steps"] > 0
    assert (transfer.pinned()[1] > 0) == (page == "always")


def test_a_forward_pass_that_runs_out_of_memory_is_tried_again() -> None:
    model, x = model_and_batch()
    optimizer = make("sgd", model)
    lms.wrap(model, optimizer, limit="8MB", transfer=SimulatedTransfer())
    failures = [0]

    def fail_twice(*_: object) -> None:
        failures[0] += 1
        if failures[0] <= 2:
            raise torch.OutOfMemoryError("no room")

    model.blocks[1].register_forward_pre_hook(fail_twice)  # type: ignore[index, union-attr]
    model(x).sum().backward()
    optimizer.step()
    assert failures[0] == 3


def test_another_model_is_captured_while_a_step_is_open() -> None:
    model, x = model_and_batch()
    optimizer = make("sgd", model)
    lms.wrap(model, optimizer, limit="8MB", transfer=SimulatedTransfer())
    model(x).sum().backward()
    rows = {"input": {0: torch.export.Dim.DYNAMIC}}
    torch.export.export(nn.Conv1d(3, 3, 3), (torch.randn(2, 3, 8),), dynamic_shapes=rows)
    optimizer.step()


def test_what_cannot_be_paged() -> None:
    model = nn.Linear(4, 4)
    transfer = SimulatedTransfer()
    with pytest.raises(UsageError, match="LBFGS"):
        lms.wrap(model, torch.optim.LBFGS(model.parameters()), limit="1MB", page="always", transfer=transfer)
    with pytest.raises(UsageError, match="page must be"):
        lms.wrap(model, limit="1MB", page="perhaps", transfer=transfer)  # type: ignore[arg-type]


@pytest.mark.parametrize("page", ["always", "never"])
def test_a_closure_whose_backward_pass_runs_out_of_memory_is_tried_again(page: Any) -> None:
    torch.manual_seed(0)
    model, x = Transformer(2, lambda: GptBlock(32, 4), 32), torch.randn(2, 32, 32)
    other = copy.deepcopy(model)
    failures = [0]

    def fail_once(*_: object) -> None:
        failures[0] += 1
        if failures[0] == 1:
            raise torch.OutOfMemoryError("no room")

    weights: list[list[Tensor]] = []
    for trained_one in (model, other):
        optimizer = make("adamw", trained_one)
        if trained_one is other:
            lms.wrap(other, optimizer, limit="2MB", page=page, transfer=SimulatedTransfer())
            other.get_parameter("blocks.0.qkv.weight").register_hook(fail_once)  # type: ignore[no-untyped-call]

        def closure(model: nn.Module = trained_one, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss: Tensor = model(x).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        for _ in range(2):
            optimizer.step(closure)  # type: ignore[arg-type]
        weights.append([parameter.detach() for parameter in trained_one.parameters()])
    assert failures[0] == 3
    for found, wanted in zip(weights[1], weights[0], strict=True):
        assert torch.equal(found, wanted)
