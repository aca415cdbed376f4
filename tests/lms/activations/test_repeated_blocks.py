"""Modules that are called again in the backward pass: which may be, and that nobody can tell that they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from testing.families import GptBlock, Swin, Transformer
from testing.tuned_families import TUNED_FAMILIES
from tests.lms.stage import Forward, Stage, assert_equal, back, squared
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from weft import lms
from weft.lms.activations.mover import StorageMover
from weft.lms.blocks.calling import RepeatedBlocks, call_again

CPU = torch.device("cpu")


class Block(nn.Module):
    """A block that does something besides its result, each time it is called."""

    def __init__(self, also: Callable[[Any], object] = lambda block: None) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(8, 8), nn.Dropout(0.2)
        self.register_buffer("seen", torch.zeros(1))
        self.calls, self.log = 0, list[int]()
        self.settings = {"depth": [0]}
        self.also = also

    def forward(self, x: Tensor, *rest: Any, **named: Any) -> Tensor:
        self.also(self)
        result: Tensor = self.dropout(self.linear(x).relu()) + x
        return result


def count(block: Block) -> None:
    block.calls += 1


def count_in_buffer(block: Any) -> None:
    block.seen.add_(1)


def count_in_parameter(block: Block) -> None:
    with torch.no_grad():
        block.linear.bias.mul_(1.0)


def draw_from_own(block: Any) -> None:
    block.calls = 0
    torch.rand(1, generator=GENERATOR)


GENERATOR = torch.Generator()
KNOWN = torch.ones(4, 8)
CHANGES: dict[str, Callable[[Any], object]] = {
    "a number": count,
    "a list": lambda block: block.log.append(1),
    "a value deep inside": lambda block: block.settings["depth"].append(1),
    "a buffer": count_in_buffer,
    "a parameter": count_in_parameter,
    "a parameter's data": lambda block: setattr(block.linear.bias, "data", block.linear.bias.data.clone()),
    "statistics of a norm": lambda block: nn.functional.batch_norm(
        torch.randn(2, 1), block.seen, torch.ones(1), training=True
    ),
    "Python's generator": lambda block: random.random(),
    "numpy's generator": lambda block: np.random.rand(),
    "a generator of its own": draw_from_own,
}


def may_repeat(
    module: nn.Module, *args: Any, after: Callable[[], object] | None = None, **kwargs: Any
) -> bool:
    blocks = RepeatedBlocks(CPU)
    number = blocks.number(module)
    with blocks.trying([number]):
        result: Tensor = module(*args, **kwargs)
        if after is None:
            back(result.sum())
        else:
            after()
    assert "forward" not in vars(module)
    return blocks.may_repeat([number])


def batch() -> Tensor:
    return torch.randn(4, 8, requires_grad=True)


def test_a_module_whose_result_follows_from_its_arguments_may_be_called_again() -> None:
    assert may_repeat(Block(), batch())
    assert may_repeat(Block(), batch(), (batch(), {"mask": None}), scale=batch(), name="x")
    assert may_repeat(nn.Sequential(Block(), nn.LayerNorm(8)), batch())


@pytest.mark.parametrize("what", CHANGES)
def test_a_module_that_changes_something_may_not_and_is_called_once(what: str) -> None:
    calls: list[int] = []

    def also(block: Any) -> None:
        calls.append(1)
        CHANGES[what](block)

    module, x = Block(also), batch()
    module.also = also
    assert not may_repeat(module, x)
    assert len(calls) == 1


class Cache:
    """What some models give their blocks: they add to it."""


@pytest.mark.parametrize("given", [Cache(), [Cache()], {"a": Cache()}])
def test_a_module_that_is_given_an_object_may_not(given: object) -> None:
    assert not may_repeat(Block(), batch(), given)


def test_a_module_that_fills_a_list_it_was_given_may_not() -> None:
    class Filling(Block):
        def forward(self, x: Tensor, *rest: Any, **named: Any) -> Tensor:
            rest[0].append(x)
            return super().forward(x)

    assert not may_repeat(Filling(), batch(), [])


def test_a_module_with_hooks_or_shards_may_not() -> None:
    class Shard(nn.Parameter):
        pass

    hooked, shared = Block(), Block()
    hooked.linear.register_forward_hook(lambda *_: None)
    assert not may_repeat(hooked, batch())
    shared.linear.weight = Shard(shared.linear.weight.detach())
    assert not may_repeat(shared, batch())


def test_arguments_and_parameters_must_be_the_same_at_the_end() -> None:
    x = torch.randn(4, 8)
    assert may_repeat(Block(), x)
    assert not may_repeat(Block(), x, after=lambda: x.zero_())
    module = Block()
    assert not may_repeat(module, x, after=lambda: setattr(module, "calls", 2))
    assert not may_repeat(module, x, after=lambda: module.eval())
    stepped = Block()
    step = partial(torch._foreach_add_, [*stepped.parameters()], 1.0)
    assert may_repeat(stepped, x, after=torch.no_grad()(step))  # an optimizer's step within the budget


def test_a_module_that_asks_for_more_than_the_bytes_of_its_arguments_may_not() -> None:
    class Asking(Block):
        def forward(self, x: Tensor, *rest: Any, **named: Any) -> Tensor:
            return super().forward(x).exp() if x is KNOWN else super().forward(x)

    assert not may_repeat(Asking(), KNOWN)


def test_results_must_have_the_same_bits() -> None:
    state = [0.0]

    def drift(block: Block) -> None:
        state[0] += 1  # nobody sees this

    class Drifting(Block):
        def forward(self, x: Tensor, *rest: Any, **named: Any) -> Tensor:
            return super().forward(x) + state[0]

    assert not may_repeat(Drifting(drift), batch())


def test_to_be_tried_disturbs_nothing() -> None:
    module, x = Block(), batch()
    torch.manual_seed(1)
    expected = module(x)
    after = torch.rand(1)
    torch.manual_seed(1)
    blocks = RepeatedBlocks(CPU)
    with blocks.trying([blocks.number(module)]):
        assert torch.equal(module(x), expected)
    assert torch.equal(torch.rand(1), after)


def test_a_module_is_called_again_as_it_was_tried_and_not_otherwise() -> None:
    module, x = Block(), batch()
    blocks = RepeatedBlocks(CPU)
    number = blocks.number(module)

    def calls(*args: Any) -> int:
        before = blocks.calls
        with blocks.called_again([number]):
            module(*args)
        return blocks.calls - before

    assert calls(x) == 0  # never tried
    with blocks.trying([number]):
        back(module(x).sum())
    assert blocks.may_repeat([number])
    assert calls(x) == 1
    assert calls(x, Cache()) == 0
    with torch.no_grad():
        assert calls(x) == 0
    module.eval()
    assert calls(x) == 0
    module.train()
    handle = module.dropout.register_forward_hook(lambda *_: None)
    assert calls(x) == 0
    handle.remove()
    assert calls(x) == 1


def test_arguments_of_all_kinds_come_again() -> None:
    weight = torch.randn(8, 8, requires_grad=True)

    def run(x: Tensor, pair: tuple[Tensor, float], *, bias: Tensor, power: int) -> Tensor:
        return ((x @ weight + pair[0] * pair[1] + bias) ** power).relu()

    x, y, bias = (torch.randn(8, 8, requires_grad=True) for _ in range(3))
    found = []
    for way in (run, lambda *args, **kwargs: call_again(run, args, kwargs)):
        with torch.autocast("cpu", torch.bfloat16):
            result = way(x, (y, 2.0), bias=bias, power=3)
        found.append(torch.autograd.grad(result.float().sum(), (x, y, bias, weight)))
    assert all(map(torch.equal, *found))


def test_one_tensor_that_is_given_twice_is_one_tensor_again() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)  # which asks whether its keys are its queries
    x = torch.randn(2, 4, 8, requires_grad=True)
    found = []
    ways: tuple[Callable[..., Any], ...] = (attention, lambda *args: call_again(attention, args, {}))
    for way in ways:
        found.append(torch.autograd.grad(way(x, x, x)[0].sum(), (x, attention.in_proj_weight)))
    assert all(map(torch.equal, *found))


def test_an_argument_deep_inside_that_changed_is_an_error() -> None:
    x, y = batch(), torch.randn(4, 8)
    result = call_again(lambda x, pair: (x * pair[0]).exp(), (x, [y]), {})
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        back(result.sum())


def autocast(model: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        result: Tensor = model(x).float().square().mean()
    return result


def small(name: str) -> tuple[nn.Module, Tensor, Forward]:
    """A model, a batch and a loss: GPT-2's with dropout under autocast, Swin's windows, and many small operations."""
    if name == "gpt2":
        model = Transformer(4, lambda: GptBlock(32, 4, 0.1), 32, 64)
        return model, torch.randint(64, (4, 16)), autocast
    if name == "swin":
        return Swin(16, 4), torch.randn(2, 3, 64, 64), squared
    make, data = TUNED_FAMILIES[name]
    return make(), data(), squared


@pytest.fixture
def _dear_rebuilding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebuilding a tensor by itself holds the device up, as where it waits for its launching thread."""
    rebuild: Any = StorageMover._rebuild

    def slowly(mover: Any, storage: Any) -> None:
        rebuild(mover, storage)
        mover.transfer.advance(2e-5)

    monkeypatch.setattr(StorageMover, "_rebuild", slowly)


@pytest.mark.parametrize("name", ["gpt2", "swin", "encoder-decoder", "scan"])
@pytest.mark.usefixtures("_dear_rebuilding")
def test_blocks_are_called_again_where_rebuilding_turns_out_to_be_dear(name: str) -> None:
    torch.manual_seed(0)
    model, x, forward = small(name)
    made = Stage(model, x, forward, link=1e6)
    limit = made.budget(0.4)
    transfer = made.device()
    took, over = [], 0
    for step in range(16):
        torch.manual_seed(made.seed)
        began = transfer.clock
        with lms.fit(limit, transfer=transfer) as session:
            back(made.forward(model, x))
        took.append(transfer.clock - began)
        assert_equal(model, made.expected, f"step {step}")
        model.zero_grad(set_to_none=True)
        over = session.over if step else 0
    assert lms.plan().called
    assert "called again in the backward pass" in lms.plan().explain()
    assert lms.stats()["called_again"] > 0
    assert session.over == over
    assert lms.stats()["peak"] <= limit
    assert took[-1] < 0.95 * took[4]


def wanted_now(session: Any) -> None:
    """Have the next steps try to call blocks again, whatever they would gain."""
    (shape,) = session.planning.shapes.known.values()
    spans = [span for span in shape.spans if span.kind == "GptBlock"]
    shape.wanted, shape.weighed = frozenset(span.module for span in spans), True


def test_a_block_that_saves_the_first_tensor_of_a_step_is_called_again_too() -> None:
    torch.manual_seed(0)
    model = Transformer(6, lambda: GptBlock(32, 4, 0.1), 32)
    made = Stage(model, torch.randn(4, 16, 32), link=1e6)
    transfer = made.device()
    before = 0
    for step in range(12):
        torch.manual_seed(made.seed)
        with lms.fit(made.budget(0.6), transfer=transfer) as session:
            back(made.forward(model, made.x))
        assert_equal(model, made.expected, f"step {step}")
        model.zero_grad(set_to_none=True)
        if step == 3:
            wanted_now(session)
        if step == 10:
            before = session.blocks.calls
    assert session.blocks.calls - before == 6
    other = torch.randn(2, 8, 32)  # a batch of another size is another step
    torch.manual_seed(made.seed)
    back(made.forward(model, other))
    expected = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    torch.manual_seed(made.seed)
    with lms.fit(made.budget(0.6), transfer=transfer):
        back(made.forward(model, other))
    assert_equal(model, expected)


def test_steps_that_are_no_faster_that_way_go_back() -> None:
    torch.manual_seed(0)
    model = Transformer(6, lambda: GptBlock(32, 4, 0.1), 32)
    made = Stage(model, torch.randn(4, 16, 32), link=1e9)
    transfer = made.device()
    called = []
    for step in range(18):
        torch.manual_seed(made.seed)
        with lms.fit(made.budget(0.5), transfer=transfer) as session:
            back(made.forward(model, made.x))
        assert_equal(model, made.expected, f"step {step}")
        model.zero_grad(set_to_none=True)
        called.append(bool(lms.plan().called))
        if step == 6:
            wanted_now(session)
    assert any(called)
    assert not called[-1]
    assert session.over == 0


def test_ddp_reduces_the_gradients_of_blocks_that_are_called_again() -> None:
    torch.manual_seed(0)
    model = Transformer(6, lambda: GptBlock(32, 4, 0.1), 32)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        made = Stage(DistributedDataParallel(model), torch.randn(4, 16, 32), link=1e6)
        transfer = made.device()
        for step in range(10):
            torch.manual_seed(made.seed)
            with lms.fit(made.budget(0.6), transfer=transfer) as session:
                back(made.forward(made.model, made.x))
            assert_equal(made.model, made.expected, f"step {step}")
            if step == 3:
                wanted_now(session)
            made.model.zero_grad(set_to_none=True)
        assert lms.stats()["called_again"] > 0
    finally:
        dist.destroy_process_group()


def test_arguments_that_a_checkpoint_saves_start_nothing() -> None:
    """A recipe asks nodes for what they saved: those inside a checkpoint would run it again."""
    torch.manual_seed(0)
    calls = [0]

    class Counting(GptBlock):
        def forward(self, x: Tensor) -> Tensor:
            calls[0] += 1
            return super().forward(x)

    model = Transformer(4, lambda: Counting(32, 4, post=True), 32)

    def forward(model: Any, x: Tensor) -> Tensor:
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.square().mean()

    made = Stage(model, torch.randn(4, 16, 32), forward)
    calls[0] = 0
    with lms.fit(1 << 26, transfer=made.device()):
        loss = made.forward(model, made.x)
        assert calls[0] == 4
        back(loss)
    assert calls[0] == 8
