"""The simulated device keeps its own work apart from everybody else's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from weft.lms.device.simulated import SimulatedTransfer


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


def test_storages_are_counted_as_they_come_and_go() -> None:
    transfer = SimulatedTransfer()
    with transfer.watching():
        weight = torch.zeros(100, requires_grad=True)
        kept = (weight * weight).sin().square()  # what autograd saved is held by nobody else
        assert transfer.allocated() == 4 * 400
        view = kept.detach().view(10, 10)
        del kept
        assert transfer.allocated() == 2 * 400
        del view
        assert transfer.allocated() == 400
        for _ in range(1000):  # at the same few addresses
            torch.zeros(50)
        assert transfer.allocated() == 400
    assert transfer.peak() >= 4 * 400


def test_storages_are_counted_as_they_shrink_and_grow() -> None:
    """Which no operation tells of."""
    transfer, other = SimulatedTransfer(), SimulatedTransfer()
    page, elsewhere = torch.zeros(100), torch.zeros(10)
    transfer.adopt(page)
    other.adopt(page, elsewhere)
    page.untyped_storage().resize_(0)
    assert (transfer.allocated(), other.allocated()) == (0, 40)
    elsewhere.untyped_storage().resize_(80)
    assert (transfer.allocated(), other.allocated()) == (0, 80)
    page.untyped_storage().resize_(800)
    assert transfer.allocated() == 800
    with transfer.watching():
        page.resize_(300)  # an operation like any other
    assert transfer.allocated() == 1200
