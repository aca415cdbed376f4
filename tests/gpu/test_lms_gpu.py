"""Large model support on an accelerator: the budget is kept, gradients are the native ones, nothing is left behind."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator

import pytest
import torch
from testing.families import GptBlock, LlamaBlock, ResNet, Transformer
from tests.lms.stage import assert_equal, back
from torch import Tensor, nn

from weft import lms

pytestmark = pytest.mark.gpu
MIB = 1 << 20


@pytest.fixture(autouse=True)
def an_accelerator() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("needs an accelerator; run by hand where there is one: pytest -m gpu")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    lms.forget()


def gpt() -> tuple[nn.Module, Tensor]:
    model = Transformer(6, lambda: GptBlock(512, 8), 512).cuda().bfloat16()
    return model, torch.randn(8, 512, 512, device="cuda", dtype=torch.bfloat16)


def llama() -> tuple[nn.Module, Tensor]:
    model = Transformer(6, lambda: LlamaBlock(512, 8, 2, 1536), 512).cuda().bfloat16()
    return model, torch.randn(8, 512, 512, device="cuda", dtype=torch.bfloat16)


def resnet() -> tuple[nn.Module, Tensor]:
    return ResNet(16, (2, 2, 2)).cuda(), torch.randn(16, 3, 128, 128, device="cuda")


def step(model: nn.Module, x: Tensor) -> None:
    model.zero_grad(set_to_none=True)
    back(model(x).float().square().mean())


@pytest.mark.parametrize("make", [gpt, llama, resnet])
def test_half_the_memory_and_the_same_gradients(make: Callable[[], tuple[nn.Module, Tensor]]) -> None:
    torch.manual_seed(0)
    model, x = make()
    step(model, x)
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    step(model, x)
    expected: list[Tensor | None] = [None if p.grad is None else p.grad.cpu() for p in model.parameters()]
    peak = torch.cuda.max_memory_allocated()
    limit = base + int((peak - base) * 0.6)
    for _ in range(8):
        model.zero_grad(set_to_none=True)
        with lms.fit(limit):
            back(model(x).float().square().mean())
    model.cpu()  # gradients go along
    assert_equal(model, expected)
    assert lms.stats()["over"] == 0
    assert not lms.plan().keeps_all


def test_nothing_is_left_behind() -> None:
    model, x = gpt()
    step(model, x)
    limit = int(torch.cuda.max_memory_allocated() * 0.6)

    def train(steps: int) -> None:
        for _ in range(steps):
            with lms.fit(limit):
                back(model(x).float().square().mean())
            # What a gradient is counted as depends on the blocks that were free.
            model.zero_grad(set_to_none=True)
        gc.collect()

    train(12)
    device, host = torch.cuda.memory_allocated(), lms.stats()["pinned"]
    train(200)
    assert torch.cuda.memory_allocated() <= device
    assert lms.stats()["pinned"] == host
    assert lms.stats()["pinned_used"] == 0


def test_a_model_larger_than_its_budget_trains_with_everything_paged() -> None:
    torch.manual_seed(0)
    model, x = gpt()
    other = copy.deepcopy(model)
    size = sum(parameter.nbytes for parameter in model.parameters())
    for one in (model, other):
        optimizer = torch.optim.AdamW(one.parameters(), 1e-3, foreach=False)
        if one is other:
            model.cpu()
            limit = torch.cuda.memory_allocated() + size + 256 * MIB
            lms.wrap(other, optimizer, limit=limit, page="always")
        for _ in range(4):
            optimizer.zero_grad(set_to_none=True)
            back(one(x).float().square().mean())
            optimizer.step()
    assert lms.stats()["over"] == 0
    assert lms.stats()["paged_bytes"] > 2 * size
    for found, wanted in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(found.cpu(), wanted)
