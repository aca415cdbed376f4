"""Tensors on accelerators, as far as it goes without one: who forms NCCL's groups, what is in main memory when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.collectives.modes.test_modes import TIMEOUT_S, ring_makers, together
from torch import Tensor
from torch._C._distributed_c10d import HashStore, PrefixStore

from weft.collectives.choices import parse_mode
from weft.collectives.groups import device
from weft.collectives.groups.accelerators import nccl_groups
from weft.collectives.groups.device import OnDevice, PinnedStaging
from weft.collectives.hierarchy import Hierarchy
from weft.collectives.members import Layout
from weft.collectives.modes.mode import Mode, bounds_of, even_bounds
from weft.collectives.modes.nccl import Nccl
from weft.collectives.modes.wires.wire import BlockInt8, Feedback, Memories, TensorHomes
from weft.collectives.reduction import Reduction
from weft.errors import PeerError

ONE_HOST = Layout(((0, 1, 2, 3),))
TWO_HOSTS = Layout(((0, 1), (2, 3)))
APART = ["a", "b", "a", "b"]  # as hosts count their accelerators


# -- who forms groups ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "accelerators", "mode", "groups"),
    [
        (ONE_HOST, ["a", "b", "c", "d"], "explore", ((0, 1, 2, 3),)),
        (ONE_HOST, ["a", "b", "c", "d"], "shm", ()),
        (ONE_HOST, ["a", "b", "c", "c"], "nccl", ()),  # two ranks on one
        (ONE_HOST, ["a", "b", "c", ""], "nccl", ()),  # one without
        (TWO_HOSTS, APART, "explore", ((0, 1), (2, 3))),
        (TWO_HOSTS, APART, "b:2x2", ((0, 1, 2, 3),)),
        (TWO_HOSTS, APART, "nccl,ring", ((0, 1), (2, 3))),
        (TWO_HOSTS, ["a", "a", "a", "b"], "nccl", ()),
        (Layout(((0,), (1,))), ["a", "a"], "explore", ()),
        (Layout(((0,), (1,))), ["a", "a"], "nccl", ((0, 1),)),
    ],
)
def test_groups(
    layout: Layout, accelerators: list[str], mode: str, groups: tuple[tuple[int, ...], ...]
) -> None:
    assert nccl_groups(layout, accelerators, parse_mode(mode)) == groups


# -- through main memory -------------------------------------------------------------------------------------------


@dataclass
class SlowLift:
    """A copy is carried out when someone waits for it, so that nobody can do without waiting."""

    log: list[str] = field(default_factory=list)

    def memory(self, nbytes: int) -> Tensor:
        return torch.zeros(nbytes, dtype=torch.uint8)

    def down(self, chunk: Tensor, memory: Tensor) -> Copy:
        self.log.append("down")
        return Copy(chunk, memory)

    def up(self, memory: Tensor, chunk: Tensor) -> Copy:
        self.log.append("up")
        return Copy(memory, chunk)


@dataclass
class Copy:
    source: Tensor
    target: Tensor
    done: bool = False

    def synchronize(self) -> None:
        if not self.done:
            self.target.copy_(self.source)
        self.done = True


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "CHUNK_BYTES", 4096)


def double(values: Tensor) -> None:
    values.mul_(2)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 10_000])
def test_everything_is_carried_and_comes_back(count: int) -> None:
    lift = SlowLift()
    staging = PinnedStaging(lift)
    for _ in range(2):  # places are used again
        values = torch.arange(count, dtype=torch.float32)
        staging.carry(values, double)
        assert torch.equal(values, torch.arange(count, dtype=torch.float32) * 2)


@pytest.mark.usefixtures("small_chunks")
def test_the_next_chunk_comes_down_while_one_is_worked_on() -> None:
    lift = SlowLift()
    PinnedStaging(lift).carry(torch.zeros(4096), lambda _: lift.log.append("work"))
    assert lift.log == [
        "down",
        "down",
        "work",
        "up",
        "down",
        "work",
        "up",
        "down",
        "work",
        "up",
        "work",
        "up",
    ]


def test_feedback_knows_a_tensor_in_main_memory_by_where_it_came_from() -> None:
    memories = Memories(feedback := Feedback(BlockInt8()), homes := TensorHomes())
    first, second, here = torch.full((256,), 0.3), torch.full((256,), 0.3), torch.zeros(512)
    first[0] = second[0] = 100.0
    for original in (first, second, first):
        here[256:].copy_(original)
        with homes.stands_for(here[256:], original):
            memories.encode(here[256:], "part", here[256:].clone())
    assert feedback.count == 2


# -- NCCL's part, by Gloo: the calls are the same ------------------------------------------------------------------


class Done:
    def is_completed(self) -> bool:
        return True

    def wait(self) -> None: ...


class AtOnce:
    """Gloo's group; some of its works are done only when they are waited for."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def __getattr__(self, name: str) -> Callable[..., Done]:
        def call(*args: Any) -> Done:
            getattr(self._group, name)(*args).wait()
            return Done()

        return call

    def abort(self) -> None: ...


def stand_ins(size: int, store: HashStore, name: str = "") -> list[Callable[[], Nccl]]:
    def maker(index: int) -> Callable[[], Nccl]:
        def make() -> Nccl:
            timeout = timedelta(seconds=TIMEOUT_S)
            group = dist.ProcessGroupGloo(PrefixStore(name, store), index, size, timeout)
            return Nccl(AtOnce(group), index, size, timeout_s=TIMEOUT_S)

        return make

    return [maker(index) for index in range(size)]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("count", [12, 1000, 1001])
def test_parts(size: int, count: int) -> None:
    def work(mode: Mode) -> tuple[Tensor, Tensor, Tensor]:
        bounds = even_bounds(count, size)
        mine = slice(*bounds[mode.index])
        everything = torch.arange(float(count)) + mode.index
        mode.reduce_scatter(everything, bounds, Reduction("SUM"))
        gathered = torch.full((count,), -1.0)
        gathered[mine] = everything[mine]
        mode.all_gather(gathered, bounds)
        reduced = torch.arange(float(count)) * (mode.index + 1)
        mode.all_reduce(reduced, Reduction("MAX"))
        spread = torch.full((5,), float(mode.index))
        mode.broadcast(spread, 1)
        mode.barrier()
        return gathered, reduced, spread

    for gathered, reduced, spread in together(list(stand_ins(size, HashStore())), work):
        assert torch.equal(gathered, torch.arange(float(count)) * size + sum(range(size)))
        assert torch.equal(reduced, torch.arange(float(count)) * size)
        assert torch.equal(spread, torch.ones(5))


def on_devices(layout: Layout, inside: dict[int, Callable[[], Nccl]], *, by_hosts: bool) -> list[Any]:
    """One a rank: rings within hosts and between them, and NCCL's stand-in where there is one."""
    within = {ranks: ring_makers(len(ranks)) for ranks in layout.hosts if len(ranks) > 1}
    several = len(layout.hosts) > 1
    between = {piece: ring_makers(len(layout.hosts)) for piece in range(layout.slices) if several}

    def maker(rank: int) -> Callable[[], Closing]:
        host, ranks = layout.host_of(rank), layout.locals_of(rank)

        def make() -> Closing:
            local = within[ranks][ranks.index(rank)]() if len(ranks) > 1 else None
            across: Any = {piece: between[piece][host]() for piece in layout.owned(rank) if several}
            hierarchy = Hierarchy(layout, rank, local, across)
            nccl = inside[rank]() if rank in inside else None
            return Closing(hierarchy, PinnedStaging(SlowLift()), nccl, by_hosts=by_hosts)

        return make

    return [maker(rank) for rank in range(layout.size)]


class Closing(OnDevice):
    def close(self) -> None:
        super().close()
        self._hierarchy.close()


def everything(on_device: Any) -> list[Tensor]:
    rank, size = on_device._hierarchy.rank, on_device._hierarchy.layout.size
    reduced = torch.arange(5003.0) + rank
    on_device.all_reduce(reduced, Reduction("SUM"))
    bounds = bounds_of([1000 + peer for peer in range(size)])
    mine = slice(*bounds[rank])
    scattered = torch.arange(float(bounds[-1][1]))
    on_device.reduce_scatter(scattered, bounds, Reduction("SUM"))
    gathered = torch.full_like(scattered, -1.0)
    gathered[mine] = scattered[mine]
    on_device.all_gather(gathered, bounds)
    spread = torch.full((3000,), float(rank))
    on_device.broadcast(spread, 1)
    return [reduced, gathered, spread]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("layout", [TWO_HOSTS, Layout(((0, 2), (1, 3))), Layout(((0, 1), (2,))), ONE_HOST])
@pytest.mark.parametrize("reach", ["nobody", "hosts", "all"])
def test_all_ways_give_the_same(layout: Layout, reach: str) -> None:
    store, size = HashStore(), layout.size
    groups = {"nobody": (), "hosts": layout.hosts, "all": (tuple(range(size)),)}[reach]
    inside = {
        rank: maker
        for ranks in groups
        if len(ranks) > 1
        for rank, maker in zip(ranks, stand_ins(len(ranks), store, str(ranks)), strict=True)
    }
    by_hosts = reach == "hosts" and len(layout.hosts) > 1
    for reduced, gathered, spread in together(on_devices(layout, inside, by_hosts=by_hosts), everything):
        assert torch.equal(reduced, torch.arange(5003.0) * size + sum(range(size)))
        assert torch.equal(gathered, torch.arange(float(len(gathered))) * size)
        assert torch.equal(spread, torch.ones(3000))


def test_a_peer_that_died_is_seen_while_waiting() -> None:
    class Never:
        def is_completed(self) -> bool:
            return False

    class Group:
        aborted = False

        def barrier(self) -> Never:
            return Never()

        def abort(self) -> None:
            self.aborted = True

    group = Group()
    mode = Nccl(group, 0, 2, timeout_s=TIMEOUT_S, lost=lambda: 1)
    with pytest.raises(PeerError, match="peer 1 died"):
        mode.barrier()
    assert group.aborted
