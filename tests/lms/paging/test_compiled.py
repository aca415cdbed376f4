"""Blocks that torch compiles, in every way there is, while what they need comes and goes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from testing.families import GptBlock, Transformer
from tests.lms.paging.test_paging import adamw, assert_same, bytes_of, wrapped
from torch import Tensor, nn
from torch._dynamo.utils import counters

import weft.lms.api
from weft import lms
from weft.errors import BudgetError, UsageError

WIDTH = 32
Compile = Callable[..., Any]
# Torch's compiler looks at the gradients of what it is given, whatever it is.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")


@pytest.fixture(autouse=True)
def nothing_is_compiled_yet() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    if weft.lms.api.SESSIONS.latest is not None:
        weft.lms.api.latest().end(failed=True)
    torch._dynamo.reset()


def as_modules(model: Any, compile: Compile) -> Any:
    for index, block in enumerate(model.blocks):
        model.blocks[index] = compile(block)
    return model


def in_place(model: Any, compile: Compile) -> Any:
    for block in model.blocks:
        block.compile(**compile.keywords)  # type: ignore[attr-defined]
    return model


def by_forward(model: Any, compile: Compile) -> Any:
    for block in model.blocks:
        block.forward = compile(block.forward)
    return model


def whole(model: Any, compile: Compile) -> Any:
    return compile(model)


def whole_in_place(model: Any, compile: Compile) -> Any:
    model.compile(**compile.keywords)  # type: ignore[attr-defined]
    return model


def in_one_piece() -> Compile:
    """What would break the compiled code into pieces raises."""
    return partial(torch.compile, backend="aot_eager", fullgraph=True)


def model_and_batch(blocks: int = 2) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    return Transformer(blocks, lambda: GptBlock(WIDTH, 4), WIDTH), torch.randn(2, 16, WIDTH)


def trained(model: Any, optimizer: Any, x: Tensor) -> None:
    """The third step has a batch of another shape, for which all is compiled again beside gradients that are there."""
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)
        for micro in range(2):
            batch = x[:, :12] if step == 2 and micro else x
            torch.autograd.backward(model(batch).square().mean())
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def natively(ways: Any, compile: Compile, x: Tensor) -> Any:
    model = ways(model_and_batch()[0], compile)
    trained(model, adamw(model), x)
    return model


@pytest.mark.parametrize(
    "way",
    [
        as_modules,
        *(pytest.param(way, marks=pytest.mark.long) for way in (in_place, by_forward, whole, whole_in_place)),
    ],
)
def test_training_is_the_native_one(way: Any) -> None:
    model, x = model_and_batch()
    expected = natively(way, in_one_piece(), x)
    torch._dynamo.reset()
    counters.clear()
    model = way(model, in_one_piece())
    optimizer = adamw(model)
    wrapped(model, optimizer, 8 * bytes_of(model), hard=False, page="always")
    trained(model, optimizer, x)
    assert counters["stats"]["unique_graphs"] > 0
    assert lms.stats()["paged_in_bytes"] > 0
    assert_same(model, expected)


@pytest.mark.long
def test_state_and_gradients_alone_leave_compiled_code_whole() -> None:
    model, x = model_and_batch(4)
    expected = as_modules(copy.deepcopy(model), in_one_piece())
    trained(expected, adamw(expected), x)
    model = as_modules(model, in_one_piece())
    optimizer = adamw(model)
    wrapped(model, optimizer, int(2.6 * bytes_of(model)), hard=False)
    trained(model, optimizer, x)
    explained = lms.plan().explain()
    assert "gradients, out" in explained
    assert "parameters, " not in explained
    assert_same(model, expected)


@pytest.mark.long
@pytest.mark.parametrize("way", [in_place, whole])
def test_what_is_compiled_afterwards_runs_as_it_would_natively(way: Any) -> None:
    """In pieces, or not compiled at all: nobody can put hooks outside of code that is not there yet."""
    model, x = model_and_batch()
    compile = partial(torch.compile, backend="aot_eager")
    expected = natively(way, compile, x)
    torch._dynamo.reset()
    optimizer = adamw(model)
    wrapped(model, optimizer, 8 * bytes_of(model), hard=False, page="always")
    model = way(model, compile)
    trained(model, optimizer, x)
    assert_same(model, expected)


@pytest.mark.parametrize("way", [in_place, whole_in_place])
def test_what_was_compiled_before_is_not_compiled_again(way: Any) -> None:
    """Or the step would begin nowhere, and no budget be kept, without a word."""
    model, _ = model_and_batch()
    compile = partial(torch.compile, backend="aot_eager")
    way(model, compile)
    wrapped(model, adamw(model), 8 * bytes_of(model), hard=False, page="always")
    with pytest.raises(UsageError, match=r"must be compiled once, before lms\.wrap"):
        way(model, compile)
    way(copy.deepcopy(model), compile)


def test_equal_blocks_are_compiled_once_for_all() -> None:
    """As many as torch would not compile one by one."""
    model, x = model_and_batch(torch._dynamo.config.recompile_limit + 4)
    model = as_modules(model, in_one_piece())
    wrapped(model, None, 8 * bytes_of(model), hard=False, page="never")
    for _ in range(2):
        torch.autograd.backward(model(x).square().mean())
    assert counters["stats"]["unique_graphs"] <= 2  # the first block's input needs no gradient


def test_a_model_compiled_as_a_whole_has_no_parameter_to_spare() -> None:
    model, _ = model_and_batch(6)
    with pytest.raises(BudgetError, match="compiled"):
        wrapped(torch.compile(model, backend="aot_eager"), None, bytes_of(model))  # type: ignore[arg-type]
