"""The simulated device keeps its own work apart from everybody else's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from weft.lms.simulated import SimulatedTransfer


@contextmanager
def compiler() -> Iterator[None]:
    torch._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        torch._disable_functionalization()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("midst", ["a tracer", "a compiler", "another device"])
def test_a_copy_ends_whatever_runs_when_its_garbage_is_collected(midst: str) -> None:
    transfer, other = SimulatedTransfer(), SimulatedTransfer()
    source = torch.arange(4096, dtype=torch.int64).view(torch.uint8)
    block = transfer.host(source.nbytes)
    ticket = transfer.copy_out(source, block)
    around: dict[str, AbstractContextManager[object]] = {
        "a tracer": FakeTensorMode(),
        "a compiler": compiler(),
        "another device": other.watching(),
    }
    with around[midst]:
        transfer.wait(ticket)
    assert torch.equal(block.tensor[: block.size], source)
    assert other.allocated() == 0
