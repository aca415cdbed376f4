"""Point to point, coalesced and functional forms, works in flight, sub-groups, and both ends of a group's life."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from tests.collectives.workers.contract import Contract, Group
from torch.distributed.distributed_c10d import _coalescing_manager

contract = Contract()
rank, size = contract.rank, contract.size
left, right = (rank - 1) % size, (rank + 1) % size

# -- point to point ------------------------------------------------------------------------------------------------


def passed_on(group: Group, count: int, dtype: torch.dtype) -> torch.Tensor:
    came = torch.zeros(count, dtype=dtype)
    for turn in (0, 1):  # blocking, so not all at once
        if rank % 2 == turn:
            dist.send(contract.values(count, dtype=dtype), right, group=group)
        if left % 2 == turn or (left == 0 and size % 2 and turn == 0):
            dist.recv(came, left, group=group)
    return came


if size % 2 == 0:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        for count in (0, 1, 50_001):
            contract.check(
                f"send and recv {dtype} {count}",
                lambda group, count=count, dtype=dtype: passed_on(group, count, dtype),
                contract.values(count, dtype=dtype, rank=left),
            )


def crossed(group: Group) -> list[torch.Tensor]:
    """Everyone to everyone at once, out of memory that is not flat, into such memory; told apart by tags."""
    came = torch.zeros(3, size)
    works = []
    for peer in range(size):
        if peer != rank:
            works.append(dist.isend(contract.values(2, 3).t()[:, 0], peer, group=group, tag=peer))
            works.append(dist.irecv(came[:, peer], peer, group=group, tag=rank))
    for work in reversed(works):
        assert work is not None
        work.wait()
    return [came[:, peer] for peer in range(size) if peer != rank]


contract.check(
    "isend and irecv of views",
    crossed,
    [contract.values(2, 3, rank=peer)[0] for peer in range(size) if peer != rank],
)


def batch(group: Group) -> torch.Tensor:
    came = torch.zeros(100)
    ops = [
        dist.P2POp(dist.irecv, came, left, group),
        dist.P2POp(dist.isend, contract.values(100), right, group),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return came


contract.check("batch_isend_irecv", batch, contract.values(100, rank=left))


def from_anyone(group: Group) -> list[Any]:
    came = {}
    if rank:
        dist.send(contract.values(4), 0, group=group)
    else:
        for _ in range(size - 1):
            tensor = torch.zeros(4)
            sender = dist.recv(tensor, group=group)
            came[sender] = tensor
    dist.barrier(
        group=group
    )  # or the next round of a quick rank would be taken for this one's of a slow rank
    return [sorted(came), [came[peer] for peer in sorted(came)]]


contract.check("recv from anyone", from_anyone)

# -- coalesced and functional --------------------------------------------------------------------------------------


def coalesced(group: Group) -> list[Any]:
    tensors = [contract.values(5), contract.values(3, 3)]
    dist.all_reduce_coalesced(tensors, group=group)
    inputs, whole = contract.values(4), torch.zeros(4 * size)
    shards = [torch.zeros(2), torch.zeros(3)]
    more = [contract.values(6), contract.values(7)]
    with _coalescing_manager(group):
        for tensor in more:
            dist.all_reduce(tensor, group=group)
    with _coalescing_manager(group, async_ops=True) as works:
        dist.all_gather_into_tensor(whole, inputs, group=group)
    works.wait()
    with _coalescing_manager(group):
        for shard in shards:
            dist.reduce_scatter_tensor(shard, contract.values(len(shard) * size), group=group)
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [contract.values(2), contract.values(3)], group=group)
    return [tensors, more, whole, shards, lists]


contract.check("coalesced", coalesced)


def functionally(group: Group) -> list[torch.Tensor]:
    values = contract.values(2 * size, 3)
    results = [
        functional.all_reduce(values, "sum", group),
        functional.all_gather_tensor(values, 0, group),
        functional.all_gather_tensor(values, 1, group),
        functional.reduce_scatter_tensor(values, "sum", 0, group),
        functional.broadcast(values, size - 1, group),
        functional.all_to_all_single(values, None, None, group),
        functional.permute_tensor(values.view(-1), [*range(1, size), 0], group),
        *functional.all_reduce_coalesced([values, values * 2], "sum", group),
        *functional.all_gather_into_tensor_coalesced([values, values * 2], group),
        *functional.reduce_scatter_tensor_coalesced([values, values * 2], "sum", [0, 0], group),
    ]
    return [functional.wait_tensor(result) for result in results]  # type: ignore[no-untyped-call]


contract.check("functional", functionally)


def spelled(group: Any, names: tuple[str, ...]) -> list[torch.Tensor]:
    """As the torch of before 2.13 calls them, and as later ones do."""
    gather, scatter, exchange, gathers, scatters = names
    whole, part, exchanged = torch.zeros(3 * size), torch.zeros(3), torch.zeros(2 * size)
    reduce_options, exchange_options = dist.ReduceScatterOptions(), dist.AllToAllOptions()
    getattr(group, gather)(whole, contract.values(3)).wait()
    getattr(group, scatter)(part, contract.values(3 * size), reduce_options).wait()
    getattr(group, exchange)(exchanged, contract.values(2 * size), [], [], exchange_options).wait()
    wholes, parts = [torch.zeros(3 * size)], [torch.zeros(3)]
    getattr(group, gathers)(wholes, [contract.values(3)]).wait()
    getattr(group, scatters)(parts, [contract.values(3 * size)], reduce_options).wait()
    return [whole, part, exchanged, *wholes, *parts]


OLD = (
    "_allgather_base",
    "_reduce_scatter_base",
    "alltoall_base",
    "allgather_into_tensor_coalesced",
    "reduce_scatter_tensor_coalesced",
)
NEW = (
    "all_gather_single",
    "reduce_scatter_single",
    "all_to_all_single",
    "all_gather_single_coalesced",
    "reduce_scatter_single_coalesced",
)
contract.check("both spellings", lambda group: spelled(group, OLD), spelled(contract.weft, NEW))

# -- in flight -----------------------------------------------------------------------------------------------------


def in_flight(group: Group) -> list[Any]:
    tensors = [contract.values(count) for count in (3, 300_000, 1, 70_000, 5)]
    gathered = [torch.zeros(9) for _ in range(size)]
    works: list[Any] = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    works.append(dist.all_gather(gathered, contract.values(9), group=group, async_op=True))
    works.append(dist.barrier(group=group, async_op=True))
    works[3].wait()
    for work in reversed(works):
        work.wait()
        assert work.is_completed()
    return [tensors, gathered]


contract.check("works waited for in another order", in_flight)


def polled(group: Group) -> torch.Tensor:
    tensor = contract.values(10)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    assert work is not None
    deadline = time.monotonic() + 10
    while not work.is_completed():
        assert time.monotonic() < deadline
        time.sleep(0)
    return tensor


contract.check("is_completed without wait", polled)


def futures(group: Group) -> list[torch.Tensor]:
    work = dist.all_reduce(contract.values(10), group=group, async_op=True)
    assert work is not None
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    later = dist.all_reduce(contract.values(20), group=group, async_op=True)
    assert later is not None
    return [doubled.wait(), later.get_future().wait()[0]]


contract.check("futures", futures)


def chained(group: Group) -> list[torch.Tensor]:
    """A callback that itself waits for a collective, as PowerSGD's does; several under way."""

    def again(future: Any) -> torch.Tensor:
        nested = dist.all_reduce(future.value()[0], group=group, async_op=True)
        assert nested is not None
        return nested.get_future().wait()[0]  # type: ignore[no-any-return]

    works = [dist.all_reduce(contract.values(10 + i), group=group, async_op=True) for i in range(3)]
    results = []
    for work in works:
        assert work is not None
        results.append(work.get_future().then(again).wait())
    return results


contract.check("a callback that waits", chained, [sum(contract.everyone(10 + i)) * size for i in range(3)])


def timed(group: Group) -> torch.Tensor:
    tensor = contract.values(10)
    if rank == 0:
        work = dist.all_reduce(tensor, group=group, async_op=True)
        assert work is not None
        try:
            work.wait(timedelta(seconds=0.05))
            raise AssertionError("the others have not come yet")
        except RuntimeError:
            dist.barrier(group=contract.gloo)
        work.wait()
    else:
        dist.barrier(group=contract.gloo)
        dist.all_reduce(tensor, group=group)
    return tensor


contract.check("a wait with a limit", timed, sum(contract.everyone(10)))


def aborted(_: Group) -> list[Any]:
    """A thread that waits for the others is let go, and they for it."""
    group = dist.new_group(timeout=timedelta(seconds=30))
    told: list[Any] = []
    values = torch.ones(10_000_000)  # more than the shared memory holds: nobody ends without the other
    if rank == 0:
        work = dist.all_reduce(values, group=group, async_op=True)
        assert work is not None
        group.abort()
    dist.barrier(group=contract.gloo)
    try:
        work.wait() if rank == 0 else dist.all_reduce(values, group=group)
    except RuntimeError as error:
        told.append("given up" in str(error) or "gave up" in str(error) or "aborted" in str(error))
    dist.destroy_process_group(group)
    return told


if os.environ.get("WEFT_MODE") == "shm":
    contract.check("abort", aborted, [True])


def from_threads(_: Group) -> list[torch.Tensor]:
    """Two groups used by two threads at once."""
    tensors = [contract.values(50_000), contract.values(50_000)]

    def work(tensor: torch.Tensor, group: Group) -> None:
        for _ in range(5):
            dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group)

    threads = [
        threading.Thread(target=work, args=(tensor, group))
        for tensor, group in zip(tensors, (contract.weft, second), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tensors


# -- sub-groups ----------------------------------------------------------------------------------------------------

second = dist.new_group(backend="weft")
contract.check(
    "two groups in two threads", from_threads, [torch.stack(contract.everyone(50_000)).amax(0)] * 2
)


def members(_: Group) -> list[Any]:
    results = []
    for ranks, group in subgroups:
        if rank in ranks:
            tensor = contract.values(7)
            dist.all_reduce(tensor, group=group)
            parts = [torch.zeros(2) for _ in ranks]
            dist.all_gather(parts, contract.values(2), group=group)
            told = contract.values(3)
            dist.broadcast(told, ranks[-1], group=group)
            results.append([tensor, parts, told])
    return results


def expected_members() -> list[Any]:
    def everyone(ranks: list[int], count: int) -> list[torch.Tensor]:
        return [contract.values(count, rank=peer) for peer in ranks]

    return [
        [sum(everyone(ranks, 7)), everyone(ranks, 2), contract.values(3, rank=ranks[-1])]
        for ranks, _ in subgroups
        if rank in ranks
    ]


sets = [
    [0],
    [size - 1, 0] if size > 1 else [0],
    list(range(size - 1)),
    list(range(1, size)),
    list(range(0, size, 2)),
]
subgroups = [(sorted(ranks), dist.new_group(ranks)) for ranks in sets]
contract.check("sub-groups", members, expected_members())
if size % 2 == 0:
    mine, _ = dist.new_subgroups(2)  # type: ignore[no-untyped-call]
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    contract.check(
        "new_subgroups",
        lambda _: (lambda tensor: (dist.all_reduce(tensor, group=mine), tensor)[1])(contract.values(4)),
        sum(contract.values(4, rank=peer) for peer in pair),
    )
contract.refuses("split_group", lambda _: dist.split_group(split_ranks=[[0], [1]]), "")

# -- the end, and a new beginning ------------------------------------------------------------------------------------


def entries(folder: str) -> int:
    return len(list(Path(folder).iterdir()))


def open_files() -> list[str]:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed by a thread meanwhile
            found.append(str(path.readlink()))
    return sorted(found)


def settled(condition: Any) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(condition())


def life(_: Group) -> list[torch.Tensor]:
    """A group made and destroyed again leaves nothing."""
    results = []
    before, threads, files = threading.active_count(), entries("/proc/self/task"), len(open_files())
    for _round in range(2):
        group = dist.new_group(backend="weft", timeout=timedelta(seconds=20))
        tensor = contract.values(100_000)
        work = dist.all_reduce(tensor, group=group, async_op=True)
        assert work is not None
        dist.all_reduce(tensor, group=group)
        results.append(tensor)
        dist.destroy_process_group(group)
        del work, group
    assert settled(lambda: threading.active_count() == before), threading.enumerate()
    assert settled(lambda: entries("/proc/self/task") <= threads), "threads are left"
    assert settled(lambda: len(open_files()) <= files), f"{files} files became {open_files()}"
    dist.barrier(group=contract.weft)  # the next group of the others would be connections to our store
    return results


contract.check("a group's life", life, [sum(contract.everyone(100_000)) * size] * 2)
contract.end()
