"""What a script may do with an elastic run, in a world of one: the same as with plain PyTorch, or a clear error."""

from __future__ import annotations

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


def two_backward_passes_are_told() -> None:
    run, loader, optimizer = begin(nn.Linear(6, 1, dtype=torch.float64))

    def twice() -> None:
        for _ in run.epochs(1):
            for x, y in loader:
                loss = nn.functional.mse_loss(run_model(optimizer, x), y)
                loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
                loss.backward()  # type: ignore[no-untyped-call]

    with pytest.raises(UsageError, match="one backward pass"):
        twice()


for check in (
    gradients_are_those_of_the_whole_batch,
    a_scaler_steps_once_a_step,
    an_epoch_may_be_left_early,
    a_loader_process_reads_ahead_in_a_long_share,
    misuse_is_told,
    two_backward_passes_are_told,
):
    check()
    print("done", check.__name__, flush=True)
