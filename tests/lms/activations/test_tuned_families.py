"""Families that people fine-tune, within a budget: gradients are the native ones, and no step is slower than with
checkpointing each block by hand, on a simulated device with a clock of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from testing.tuned_families import TUNED_FAMILIES, RoutedBlock
from tests.lms.stage import Stage, assert_equal, back
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from weft import lms


def stage(name: str, link: float = 2e9) -> Stage:
    torch.manual_seed(0)
    make, data = TUNED_FAMILIES[name]
    return Stage(make(), data(), link=link)


@contextmanager
def checkpointed(blocks: Any) -> Iterator[None]:
    """Checkpoint each block, as one does by hand."""
    originals = [block.forward for block in blocks]
    for block, inner in zip(blocks, originals, strict=True):
        block.forward = lambda *given, inner=inner: checkpoint(inner, *given, use_reentrant=False)
    yield
    for block, inner in zip(blocks, originals, strict=True):
        block.forward = inner


def by_hand(made: Stage) -> tuple[float, int]:
    """Return the seconds and the peak of a step with checkpoints."""
    transfer = made.device()
    with checkpointed(made.model.blocks), transfer.watching():
        torch.manual_seed(made.seed)
        transfer.reset_peak()
        began = transfer.clock
        back(made.forward(made.model, made.x))
    made.model.zero_grad(set_to_none=True)
    return transfer.clock - began, transfer.peak()


def step_seconds(made: Stage, limit: int) -> float:
    """Return the seconds of a planned step, after those in which the plan is made."""
    transfer = made.device()
    for _ in range(4):
        torch.manual_seed(made.seed)
        with lms.fit(limit, transfer=transfer) as session:
            back(made.forward(made.model, made.x))
        assert_equal(made.model, made.expected)
        made.model.zero_grad(set_to_none=True)
        session.budget.over *= (
            session.steps > 1
        )  # the first step tries recipes, for some of which there is no room
    assert session.over == 0
    began = transfer.clock
    torch.manual_seed(made.seed)
    with lms.fit(limit, transfer=transfer):
        back(made.forward(made.model, made.x))
    assert_equal(made.model, made.expected)
    made.model.zero_grad(set_to_none=True)
    return transfer.clock - began


@pytest.mark.parametrize("name", ["adapters", "padded", "convnext", "graph", "scan"])
def test_a_family_within_a_budget(name: str) -> None:
    made = stage(name)
    made.check(made.budget(0.45), steps=4)
    assert not lms.plan().keeps_all
    assert lms.stats()["over"] == 0


@pytest.mark.parametrize("name", ["lora", "encoder-decoder", "diffusion"])
def test_no_step_is_slower_than_with_checkpoints_by_hand(name: str) -> None:
    made = stage(name)
    seconds, peak = by_hand(made)
    assert step_seconds(made, peak) <= 1.03 * seconds


def test_a_value_behind_frozen_layers_and_sums_is_made_again() -> None:
    made = stage("lora", link=1e6)  # too slow to swap
    made.check(made.budget(0.3), hard=False)
    plan = lms.plan()
    assert plan.replays
    assert plan.bytes_of("recipe") > plan.bytes_of("swap")


def dropped(model: nn.Module, x: Tensor) -> Tensor:
    """A loss behind fused dropouts, of the default generator and of one of the user's own."""
    own = torch.Generator().manual_seed(7)
    for layer in model.children():
        x = torch.ops.aten.native_dropout(layer(x), 0.3, True)[0].tanh()
        x = x * torch.rand(x.shape, generator=own).sin()
    result: Tensor = x.square().mean()
    return result


def test_random_operations_draw_the_same_numbers_again_and_disturb_nobody() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(6)))
    made = Stage(model, torch.randn(64, 32), dropped, link=1e6)
    made.check(made.budget(0.3), hard=False)
    assert lms.plan().replays
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    transfer = made.device()
    for _ in range(3):
        torch.manual_seed(5)
        with lms.fit(made.budget(0.3), transfer=transfer):
            loss = dropped(model, made.x)
            state = torch.get_rng_state()
            back(loss)
        assert torch.equal(torch.get_rng_state(), state)  # the backward pass drew from its own copies
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), expected)


def test_sizes_that_follow_the_data_follow_the_plan() -> None:
    """Each batch sends other numbers of tokens to each expert; some experts get hardly any."""
    torch.manual_seed(0)
    model = nn.Sequential(*(RoutedBlock(32, 4, 4) for _ in range(4)))
    made = Stage(model, torch.randn(4, 64, 32), link=2e9)
    limit = made.budget(0.6)
    transfer = made.device()
    for step in range(8):
        x = torch.randn(4, 64, 32) + torch.randn(32) * (step % 3)
        model.zero_grad(set_to_none=True)
        made.forward(model, x).backward()  # type: ignore[no-untyped-call]
        expected = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        model.zero_grad(set_to_none=True)
        with lms.fit(limit, transfer=transfer):
            back(made.forward(model, x))
        assert_equal(model, expected, f"step {step}")
        del expected
    stats = lms.stats()
    assert stats["over"] == 0
    assert stats["recorded"] <= 4


def test_copies_are_in_time_where_sizes_follow_the_data() -> None:
    """Batches of one kind: from the third step on the plan of the first serves them, with room for what differs."""
    torch.manual_seed(0)
    model = nn.Sequential(*(RoutedBlock(32, 4, 4) for _ in range(4)))
    made = Stage(model, torch.randn(8, 64, 32), link=2e9)
    transfer = made.device()
    moved = []
    for _ in range(6):
        x = torch.randn(8, 64, 32)
        transfer.adopt(x)
        model.zero_grad(set_to_none=True)
        with lms.fit(made.budget(0.6), transfer=transfer) as session:
            back(made.forward(model, x))
        moved.append((lms.stats()["late"], lms.stats()["evicted"]))
    assert session.engine.varied
    assert moved[-1] == moved[2]
    assert session.over == 0
    assert session.recorded == 1


def test_statistics_of_norms_are_updated_once() -> None:
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU()) for _ in range(6))
    model = nn.Sequential(*layers)
    made = Stage(model, torch.randn(4, 8, 16, 16), link=1e6)
    before = [buffer.clone() for buffer in model.buffers()]
    made.forward(model, made.x)
    once = [buffer.clone() for buffer in model.buffers()]
    transfer = made.device()
    for _ in range(3):
        for buffer, value in zip(model.buffers(), before, strict=True):
            buffer.copy_(value)
        with lms.fit(made.budget(0.3), transfer=transfer):
            back(made.forward(model, made.x))
        assert all(map(torch.equal, model.buffers(), once))


def test_a_change_in_place_of_what_was_read_before_is_seen() -> None:
    """A buffer is read, then changed, in one forward pass: what was made from it is made again from what it was."""

    class Shifting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(32, 32)
            self.register_buffer("shift", torch.zeros(64, 32))

        def forward(self, x: Tensor) -> Tensor:
            assert isinstance(self.shift, Tensor)
            x = (self.layer(x) + self.shift).tanh().sin()
            with torch.no_grad():
                self.shift.add_(1.0)
            return x + self.shift

    torch.manual_seed(0)
    made = Stage(nn.Sequential(*(Shifting() for _ in range(6))), torch.randn(64, 32), link=1e6)
    transfer = made.device()
    for _ in range(3):
        made.model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer in made.model.buffers():
                buffer.zero_()
        with lms.fit(made.budget(0.3), transfer=transfer):
            back(made.forward(made.model, made.x))
        assert_equal(made.model, made.expected)
