"""What training scripts do besides one forward and one backward."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest
import torch
from testing.families import GptBlock, Transformer
from tests.lms.stage import Stage, assert_equal, back
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from weft import lms
from weft.errors import BudgetError, UsageError
from weft.lms.device.simulated import SimulatedTransfer


@pytest.fixture
def made() -> Stage:
    torch.manual_seed(0)
    return Stage(Transformer(3, lambda: GptBlock(32, 4), 32), torch.randn(4, 64, 32))


def fail(*_: object) -> None:
    raise ValueError("no luck")


def settled(made: Stage, share: float = 0.5) -> tuple[int, SimulatedTransfer]:
    """A budget whose plan is made."""
    limit = made.budget(share)
    return limit, made.check(limit)


def test_what_fits_is_not_hooked() -> None:
    torch.manual_seed(0)
    made = Stage(Transformer(2, lambda: GptBlock(32, 4), 32), torch.randn(2, 16, 32))
    transfer = made.device()
    for _ in range(3):
        with lms.fit("1GB", transfer=transfer) as session:
            loss = made.forward(made.model, made.x)
            live = session.engine.live
            back(loss)
    assert live == 0
    assert session.recorded == 1


def test_a_saved_tensor_changed_in_place_raises_as_autograd_does(made: Stage) -> None:
    limit, transfer = settled(made)
    x = torch.randn(64, 64, requires_grad=True)
    for budget, device in ((limit, transfer), (1 << 30, made.device())):
        with lms.fit(budget, transfer=device):
            y = x * 2
            z = y.exp() * y
            y.mul_(2)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                back(z.sum())


def test_a_parameter_changed_between_forward_and_backward_raises(made: Stage) -> None:
    limit, transfer = settled(made)
    with lms.fit(limit, transfer=transfer):
        loss = made.forward(made.model, made.x)
        with torch.no_grad():
            for parameter in made.model.parameters():
                parameter.mul_(1.5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            back(loss)


def test_forward_without_backward_leaves_nothing(made: Stage) -> None:
    limit, transfer = settled(made)
    gc.collect()
    before = transfer.allocated()
    for _ in range(5):
        with lms.fit(limit, transfer=transfer) as session:
            made.forward(made.model, made.x)
    assert session.engine.live == 0
    assert transfer.allocated() <= before
    assert transfer.pinned()[1] == 0
    made.check(limit, steps=2)


def test_backward_outside_the_context(made: Stage) -> None:
    limit, transfer = settled(made)
    made.model.zero_grad(set_to_none=True)
    with lms.fit(limit, transfer=transfer):
        loss = made.forward(made.model, made.x)
    back(loss)
    assert_equal(made.model, made.expected)


def test_retain_graph(made: Stage) -> None:
    limit, transfer = settled(made, 0.7)
    made.model.zero_grad(set_to_none=True)
    transfer.limit = None  # what is kept for the second pass may take more
    with lms.fit(limit, transfer=transfer):
        loss = made.forward(made.model, made.x)
        back(loss, retain_graph=True)
        assert_equal(made.model, made.expected)
        made.model.zero_grad(set_to_none=True)
        back(loss)
    assert_equal(made.model, made.expected)


def test_double_backward(made: Stage) -> None:
    # The math kernel: fused attention has no second derivative.
    def penalty(model: nn.Module, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            (slope,) = torch.autograd.grad(model(x).square().mean(), x, create_graph=True)
        return slope.square().sum()

    twice = Stage(made.model, made.x, penalty)
    twice.check(twice.budget(0.8), hard=False)  # what a graph keeps for another pass is not bounded


def test_an_exception_in_the_middle(made: Stage) -> None:
    limit, transfer = settled(made)
    blocks: nn.ModuleList = made.model.blocks  # type: ignore[assignment]
    hook = blocks[2].register_forward_pre_hook(fail)
    for _ in range(2):
        with pytest.raises(ValueError, match="no luck"), lms.fit(limit, transfer=transfer):
            made.forward(made.model, made.x)
    hook.remove()
    hook = next(made.model.parameters()).register_hook(fail)  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="no luck"), lms.fit(limit, transfer=transfer):
        back(made.forward(made.model, made.x))
    hook.remove()
    made.check(limit, steps=2)


def test_an_exception_while_a_step_is_recorded(made: Stage) -> None:
    limit = made.budget(0.5)
    transfer = made.device(limit)
    hook = made.model.register_forward_hook(fail)
    with pytest.raises(ValueError, match="no luck"), lms.fit(limit, transfer=transfer):
        made.forward(made.model, made.x)
    hook.remove()
    made.check(limit)


@pytest.mark.parametrize("reentrant", [False, True])
def test_nested_checkpoints(reentrant: bool) -> None:
    calls = []

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = GptBlock(32, 4)

        def counted(self, x: Tensor) -> Tensor:
            calls.append(1)
            result: Tensor = self.block(x)
            return result

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = checkpoint(self.counted, x, use_reentrant=reentrant)
            return result

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), Checkpointed(), GptBlock(32, 4), Checkpointed(), GptBlock(32, 4))
    made = Stage(model, torch.randn(4, 64, 32))
    calls.clear()
    made.check(made.budget(0.9), steps=4)
    assert len(calls) == 4 * 2 * 2  # forward and recompute: looking for recipes starts no other


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's compiler looks at it
def test_blocks_that_are_compiled() -> None:
    torch.manual_seed(0)
    model = Transformer(3, lambda: GptBlock(32, 4), 32)
    for block in model.blocks:
        block.forward = torch.compile(block.forward, backend="aot_eager")
    made = Stage(model, torch.randn(4, 64, 32))
    made.check(made.budget(0.8))
    assert not lms.plan().keeps_all


def test_two_losses(made: Stage) -> None:
    def both(model: nn.Module, x: Tensor) -> Tensor:
        y = model(x)
        y.square().mean().backward(retain_graph=True)
        result: Tensor = y.abs().mean()
        return result

    twice = Stage(made.model, made.x, both)
    twice.check(int(0.98 * twice.native.native.peak), hard=False)


def test_a_custom_function_and_a_tensor_saved_twice(made: Stage) -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.save_for_backward(x, x)
            return x**3

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            x, again = ctx.saved_tensors
            return grad * 3 * x * again

    def forward(model: nn.Module, x: Tensor) -> Tensor:
        result: Tensor = Cube.apply(model(x)).mean()  # type: ignore[no-untyped-call]
        return result

    cubed = Stage(made.model, made.x, forward)
    cubed.check(cubed.budget(0.5))


def test_what_a_plan_left_where_it_was_moves_when_the_step_takes_another_way() -> None:
    torch.manual_seed(0)
    first, second = (Transformer(3, lambda: GptBlock(32, 4), 32) for _ in range(2))
    model = nn.ModuleList([first, second])
    further = [False]

    def forward(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = first(x)
        if further[0]:
            result = second(result.exp())
        return result.square().mean()

    made = Stage(model, torch.randn(4, 16, 32), forward)
    limit = made.budget(0.9)
    transfer = made.check(limit, steps=8)
    assert lms.plan().choices.count("keep") > lms.plan().choices.count("swap")
    further[0] = True
    expected = made.step()
    model.zero_grad(set_to_none=True)
    with lms.fit(limit, transfer=transfer) as session:  # torch.OutOfMemoryError if all that stayed stayed on
        back(made.forward(model, made.x))
        assert session.engine.lost
        assert session.engine.counts.evicted
    assert_equal(model, expected)


def test_a_first_step_of_many_layers_swaps_only_what_would_be_far_to_rebuild() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(24) for layer in (nn.Linear(32, 32), nn.GELU())]
    made = Stage(nn.Sequential(*layers), torch.randn(512, 32))
    transfer = made.device(made.budget(0.2))
    with lms.fit(made.budget(0.2), transfer=transfer) as session:
        back(made.forward(made.model, made.x))
        counts = session.engine.counts
    assert counts.bytes_rebuilt > 2 * counts.bytes_out > 0
    assert_equal(made.model, made.expected)


def test_a_host_with_no_room_for_a_planned_copy_has_its_tensor_rebuilt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    made = Stage(Transformer(3, lambda: GptBlock(32, 4), 32), torch.randn(4, 64, 32), link=1e11)
    limit, transfer = settled(made)
    assert lms.plan().choices.count("swap") > 3
    took, asked = transfer.host, list[int]()

    def host(size: int) -> object:
        asked.append(size)
        if size > made.x.nbytes and len(asked) % 2:  # nobody can rebuild what the model is given
            raise BudgetError("host must hold what is swapped")
        return took(size)

    monkeypatch.setattr(transfer, "host", host)
    with lms.fit(limit, transfer=transfer):
        back(made.forward(made.model, made.x))
    assert_equal(made.model, made.expected)


def test_a_planned_pass_is_gone_back_through_while_another_one_is_recorded(made: Stage) -> None:
    limit = made.budget(0.9)
    transfer = made.check(limit, steps=8, hard=False)
    other = torch.randn(1, 2, 8, 32)
    back(made.forward(made.model, made.x) + other_loss(made, other))
    expected = [None if p.grad is None else p.grad.clone() for p in made.model.parameters()]
    made.model.zero_grad(set_to_none=True)
    with lms.fit(limit, transfer=transfer) as session:
        first = made.forward(made.model, made.x)
    assert any(handle() is not None for handle in session.engine._loose)
    # What an earlier pass has is not moved for this one, which may find that it does not fit.
    with suppress(BudgetError), lms.fit(limit, transfer=transfer):
        back(first + other_loss(made, other))
    assert_equal(made.model, expected)


def other_loss(made: Stage, other: torch.Tensor) -> torch.Tensor:
    """Of a shape of its own, with four dimensions."""
    scaled = other * made.model.get_parameter("norm.weight")
    return made.forward(made.model, scaled.flatten(0, 1))


def test_two_hundred_steps_leave_nothing_behind() -> None:
    torch.manual_seed(0)
    made = Stage(
        nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.Tanh()), torch.randn(64, 16)
    )
    limit = made.budget(0.8)
    transfer = made.check(limit, steps=5)
    gc.collect()
    device, host = transfer.allocated(), transfer.pinned()
    for _ in range(200):
        with lms.fit(limit, transfer=transfer) as session:
            back(made.forward(made.model, made.x))
        made.model.zero_grad(set_to_none=True)
    gc.collect()
    assert transfer.allocated() <= device
    assert transfer.pinned()[0] == host[0]
    assert transfer.pinned()[1] == 0
    assert session.engine.live == 0
    assert not lms.plan().keeps_all


def test_a_budget_below_what_is_there(made: Stage) -> None:
    with (
        pytest.raises(BudgetError, match="limit must hold what is on the device"),
        lms.fit(10_000, transfer=made.device()),
    ):
        made.forward(made.model, made.x)


def test_a_budget_below_the_largest_operation_names_it(made: Stage) -> None:
    limit = max(made.native.recording.other) - 1000
    with (
        pytest.raises(BudgetError, match=r"working set of .* the smallest that works is"),
        lms.fit(limit, transfer=made.device()),
    ):
        back(made.forward(made.model, made.x))


def test_a_host_too_small(made: Stage) -> None:
    class Opaque(nn.Module):
        """Nothing that can be rebuilt: memory that began with no content is filled piece by piece."""

        def forward(self, x: Tensor) -> Tensor:
            filled = torch.empty_like(x)
            filled[:1], filled[1:] = x[:1], x[1:]
            return filled.sin()

    deep = Stage(nn.Sequential(nn.Linear(32, 32), *(Opaque() for _ in range(4))), made.x)
    transfer = deep.device()
    transfer.host_limit = transfer._slabs.limit = 4096
    with pytest.raises(BudgetError, match="host must hold"), lms.fit(deep.budget(0.7), transfer=transfer):
        back(deep.forward(deep.model, deep.x))


def test_without_a_device_it_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    with pytest.raises(UsageError, match="must have a CUDA device, got cpu"), lms.fit("1GB"):
        pass


def test_a_limit_that_is_no_number() -> None:
    with pytest.raises(UsageError, match="limit must be a number of bytes"), lms.fit("lots"):
        pass


def test_a_forward_in_inference_mode_leaves_a_step_as_it_is(made: Stage) -> None:
    """A validation batch within the step: its tensors count no changes."""

    def with_validation(model: nn.Module, x: Tensor) -> Tensor:
        result: Tensor = model(x).square().mean()
        with torch.inference_mode():
            model(x[:2]).add_(1)
        return result

    staged = Stage(made.model, made.x, with_validation)
    staged.check(staged.budget(0.5))


class SplitGates(nn.Module):
    """Gates as recurrent cells make them: parts of one storage, each changed in place on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = self.layer(x).unsafe_chunk(3, -1)
        first = first.sigmoid_()
        second = second.tanh_() * first
        result: Tensor = x + second * third.sigmoid_()
        return result


@pytest.mark.parametrize("link", [1e6, 1e10])
def test_parts_of_a_storage_that_change_one_by_one_are_saved_as_they_were(link: float) -> None:
    torch.manual_seed(0)
    made = Stage(nn.Sequential(*(SplitGates() for _ in range(6))), torch.randn(64, 32), link=link)
    made.check(made.budget(0.6), hard=False)
