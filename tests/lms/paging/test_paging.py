"""Parameters, gradients and optimizer state that live on the host: nobody can tell, but for the memory."""

from __future__ import annotations

import copy
import gc
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from testing.families import GptBlock, Transformer
from tests.lms.stage import back
from torch import Tensor, nn

import weft.lms.api
from weft import lms
from weft.errors import BudgetError, UsageError
from weft.lms.device.simulated import SimulatedTransfer
from weft.lms.paging import page as pages
from weft.lms.paging.page import AwayParameter

WIDTH = 64


def model_and_batch(blocks: int = 4) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Transformer(blocks, lambda: GptBlock(WIDTH, 4), WIDTH), torch.randn(2, 16, WIDTH)


def bytes_of(model: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in model.parameters())


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 1e-3)


def wrapped(
    model: nn.Module, optimizer: Any, limit: int, hard: bool = True, **more: Any
) -> SimulatedTransfer:
    transfer = SimulatedTransfer(limit=limit if hard else None)
    transfer.adopt(*model.parameters(), *model.buffers())
    lms.wrap(model, optimizer, limit=limit, transfer=transfer, **more)
    return transfer


def trained(model: nn.Module, optimizer: Any, x: Tensor, steps: int = 3, micro: int = 2) -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        for _ in range(micro):
            back(model(x).square().mean())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        scheduler.step()


def assert_same(model: nn.Module, other: nn.Module) -> None:
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name


def away(model: nn.Module) -> int:
    """Bytes of parameters that are not on the device."""
    with torch._C.DisableTorchFunctionSubclass():
        return sum(p.nbytes for p in model.parameters() if not p.untyped_storage().nbytes())


def test_a_model_far_larger_than_the_budget_trains_as_it_would_natively() -> None:
    model, x = model_and_batch()
    other = copy.deepcopy(model)
    trained(model, adamw(model), x)
    limit = bytes_of(model)  # of four times that for parameters, gradients and state
    optimizer = adamw(other)
    transfer = wrapped(other, optimizer, limit)
    trained(other, optimizer, x)
    assert lms.stats()["over"] == 0
    assert transfer.peak() <= limit
    assert lms.stats()["paged_bytes"] > 2 * limit
    explained = lms.plan().explain()
    assert all(word in explained for word in ("optimizer state", "gradients, out", "parameters, "))
    assert away(other) > 0
    assert_same(other, model)
    del other, optimizer
    gc.collect()
    assert transfer.pinned()[1] == 0


@pytest.fixture(autouse=True)
def no_step_stays_open() -> Iterator[None]:
    yield
    weft.lms.api.latest().end(failed=True)


@pytest.fixture
def paged() -> tuple[nn.Module, nn.Module, Tensor]:
    """A model, the same one with all it has on the host, and a batch."""
    model, x = model_and_batch()
    other = copy.deepcopy(model)
    wrapped(other, None, 4 * bytes_of(model), hard=False, page="always")
    return model, other, x


def test_parameters_are_ordinary_ones_for_whoever_looks(paged: Any) -> None:
    model, other, x = paged
    first = other.get_parameter("blocks.0.qkv.weight")
    assert isinstance(first, nn.Parameter)
    assert type(first) is AwayParameter
    assert away(other) > 0
    assert first.shape == model.get_parameter("blocks.0.qkv.weight").shape
    kept = away(other)
    assert first.requires_grad
    assert away(other) == kept  # nobody asked for a byte
    assert_same(other, model)
    with torch.no_grad():
        assert torch.equal(other.eval()(x), model.eval()(x))


def test_saving_and_loading(paged: Any) -> None:
    model, other, x = paged
    saved = other.state_dict()
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in saved.items())
    kept = away(other)
    other.state_dict()
    assert away(other) == kept  # copies on the host
    doubled = {name: 2 * value for name, value in saved.items()}
    other.load_state_dict(doubled)
    model.load_state_dict(doubled)
    assert_same(other, model)
    assert torch.equal(other(x), model(x))


def test_writing_in_every_way_is_kept(paged: Any) -> None:
    model, other, x = paged
    for one in (model, other):
        with torch.no_grad():
            for parameter in one.parameters():
                parameter.mul_(1.5)
        for parameter in one.parameters():
            parameter.data.add_(0.01)
        held = one.get_parameter("blocks.1.qkv.weight").data
        one(x)
        held.mul_(0.5)  # long after it was taken
        del held
        one(x)
    replaced = torch.randn_like(model.get_parameter("blocks.2.qkv.weight"))
    for one in (model, other):
        one.get_parameter("blocks.2.qkv.weight").data = replaced.clone()
    assert torch.equal(other(x), model(x))
    assert_same(other, model)


def test_a_copy_is_under_no_budget(paged: Any) -> None:
    model, other, x = paged
    copied = copy.deepcopy(other)
    assert type(copied.get_parameter("blocks.0.qkv.weight")) is nn.Parameter
    assert torch.equal(copied(x), model(x))
    assert_same(copied, other)
    assert copied.state_dict().keys() == model.state_dict().keys()
    with pytest.raises(UsageError, match="state_dict"):
        torch.save(other, io.BytesIO())


def losses() -> dict[str, Callable[[nn.Module, Tensor], Tensor]]:
    def plain(model: nn.Module, x: Tensor) -> Tensor:
        result: Tensor = model(x).square().mean()
        return result

    def decayed(model: nn.Module, x: Tensor) -> Tensor:
        return plain(model, x) + sum(p.pow(2).sum() for p in model.parameters())

    def twice(model: nn.Module, x: Tensor) -> Tensor:
        return plain(model, x) + plain(model, 2 * x)

    def in_parts(model: Any, x: Tensor) -> Tensor:
        for block in model.blocks:
            x = block(x)
        return x.square().mean()

    def checkpointed(model: Any, x: Tensor) -> Tensor:
        for block in model.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return x.square().mean()

    def autocast(model: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            result: Tensor = model(x).float().square().mean()
            return result

    def direct(model: Any, x: Tensor) -> Tensor:
        weights = [block.qkv.weight.t() for block in model.blocks]  # held until they are used
        terms: list[Tensor] = [(x @ weight).square().mean() for weight in weights]
        return plain(model, x) + torch.stack(terms).sum()

    return {
        f.__name__: f for f in (plain, decayed, twice, in_parts, checkpointed, autocast, direct)
    }  # fmt: skip


@pytest.mark.parametrize("name", losses())
def test_gradients_are_the_native_ones(paged: Any, name: str) -> None:
    model, other, x = paged
    for parameter in (model, other):
        parameter.get_parameter("blocks.1.up.weight").requires_grad_(False)
    loss = losses()[name]
    for _ in range(3):
        for one in (model, other):
            back(loss(one, x))  # they add up
    for (key, one), two in zip(other.named_parameters(), model.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None), key
        assert two.grad is None or torch.equal(one.grad, two.grad), key


def test_an_optimizer_that_nobody_knows_of(paged: Any) -> None:
    model, other, x = paged
    trained(model, adamw(model), x, steps=2)
    trained(other, adamw(other), x, steps=2)
    assert_same(other, model)


class Raw(torch.optim.Optimizer):
    """Writes as optimizers did before `no_grad`."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.add_(parameter.grad.data, alpha=-group["lr"])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("kind", ["fused", "raw"])
def test_optimizers_that_write_unseen(kind: str, known: bool) -> None:
    model, x = model_and_batch(2)
    other = copy.deepcopy(model)
    for one in (model, other):
        optimizer: torch.optim.Optimizer = Raw(one.parameters())
        if kind == "fused":
            optimizer = torch.optim.AdamW(one.parameters(), 1e-3, fused=True)
        if one is other:
            wrapped(one, optimizer if known else None, 8 * bytes_of(model), hard=False, page="always")
        trained(one, optimizer, x)
    settled(other)
    assert away(other) > 0
    assert_same(other, model)


def settled(model: Any) -> Any:
    """The traffic of a model's pages, after all that could leave has left."""
    kept = model.forward.wrapped.pages
    kept.settle()
    return kept.traffic


def test_gradients_are_unscaled_even_if_they_leave_before_the_step(paged: Any) -> None:
    model, other, x = paged
    for one in (model, other):
        scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
        back(scaler.scale(one(x).square().mean()))
        scaler.unscale_(adamw(one))
    settled(other)
    for found, wanted in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(found.grad, wanted.grad)


def test_gradients_that_somebody_kept_are_ordinary_ones_and_others_are_gone(paged: Any) -> None:
    model, other, x = paged
    kept = []
    for one in (model, other):
        back(one(x).square().mean())
        kept.append([parameter.grad for parameter in one.blocks[0].parameters()])
        torch.nn.utils.clip_grad_norm_(one.parameters(), 0.1)  # all were touched
        one.zero_grad(set_to_none=True)
        back(one(2 * x).square().mean())
    for wanted, found in zip(*kept, strict=True):
        assert torch.equal(found, wanted)
        assert type(found) is Tensor
    other.zero_grad(set_to_none=True)
    traffic = settled(other)
    assert not [page for page in traffic.here.values() if page.kind == "gradient"]
    assert traffic.usage.on_device == sum(page.bytes for page in traffic.here.values())


def test_memory_that_somebody_else_gave_a_parameter(paged: Any) -> None:
    model, other, x = paged
    name = "blocks.0.qkv.weight"
    flat = torch.randn(2 * model.get_parameter(name).numel())
    old = other.get_parameter(name).untyped_storage()._cdata
    for one in (model, other):
        parameter = one.get_parameter(name)
        parameter.data = flat.clone()[parameter.numel() :].view_as(parameter)
    assert torch.equal(other.state_dict()[name], model.get_parameter(name))
    assert pages.page_of(torch.eye(2).to_sparse()) is None  # which has no storage
    assert torch.equal(other(x), model(x))
    assert old not in pages.PAGES.storages  # another may have that address by now


def test_part_of_a_model_outlives_it() -> None:
    model, x = model_and_batch()
    other: Any = copy.deepcopy(model)
    wrapped(other, None, 4 * bytes_of(model), hard=False, page="always")
    part = other.blocks[3]
    del other
    gc.collect()
    assert torch.equal(part(x), model.get_submodule("blocks.3")(x))
    weight = part.qkv.weight
    del part
    gc.collect()
    with pytest.raises(UsageError, match="its model is there"):
        weight.sum()


def test_a_pass_that_fails_changes_nothing(paged: Any) -> None:
    model, other, x = paged
    with pytest.raises(RuntimeError):
        other(torch.randn(2, 3, WIDTH + 1))
    handle = other.blocks[1].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        other(x)
    handle.remove()
    for one in (model, other):
        back(one(x).square().mean())
    assert_same(other, model)
    assert torch.equal(other.blocks[0].qkv.weight.grad, model.blocks[0].qkv.weight.grad)


class Tied(nn.Module):
    """The first matrix is the last one, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(128, WIDTH)
        self.body = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 128, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(self.embed(x)).relu())
        return result


def test_tied_weights_and_a_scaler() -> None:
    torch.manual_seed(0)
    model, x = Tied(), torch.randint(128, (4, 8))
    other = copy.deepcopy(model)
    for one in (model, other):
        optimizer = adamw(one)
        if one is other:
            wrapped(other, optimizer, 1_000_000, page="always")
        scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            back(scaler.scale(one(x).square().mean()))
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    assert_same(other, model)
    assert other.head.weight is other.embed.weight


def test_optimizer_state_is_saved_from_the_host_and_loaded_back() -> None:
    model, x = model_and_batch(2)
    other = copy.deepcopy(model)
    native, optimizer = adamw(model), adamw(other)
    wrapped(other, optimizer, 4 * bytes_of(model), page="always")
    trained(model, native, x, steps=2)
    trained(other, optimizer, x, steps=2)
    saved, expected = optimizer.state_dict(), native.state_dict()
    for key, values in expected["state"].items():
        assert torch.equal(saved["state"][key]["exp_avg"], values["exp_avg"])
    optimizer.load_state_dict(saved)
    name = "blocks.0.qkv.weight"
    found, wanted = (
        one.state[of.get_parameter(name)]["exp_avg_sq"] for one, of in ((optimizer, other), (native, model))
    )
    assert torch.equal(found, wanted)
    trained(model, native, x, steps=1)
    trained(other, optimizer, x, steps=1)
    assert_same(other, model)


def test_what_takes_all_gradients_at_once_must_fit() -> None:
    model, x = model_and_batch(6)
    optimizer = adamw(model)
    wrapped(model, optimizer, int(0.9 * bytes_of(model)))
    back(model(x).square().mean())
    with pytest.raises(BudgetError, match="takes at once"):
        torch._foreach_norm([parameter.grad for parameter in model.parameters()])  # type: ignore[misc]
    optimizer.step()


def test_a_budget_that_holds_no_module_is_refused() -> None:
    model, _ = model_and_batch(1)
    with pytest.raises(BudgetError, match="the smallest that could work"):
        wrapped(model, None, 10_000)
    assert type(model.get_parameter("blocks.0.qkv.weight")) is nn.Parameter


def test_an_estimate_tells_of_paging() -> None:
    model, x = model_and_batch(6)
    size = bytes_of(model)
    native = lms.estimate(model, x, limit=2 * size, state=2)
    helped = lms.estimate(model, x, limit=2 * size, state=2, page="auto")
    assert not native.fits
    assert helped.fits
    assert helped.residence is not None
    assert helped.residence.away > size
    assert "paged" in str(helped)


def test_the_stream_that_gave_the_memory_waits_before_it_is_given_back() -> None:
    class Streams(SimulatedTransfer):
        now = "of the model"
        told: list[Any] = []  # noqa: RUF012

        def stream(self) -> Any:
            return self.now

        def wait(self, ticket: Any, stream: Any = None) -> None:
            if isinstance(ticket, float):  # a mark
                self.told.append((stream, self.now))
            else:
                super().wait(ticket, stream)

    model = nn.Linear(64, 64)
    transfer = Streams()
    transfer.adopt(*model.parameters())
    lms.wrap(model, adamw(model), limit=1_000_000, page="always", transfer=transfer)
    transfer.now = "of the training"
    page = pages.page_of(model.weight)
    assert page is not None
    page.leave()
    assert transfer.told == [("of the model", "of the training")]
    page.bring()
    page.leave()
    assert len(transfer.told) == 1  # its memory is of this stream now
