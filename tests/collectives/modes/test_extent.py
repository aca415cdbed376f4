"""Little memory or much: the better one is found, whichever it is, and again when it changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
import torch
from tests.collectives.modes.test_modes import together
from torch import Tensor
from torch._C._distributed_c10d import HashStore

from weft.collectives.members import GroupMember
from weft.collectives.modes.mode import Mode, even_bounds
from weft.collectives.modes.peers import DimensionPeers
from weft.collectives.modes.shared_memory import arena, files, shm
from weft.collectives.modes.shared_memory.extent import AGAIN_S, BEFORE, LEAST_BYTES, SlabExtent
from weft.collectives.reduction import Reduction


class Machine:
    """Where a piece costs so much, by the way it goes."""

    def __init__(self, narrow: float, wide: float) -> None:
        self.narrow, self.wide = narrow, wide
        self.now = 0.0
        self.extent = SlabExtent(lambda: self.now)

    def pieces(self, count: int, nbytes: int = 1 << 20) -> int:
        """Carry out some; how many of them went through much memory."""
        wide = 0
        for _ in range(count):
            cost = self.wide if self.extent.wide else self.narrow
            wide += self.extent.wide
            self.now += cost
            self.extent.note(nbytes, cost)
        return wide


def test_little_where_caches_are_shared() -> None:
    machine = Machine(narrow=50e-6, wide=100e-6)
    assert machine.pieces(100_000) < 2000
    assert not machine.extent.wide


def test_much_where_they_are_not() -> None:
    machine = Machine(narrow=500e-6, wide=100e-6)
    assert machine.pieces(100_000) > 98_000
    assert machine.extent.wide


def test_as_good_as_the_other_is_no_reason_to_change() -> None:
    machine = Machine(narrow=100e-6, wide=95e-6)
    machine.pieces(10_000)
    assert not machine.extent.wide


def test_changes_with_the_machine() -> None:
    machine = Machine(narrow=50e-6, wide=100e-6)
    machine.pieces(1000)
    machine.narrow = 500e-6
    machine.pieces(int(3 * AGAIN_S / 500e-6))
    assert machine.extent.wide
    machine.narrow = 50e-6
    machine.pieces(int(3 * AGAIN_S / 100e-6))
    assert not machine.extent.wide


def test_a_wrong_choice_is_mended_soon() -> None:
    machine = Machine(narrow=500e-6, wide=100e-6)
    machine.pieces(2 * BEFORE)
    assert machine.extent.wide
    machine.narrow = 50e-6
    machine.pieces(int(0.6 / 100e-6))
    assert not machine.extent.wide


def test_small_pieces_and_other_sizes_do_not_disturb() -> None:
    machine = Machine(narrow=500e-6, wide=100e-6)
    assert machine.pieces(10_000, LEAST_BYTES - 1) == 0
    for _ in range(1000):
        machine.pieces(1)
        machine.pieces(3, 1 << 18)
    assert machine.extent.wide


def test_a_trial_ends_when_its_pieces_do_not_come_any_more() -> None:
    machine = Machine(narrow=100e-6, wide=200e-6)
    machine.pieces(BEFORE + 1)
    assert machine.extent.wide
    machine.pieces(300, 1 << 18)
    assert not machine.extent.wide


@pytest.mark.parametrize(
    ("ranks", "near", "free", "bytes_"),
    [
        (2, 2 << 20, 1 << 40, 32 << 20),
        (8, 2 << 20, 1 << 40, 16 << 20),
        (100, 8 << 20, 1 << 40, 8 << 20),  # never less than the near ones
        (2, 2 << 20, 64 << 20, 2 << 20),  # what a container has if nobody asks for more
    ],
)
def test_how_much_is_shared(ranks: int, near: int, free: int, bytes_: int) -> None:
    assert arena.far_bytes(ranks, near, free) == bytes_


class Restless(SlabExtent):
    """Changes its mind after every few pieces."""

    count = 0

    def note(self, nbytes: int, seconds: float) -> None:
        self.count += 1
        self.wide = self.count % 5 in (1, 2, 4)


@pytest.mark.parametrize("size", [2, 3])
def test_all_peers_change_at_the_same_piece(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(shm, "SlabExtent", Restless)
    near, far = 1 << 17, 1 << 20
    name = f"{files.PREFIX}{os.getpid()}-span-{threading.get_ident()}-{size}"
    opened = [arena.create(name, size, far)] + [arena.attach(name) for _ in range(size - 1)]
    arena.unlink(name)

    def maker(index: int) -> Callable[[], Mode]:
        shared = arena.Arena(opened[index], index=index, pids=[os.getpid()] * size, slab_bytes=far)
        return lambda: shm.SharedMemory(shared, timeout_s=60, near_bytes=near)

    def work(mode: Mode) -> list[Tensor]:
        results = []
        for turn in range(30):
            values = torch.arange(1000.0 + 4999 * (turn % 7)) + mode.index + turn
            mode.all_reduce(values, Reduction("SUM"))
            bounds = even_bounds(values.numel(), size)
            mode.all_gather(values, bounds)
            mode.broadcast(values, turn % size)
            mode.barrier()
            results.append(values)
        return results

    for results in together([maker(index) for index in range(size)], work):
        for turn, values in enumerate(results):
            expected = (torch.arange(1000.0 + 4999 * (turn % 7)) + turn) * size + sum(range(size))
            assert torch.equal(values, expected)


@pytest.mark.parametrize(("short_lived", "times"), [(False, 1), (True, 0)])
def test_a_group_that_another_one_follows_soon_does_not_measure(
    monkeypatch: pytest.MonkeyPatch, short_lived: bool, times: int
) -> None:
    settled: list[shm.SharedMemory] = []
    monkeypatch.setattr(shm.SharedMemory, "settle", lambda mode: settled.append(mode))
    peers = DimensionPeers(
        name="alone",
        store=HashStore(),
        members=(GroupMember(rank=0, host="m", name="h", pid=os.getpid(), address=""),),
        index=0,
        timeout_s=60.0,
        describe=lambda peer, what: what,
        lives=lambda peer: True,
        whole_world=True,
        short_lived=short_lived,
    )
    shm.SharedMemory.connect(peers)
    assert len(settled) == times
