"""What a script may do with an elastic run, in a world of one: the same as with plain PyTorch, or a clear error."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from weft import elastic
from weft.errors import UsageError

torch.set_num_threads(1)
torch.manual_seed(0)
DATA = TensorDataset(torch.randn(40, 6, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(6, 8, dtype=torch.float64)
        self.frozen = nn.Linear(8, 8, dtype=torch.float64).requires_grad_(False)
        self.sometimes = nn.Linear(8, 1, dtype=torch.float64)
        self.never = nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.frozen(torch.tanh(self.used(x)))
        # Some micro-batches leave a part out, as routed models do.
        return self.sometimes(hidden) if x[0, 0] > 0 else hidden.mean(1, keepdim=True)


def begin(model: nn.Module, *, batch: int = 16, micro: int = 5, **options: Any) -> tuple[Any, Any, Any]:
    run = elastic.join()
    loader = run.loader(DATA, batch=batch, micro=micro, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    run.register(model=model, optimizer=optimizer)
    return run, loader, optimizer


def gradients_are_those_of_the_whole_batch() -> None:
    """Weighted by samples: the last micro-batch of a step, and the last step of an epoch, are smaller."""
    torch.manual_seed(1)
    model, plain = Net(), Net()
    plain.load_state_dict(model.state_dict())
    other = torch.optim.AdamW(plain.parameters(), lr=0.05)
    run, loader, optimizer = begin(model)
    assert len(loader) == 3
    seen: list[torch.Tensor] = []
    steps = []
    for _ in run.epochs(2):
        for x, y in loader:
            seen.append(torch.cat([x, y], 1))
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            assert bool(norm) == run.applied  # no gradient to be seen before it is whole
            if run.applied:
                assert model.never.weight.grad is None
                assert model.frozen.weight.grad is None
                step(plain, other, seen)
                steps.append(sum(map(len, seen)))
                seen.clear()
    assert steps == [16, 16, 8] * 2
    assert run.committed == 6
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, micros: list[torch.Tensor]) -> None:
    """The same step by hand."""
    total = sum(map(len, micros))
    optimizer.zero_grad()
    for part in micros:
        loss = nn.functional.mse_loss(model(part[:, :6]), part[:, 6:]) * (len(part) / total)
        loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()


def a_scaler_steps_once_a_step() -> None:
    run = elastic.join()
    model = nn.Linear(6, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    loader = run.loader(DATA, batch=20, micro=5)
    run.register(model=model, optimizer=optimizer, scaler=scaler, schedule=schedule)
    for _ in run.epochs(1):
        for x, y in loader:
            optimizer.zero_grad()
            scaler.scale(nn.functional.mse_loss(model(x), y)).backward()  # type: ignore[no-untyped-call]
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
    assert scaler.get_scale() == 1024.0 * 2**2
    assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5**2
    assert "step" not in schedule.state_dict()


def an_epoch_may_be_left_early() -> None:
    run, loader, optimizer = begin(nn.Linear(6, 1, dtype=torch.float64))
    epochs = []
    for epoch in run.epochs(3):
        epochs.append(epoch)
        for x, y in loader:
            nn.functional.mse_loss(run_model(optimizer, x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if run.applied:
                break
    assert epochs == [0, 1, 2]
    assert run.committed == 3


def run_model(optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
    weight, bias = optimizer.param_groups[0]["params"]
    return nn.functional.linear(x, weight, bias)


def a_loader_process_reads_ahead_in_a_long_share() -> None:
    """The share of a step has more micro-batches than the loader keeps in flight."""
    run, loader, optimizer = begin(nn.Linear(6, 1, dtype=torch.float64), batch=20, micro=2, num_workers=1)
    seen = []
    for _ in run.epochs(1):
        for x, y in loader:
            seen.append(len(x))
            optimizer.zero_grad()
            nn.functional.mse_loss(run_model(optimizer, x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert seen == [2] * 20
    assert run.committed == 2


def misuse_is_told() -> None:
    def refused(words: str, call: Any) -> None:
        with pytest.raises(UsageError, match=re.escape(words)):
            call()

    run = elastic.join()
    refused("must come before run.epochs", lambda: next(run.epochs(1)))
    refused("a model must be registered", lambda: run.register(optimizer=torch.optim.SGD([torch.zeros(1)])))
    refused("register model.module", lambda: run.register(model=nn.DataParallel(nn.Linear(1, 1))))
    refused("without state_dict", lambda: run.register(model=nn.Linear(1, 1), meter=3))
    refused("batch must be at least 1", lambda: run.loader(DATA, batch=0))
    refused("at least one batch", lambda: run.loader(DATA, batch=50, drop_last=True))
    loader = run.loader(DATA, batch=20)
    refused("one loader", lambda: run.loader(DATA, batch=20))
    model = nn.Linear(6, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.register(model=model, optimizer=optimizer)
    refused("without a closure", lambda: optimizer.step(lambda: 0.0))

    def forget_backward() -> None:
        for _ in run.epochs(1):
            for _batch in loader:
                pass

    refused("must be followed by loss.backward()", forget_backward)


def an_optimizer_that_is_not_registered_is_told() -> None:
    run = elastic.join()
    model = nn.Linear(6, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = run.loader(DATA, batch=20)
    run.register(model=model)

    def train() -> None:
        for _ in run.epochs(1):
            for x, y in loader:
                nn.functional.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
                optimizer.step()

    with pytest.raises(UsageError, match="must be registered with its model, got SGD"):
        train()


def several_backward_passes_add_up() -> None:
    """Two losses, one after the other, and gradients of a third kind that are nobody's."""
    torch.manual_seed(2)
    model, plain = Net(), Net()
    plain.load_state_dict(model.state_dict())
    other = torch.optim.AdamW(plain.parameters(), lr=0.05)
    run, loader, optimizer = begin(model, batch=16, micro=5)
    seen: list[torch.Tensor] = []
    for _ in run.epochs(2):
        for x, y in loader:
            seen.append(torch.cat([x, y], 1))
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
            torch.autograd.grad(model(x).sum(), list(model.used.parameters()))
            (0.1 * model.used.weight.square().sum()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if run.applied:
                other.zero_grad()
                for part in seen:
                    loss = nn.functional.mse_loss(plain(part[:, :6]), part[:, 6:])
                    (loss * (len(part) / sum(map(len, seen)))).backward()  # type: ignore[no-untyped-call]
                (0.1 * plain.used.weight.square().sum()).backward()  # type: ignore[no-untyped-call]
                other.step()
                seen.clear()
    assert run.committed == 6
    same(model, plain)


def same(model: nn.Module, plain: nn.Module) -> None:
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-14)


def two_models_take_turns() -> None:
    """As in a GAN: the second loss sees what the first has changed, and leaves gradients where they are not wanted."""

    def turn(first: nn.Module, second: nn.Module, optimizers: Any, x: torch.Tensor, y: torch.Tensor) -> None:
        optimizers[0].zero_grad()
        nn.functional.mse_loss(first(second(x).detach()), y).backward()  # type: ignore[no-untyped-call]
        optimizers[0].step()
        optimizers[1].zero_grad()
        first(second(x)).square().mean().backward()
        optimizers[1].step()

    def made() -> tuple[nn.Module, nn.Module, list[torch.optim.Optimizer]]:
        torch.manual_seed(3)
        pair = nn.Linear(3, 1, dtype=torch.float64), nn.Linear(6, 3, dtype=torch.float64)
        return *pair, [torch.optim.Adam(each.parameters(), lr=0.05) for each in pair]

    ours, plain = made(), made()
    run = elastic.join()
    loader = run.loader(DATA, batch=10)
    run.register(first=ours[0], second=ours[1], one=ours[2][0], two=ours[2][1])
    for _ in run.epochs(3):
        for x, y in loader:
            turn(*ours, x, y)
            turn(*plain, x, y)
    assert run.committed == 12
    same(ours[0], plain[0])
    same(ours[1], plain[1])


def a_batch_that_is_left_out_counts_for_nothing() -> None:
    """The mean is that of the other micro-batches of its step; if there are none, the step is not applied."""
    for micro in (5, 20):
        torch.manual_seed(4)
        model, plain = (nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 1)).double() for _ in range(2))
        plain.load_state_dict(model.state_dict())
        other = torch.optim.AdamW(plain.parameters(), lr=0.05)
        run, loader, optimizer = begin(model, batch=20, micro=micro)
        used: dict[float, torch.Tensor] = {}  # a micro-batch may come again, and counts once
        step, left_out = 0, 0
        for _ in run.epochs(3):
            for x, y in loader:
                if run.committed != step:
                    step = run.committed
                    used.clear()
                if x[0, 1] > 0.2:
                    left_out += 1
                    continue
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
                used[float(x[0, 0])] = torch.cat([x, y], 1)
                optimizer.step()
                if run.applied:
                    step_by_hand(plain, other, list(used.values()))
        assert run.committed == 6
        assert left_out
        same(model, plain)
        assert all(value.isfinite().all() for value in model.state_dict().values())


def frozen_parameters_may_be_unfrozen() -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    plain = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    plain.load_state_dict(model.state_dict())
    other = torch.optim.AdamW(plain.parameters(), lr=0.05)
    model[0].requires_grad_(False)
    run, loader, optimizer = begin(model, batch=20, micro=5)
    seen: list[torch.Tensor] = []
    for epoch in run.epochs(3):
        for each in (model, plain):
            each[0].requires_grad_(epoch == 1)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
            seen.append(torch.cat([x, y], 1))
            optimizer.step()
            if run.applied:
                step_by_hand(plain, other, seen)
                seen.clear()
    same(model, plain)


def step_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer, micros: list[torch.Tensor]) -> None:
    """A step with the mean over these micro-batches."""
    total = sum(map(len, micros))
    optimizer.zero_grad()
    for part in micros:
        loss = nn.functional.mse_loss(model(part[:, :6]), part[:, 6:]) * (len(part) / total)
        loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def loops_that_train_nothing_are_told() -> None:
    def loop(*, every: int) -> None:
        run, loader, optimizer = begin(nn.Linear(6, 1, dtype=torch.float64), batch=4, micro=4)
        for _ in run.epochs(1):
            for number, (x, y) in enumerate(loader):
                nn.functional.mse_loss(run_model(optimizer, x), y).backward()  # type: ignore[no-untyped-call]
                if every and (number + 1) % every == 0:
                    optimizer.step()
                    optimizer.zero_grad()

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        loop(every=1)
        assert said.getvalue() == ""
        loop(every=4)
    assert "optimizer.step() was called in 2 of 8 steps" in said.getvalue()
    assert "a batch 4 times as large" in said.getvalue()
    with pytest.raises(UsageError, match="got 8 steps without it"):
        loop(every=0)


for check in (
    gradients_are_those_of_the_whole_batch,
    a_scaler_steps_once_a_step,
    an_epoch_may_be_left_early,
    a_loader_process_reads_ahead_in_a_long_share,
    misuse_is_told,
    an_optimizer_that_is_not_registered_is_told,
    several_backward_passes_add_up,
    two_models_take_turns,
    a_batch_that_is_left_out_counts_for_nothing,
    frozen_parameters_may_be_unfrozen,
    loops_that_train_nothing_are_told,
):
    check()
    print("done", check.__name__, flush=True)
