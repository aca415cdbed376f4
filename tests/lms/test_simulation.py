"""The simulated device keeps its own work apart from everybody else's."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from weft.lms.simulated import SimulatedTransfer


@pytest.mark.parametrize("midst", ["a tracer", "another device"])
def test_a_copy_ends_whatever_runs_when_its_garbage_is_collected(midst: str) -> None:
    transfer, other = SimulatedTransfer(), SimulatedTransfer()
    source = torch.arange(4096, dtype=torch.int64).view(torch.uint8)
    block = transfer.host(source.nbytes)
    ticket = transfer.copy_out(source, block)
    around: AbstractContextManager[object] = FakeTensorMode() if midst == "a tracer" else other.watching()
    with around:
        transfer.wait(ticket)
    assert torch.equal(block.tensor[: block.size], source)
    assert other.allocated() == 0
