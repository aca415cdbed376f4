"""What a record says of the cores a worker computes on, and of its optimizer."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from weft.parallel.recording.cores import CoreUse, own_cores
from weft.parallel.recording.optimizers import optimizer_seconds
from weft.parallel.recording.recorder import record_step


def use(at_s: float, ran_s: float, waited_s: float = 0.0) -> CoreUse:
    return CoreUse(at_s, ran_s, waited_s)


def test_cores_that_were_busy_and_to_spare() -> None:
    assert use(2.0, 1.5).cores_since(use(0.0, 0.5), own_cores=2.0) == (0.5, 1.5)
    assert use(2.0, 3.0).cores_since(use(0.0, 0.0), own_cores=1.0) == (1.5, 0.0)


def test_threads_that_waited_for_a_core_have_none_to_spare() -> None:
    assert use(2.0, 0.5, waited_s=1.5).cores_since(use(0.0, 0.0), own_cores=2.0) == (0.25, 0.0)


def test_a_worker_that_waits_is_not_busy() -> None:
    before = CoreUse.now()
    time.sleep(0.2)
    busy, _ = CoreUse.now().cores_since(before, own_cores({}))
    assert busy < 0.5


def test_a_host_shares_its_cores_between_its_workers() -> None:
    assert own_cores({"LOCAL_WORLD_SIZE": "4"}) <= own_cores({})


class Closure(torch.optim.SGD):
    """An optimizer that cannot step by itself."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        raise RuntimeError("a closure is needed")


def test_an_optimizer_is_timed_beside_the_model() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    before = [one.detach().clone() for one in net.parameters()]
    optimizer = torch.optim.AdamW(net.parameters(), 0.1)
    whole_s, fixed_s = optimizer_seconds(optimizer, lambda: None)
    assert whole_s > 0
    assert fixed_s > 0
    assert not optimizer.state
    for one, was in zip(net.parameters(), before, strict=True):
        assert torch.equal(one, was)
    assert optimizer_seconds(Closure(net.parameters(), 0.1), lambda: None) == (0.0, 0.0)


def test_a_record_has_the_tensors_and_the_optimizer() -> None:
    net = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2))
    record = record_step(net, [torch.randn(2, 8)], optimizer=torch.optim.SGD(net.parameters(), 0.1))
    assert [layer.tensor_bytes for layer in record.layers] == [(128, 16), (32, 8)]
    assert record.optimizer_s > 0
    assert record.busy_cores > 0
    assert record.compute_s == pytest.approx(record.forward_s + record.backward_s + record.optimizer_s)
