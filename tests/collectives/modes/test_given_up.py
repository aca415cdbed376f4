"""Operations of a group that another thread of their process gives up, as it does when a peer has died."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.collectives.modes.test_modes import shm_makers

from weft.collectives.groups.group import Group
from weft.collectives.modes.shared_memory.shm import SharedMemory
from weft.collectives.reduction import Reduction
from weft.errors import CollectiveError, PeerError

SUM = Reduction("SUM")


def shared(size: int) -> list[SharedMemory]:
    modes = [make() for make in shm_makers(size)]
    assert all(isinstance(mode, SharedMemory) for mode in modes)
    return modes  # type: ignore[return-value]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("values", [torch.zeros(8), torch.zeros(1 << 16)])
def test_an_operation_that_begins_after_that_says_so(size: int, values: torch.Tensor) -> None:
    mode, *others = shared(size)
    mode.close()
    with pytest.raises(PeerError, match="was given up"):
        mode.all_reduce(values, SUM)
    for other in others:
        other.close()


@pytest.mark.parametrize("size", [2, 3])
def test_an_operation_under_way_says_so_wherever_it_is(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its arrival and its wait there is nothing but its own thread that it could hear of the end from."""
    mode, *others = shared(size)
    arrive = mode._arrive

    def arrive_and_lose() -> int:
        count = arrive()
        mode.close()
        return count

    monkeypatch.setattr(mode, "_arrive", arrive_and_lose)
    with pytest.raises(PeerError, match="was given up"):
        mode.all_reduce(torch.zeros(8), SUM)
    for other in others:
        other.close()


def test_a_word_that_is_read_too_late_is_no_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    mode, other = shared(2)
    thread = threading.Thread(target=lambda: other.all_reduce(torch.zeros(8), SUM))
    thread.start()
    await_peer = mode._arena.await_peer

    def await_and_lose(*arguments: Any) -> None:
        await_peer(*arguments)
        mode.close()

    monkeypatch.setattr(mode._arena, "await_peer", await_and_lose)
    with pytest.raises(PeerError, match="was given up"):
        mode.all_reduce(torch.zeros(8), SUM)
    thread.join()
    other.close()


def test_whatever_an_operation_then_misses_counts_as_the_end_of_its_group() -> None:
    group = SimpleNamespace(_broken=None, settings=SimpleNamespace(debug=False))
    group._break = lambda error: setattr(group, "_broken", error)
    group._cause_of_break = lambda: group._broken
    ready = SimpleNamespace(wait=lambda: None, devices=())

    def run() -> None:
        group._broken = CollectiveError("it was aborted")
        raise IndexError("list index out of range")

    call: Any = "all_reduce"
    with pytest.raises(CollectiveError, match="all_reduce failed: the group broke meanwhile: it was aborted"):
        Group._carry_out(group, call, run, ready)  # type: ignore[arg-type]
    group._broken = None

    def fail() -> None:
        raise IndexError("a fault of our own")

    with pytest.raises(IndexError):
        Group._carry_out(group, call, fail, ready)  # type: ignore[arg-type]
