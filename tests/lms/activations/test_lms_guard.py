"""A step of which nothing is known keeps the budget, too: room is made before each operation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from testing.families import FAMILIES, GptBlock, Transformer
from tests.lms.stage import Stage, assert_equal, back
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from weft import lms
from weft.errors import BudgetError
from weft.lms.activations.guard import bytes_wanted
from weft.lms.device.simulated import SimulatedTransfer

aten: Any = torch.ops.aten


@pytest.fixture
def made() -> Stage:
    torch.manual_seed(0)
    return Stage(Transformer(3, lambda: GptBlock(32, 4), 32), torch.randn(4, 64, 32))


def test_what_an_operation_makes_is_known_from_shapes() -> None:
    x = torch.randn(8, 16)
    assert bytes_wanted(aten.mm.default, (x, torch.randn(16, 32)), {}) == 8 * 32 * 4
    assert (
        bytes_wanted(aten.native_layer_norm.default, (x, [16], None, None, 1e-5), {})
        == 8 * 16 * 4 + 2 * 8 * 4
    )
    assert bytes_wanted(aten.relu_.default, (x,), {}) == 0
    assert bytes_wanted(aten.nonzero.default, (x,), {}) >= x.nbytes  # nobody knows
    assert bytes_wanted(aten.ones.default, ([4, 4],), {"device": x.device}) == 64
    wide = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1
    assert bytes_wanted(aten.convolution.default, wide, {}) > 4 * 8 * 8 * 4


def test_a_convolution_in_another_layout_than_it_likes_copies_what_it_takes_and_what_it_gives() -> None:
    x, weight = torch.randn(1, 4, 8, 8, 8), torch.randn(16, 4, 3, 3, 3)
    more: tuple[Any, ...] = (None, [1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1)
    given = 16 * 8**3 * 4
    turned = bytes_wanted(aten.convolution.default, (x, weight, *more), {})
    assert turned >= x.nbytes + 2 * given
    liked = [each.to(memory_format=torch.channels_last_3d) for each in (x, weight)]
    assert bytes_wanted(aten.convolution.default, (*liked, *more), {}) == turned - given


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_all_steps_keep_a_budget_that_little_fits_in(name: str) -> None:
    torch.manual_seed(0)
    make, data = FAMILIES[name]
    made = Stage(make(), data())
    made.check(made.budget(0.12))
    assert lms.stats()["over"] == 0


def test_an_operation_that_runs_out_of_memory_is_tried_again_forward_and_backward(made: Stage) -> None:
    transfer = made.device()
    for name in ("aten::addmm", "aten::gelu_backward"):
        lms.forget()
        made.model.zero_grad(set_to_none=True)
        with _Failing(name) as failing, lms.fit(made.budget(0.5), transfer=transfer) as session:
            session._own_modes += 1  # that mode is a part of this device
            back(made.forward(made.model, made.x))
        assert failing.failed == 1
        for parameter, expected in zip(made.model.parameters(), made.expected, strict=True):
            assert parameter.grad is not None
            assert expected is not None
            assert torch.equal(parameter.grad, expected)


def test_a_recipe_that_finds_no_memory_when_it_is_timed_takes_the_time_of_those_like_it(made: Stage) -> None:
    # Once for the model, once to see whether it gives the same bits, and then for its time.
    with _Failing("aten::gelu", 2) as failing, lms.fit(made.budget(0.5), transfer=made.device()) as session:
        session._own_modes += 1
        back(made.forward(made.model, made.x))
    assert failing.failed == 1
    gelus = [site for site in lms.plan().recording.sites if site.op == "Gelu"]
    assert len({site.recipe_s for site in gelus}) == 1
    assert gelus[0].recipe_s
    assert_equal(made.model, made.expected)


class _Failing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """One such operation finds no memory."""

    def __init__(self, name: str, call: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.left, self.failed = name, call, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name == self.name:
            self.left -= 1
        if self.left == -1 and not self.failed:
            self.failed += 1
            raise torch.OutOfMemoryError("no room")
        return func(*args, **(kwargs or {}))


def test_an_operation_too_large_is_named(made: Stage) -> None:
    with pytest.raises(BudgetError, match=r"working set of aten\."):
        made.check(made.budget(0.01))


def test_others_that_watch_operations_are_left_alone(made: Stage) -> None:
    native = FlopCounterMode(display=False)
    with native:
        back(made.forward(made.model, made.x))
    inside, around = FlopCounterMode(display=False), FlopCounterMode(display=False)
    with lms.fit(1 << 30, transfer=SimulatedTransfer()), inside:
        back(made.forward(made.model, made.x))
    with around, lms.fit(1 << 31, transfer=SimulatedTransfer()):
        back(made.forward(made.model, made.x))
    assert torch._C._len_torch_dispatch_stack() == 0
    # Trying recipes counts as well.
    assert inside.get_total_flops() >= native.get_total_flops()
    assert around.get_total_flops() >= native.get_total_flops()


def test_a_view_changed_in_place_is_rebuilt() -> None:
    class Normed(nn.Module):
        """An instance norm gives a view; what changes it in place leaves no trace in the graph."""

        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(4))
            self.norm = nn.InstanceNorm2d(8, affine=True)

        def forward(self, x: Tensor) -> Tensor:
            for conv in self.convs:
                x = nn.functional.leaky_relu_(self.norm(conv(x)), 0.2)
            return x

    torch.manual_seed(0)
    made = Stage(Normed(), torch.randn(2, 8, 32, 32), link=1e6)
    made.check(made.budget(0.5))
    plan = lms.plan()
    rebuilt = [
        site.op for site, choice in zip(plan.recording.sites, plan.choices, strict=True) if choice == "recipe"
    ]
    assert "torch::autograd::CopySlices" in rebuilt


def test_a_part_of_a_view_changed_in_place_is_not_taken_for_all_of_it() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linears = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            for linear in self.linears:
                x = linear(x)
                x[:, :32].relu_()  # what is left of it is positive now and then
            return x

    torch.manual_seed(0)
    made = Stage(Half(), torch.randn(64, 64), link=1e6)
    made.check(made.budget(0.85))
    sites = lms.plan().recording.sites
    changed = [site for site in sites if "CopySlices" in site.op]
    assert changed
    assert all(
        site.replayed for site in changed
    )  # the operation itself is repeated on a part, no rule guesses
