"""Gradients within a budget are the native ones, bit for bit, on a simulated device that has no byte more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from testing.families import FAMILIES, GptBlock, ResNet, Transformer
from tests.lms.stage import Stage, assert_equal, back
from torch import Tensor, nn

from weft import lms
from weft.lms.activations.session import BudgetSession


def stage(name: str) -> Stage:
    torch.manual_seed(0)
    make, data = FAMILIES[name]
    return Stage(make(), data())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_within_a_budget(name: str) -> None:
    made = stage(name)
    made.check(made.budget(0.5))
    assert not lms.plan().keeps_all
    assert lms.stats()["over"] == 0


@pytest.mark.parametrize("name", ["gpt2", "resnet", "unet3d"])
def test_a_family_in_a_tight_place(name: str) -> None:
    made = stage(name)
    made.check(made.budget(0.45))
    plan = lms.plan()
    assert plan.timeline.peak < plan.native.peak


def test_what_was_joined_before_is_not_joined_again_part_by_part() -> None:
    """Each layer of a dense block joins what all before it gave: it needs what the last one joined, and one more."""
    made = stage("densenet")
    sites = made.native.recording.sites
    joins = [site.needs for site in sites if site.op == "Cat"]
    assert len([needs for needs in joins if len(needs) == 2 and sites[min(needs)].op == "Cat"]) >= 11  # of 17
    assert max(map(len, joins)) == 2


def test_with_a_link_too_slow_to_use_tensors_are_rebuilt_and_with_a_fast_one_swapped() -> None:
    torch.manual_seed(0)
    make, data = FAMILIES["gpt2"]
    slow = Stage(make(), data(), link=1e6)
    slow.check(slow.budget(0.5))
    assert lms.plan().bytes_of("recipe") > 10 * lms.plan().bytes_of("swap")
    fast = Stage(make(), data(), link=1e12)
    transfer = fast.check(fast.budget(0.5))
    assert lms.plan().bytes_of("swap") > 0
    assert lms.plan().timeline.recipe_s == 0
    assert transfer.pinned()[0] > 0


def test_hidden_copies_are_never_late() -> None:
    torch.manual_seed(0)
    made = Stage(Transformer(6, lambda: GptBlock(32, 4), 32), torch.randn(4, 64, 32), link=2e10)
    transfer = made.check(made.budget(0.6), steps=4)
    late, stalls = lms.stats()["late"], transfer.stall_s
    with lms.fit(made.budget(0.6), transfer=transfer):
        back(made.forward(made.model, made.x))
    assert lms.plan().bytes_of("swap") > 0
    assert lms.stats()["late"] == late
    assert transfer.stall_s - stalls < 0.01 * lms.plan().timeline.seconds


def test_dropout_repeats_nothing() -> None:
    torch.manual_seed(0)
    made = Stage(Transformer(4, lambda: GptBlock(32, 4, dropout=0.3), 32), torch.randn(4, 64, 32))
    made.check(made.budget(0.4))
    assert not lms.plan().keeps_all


def test_autocast() -> None:
    def forward(model: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            result: Tensor = model(x).float().square().mean()
            return result

    torch.manual_seed(0)
    made = Stage(Transformer(4, lambda: GptBlock(32, 4), 32), torch.randn(4, 64, 32), forward)
    made.check(made.budget(0.5))
    assert not lms.plan().keeps_all


def test_channels_last() -> None:
    torch.manual_seed(0)
    model: Any = ResNet(8, (2, 2, 2))
    model.to(memory_format=torch.channels_last)
    made = Stage(model, torch.randn(4, 3, 64, 64).to(memory_format=torch.channels_last))
    made.check(made.budget(0.4))


def test_accumulation() -> None:
    made = stage("gpt2")
    limit = made.budget(0.6) + sum(p.nbytes for p in made.model.parameters())  # what was accumulated stays
    transfer = made.device(limit)
    made.step()
    back(made.forward(made.model, made.x))
    expected = [None if p.grad is None else p.grad.clone() for p in made.model.parameters()]
    for _ in range(2):
        made.model.zero_grad(set_to_none=True)
        for _ in range(2):
            with lms.fit(limit, transfer=transfer):
                back(made.forward(made.model, made.x))
        assert_equal(made.model, expected)


def test_changing_shapes_share_what_was_learned() -> None:
    torch.manual_seed(0)
    model = Transformer(4, lambda: GptBlock(32, 4), 32)
    lengths = [64, 96, 80, 72, 88, 64, 96, 76, 92, 68]
    largest = Stage(model, torch.randn(4, 96, 32))
    limit = largest.budget(0.5)
    transfer = largest.device(limit)
    for length in lengths:
        x = torch.randn(4, length, 32)
        model.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        expected = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        model.zero_grad(set_to_none=True)
        with lms.fit(limit, transfer=transfer):
            model(x).square().mean().backward()
        assert_equal(model, expected, f"length {length}")
        model.zero_grad(set_to_none=True)
        del expected
    stats = lms.stats()
    assert stats["over"] == 0
    assert stats["recorded"] < len(lengths)


def waits(before: float, after: float, steps: int) -> tuple[BudgetSession, list[float]]:
    """Seconds that each step waited for copies, over a link that becomes slower after three of them."""
    torch.manual_seed(0)
    make, data = FAMILIES["gpt2"]
    made = Stage(make(), data(), link=before)
    transfer = made.device()
    stalls = []
    for step in range(steps):
        made.model.zero_grad(set_to_none=True)
        if step == 3:
            transfer.link = after  # what was measured before holds no longer
        waited = transfer.stall_s
        with lms.fit(made.budget(0.5), transfer=transfer) as session:
            back(made.forward(made.model, made.x))
        stalls.append(transfer.stall_s - waited)
    return session, stalls


def test_waiting_for_copies_is_measured() -> None:
    session, stalls = waits(1e12, 1e9, 6)
    assert session.planning.stall_s is not None
    assert session.planning.stall_s == pytest.approx(stalls[4])
    assert session.planning.stall_s > 0
    assert lms.stats()["stall_ms"] == pytest.approx(session.planning.stall_s * 1e3)


def test_copies_that_are_late_are_planned_for_a_slower_link() -> None:
    session, stalls = waits(4e9, 2.6e9, 9)
    assert [shape.link for shape in session.planning.shapes.known.values()] < [1.0]
    assert stalls[-1] < stalls[3] / 2
