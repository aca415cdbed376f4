"""Collectives that only copy: broadcast, gathers, scatter, all-to-all, objects, barrier."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from tests.collectives.workers.contract import EVERY_TYPE, Contract

contract = Contract()
rank, size = contract.rank, contract.size
Group = dist.ProcessGroup

# -- broadcast -----------------------------------------------------------------------------------------------------


def broadcast(group: Group, root: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    tensor = contract.values(*shape, dtype=dtype)
    dist.broadcast(tensor, root, group=group)
    return tensor


for root in range(size):
    for shape in ((), (0,), (1,), (13,), (3, 5), (5_000_011,) if root == size - 1 else (70_001,)):
        contract.check(
            f"broadcast from {root} {shape}",
            lambda group, root=root, shape=shape: broadcast(group, root, *shape),
            contract.values(*shape, rank=root),
            same=True,
        )
for dtype in EVERY_TYPE:
    contract.check(
        f"broadcast {dtype}",
        lambda group, dtype=dtype: broadcast(group, size - 1, 31, dtype=dtype),
        contract.values(31, dtype=dtype, rank=size - 1),
        same=True,
    )


def broadcast_view(group: Group) -> torch.Tensor:
    whole = torch.zeros(6, 8)
    whole.t()[1:7:2] = contract.values(3, 6)
    dist.broadcast(whole.t()[1:7:2], 0, group=group)
    return whole


def expected_view() -> torch.Tensor:
    whole = torch.zeros(6, 8)
    whole.t()[1:7:2] = contract.values(3, 6, rank=0)
    return whole


contract.check("broadcast of a view", broadcast_view, expected_view(), same=True)

# -- gathers -------------------------------------------------------------------------------------------------------


def gathered(group: Group, *shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    parts = [torch.zeros(shape, dtype=dtype) for _ in range(size)]
    dist.all_gather(parts, contract.values(*shape, dtype=dtype), group=group)
    return parts


def gathered_tensor(group: Group, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    whole = torch.zeros(size * shape[0], *shape[1:], dtype=dtype)
    dist.all_gather_into_tensor(whole, contract.values(*shape, dtype=dtype), group=group)
    return whole


def gathered_stacked(group: Group) -> torch.Tensor:
    whole = torch.zeros(size, 3, 2)
    dist.all_gather_into_tensor(whole, contract.values(3, 2), group=group)
    return whole


for dtype in EVERY_TYPE:
    everyone = contract.everyone(7, dtype=dtype)
    contract.check(
        f"all_gather {dtype}", lambda group, dtype=dtype: gathered(group, 7, dtype=dtype), everyone
    )
    contract.check(
        f"all_gather_into_tensor {dtype}",
        lambda group, dtype=dtype: gathered_tensor(group, 7, dtype=dtype),
        torch.cat(everyone),
        same=True,
    )
for shape in ((), (0,), (1,), (3, 5), (1_500_007,)):
    contract.check(
        f"all_gather {shape}", lambda group, shape=shape: gathered(group, *shape), contract.everyone(*shape)
    )
for shape in ((0,), (1,), (3, 5), (70_001,)):
    contract.check(
        f"all_gather_into_tensor {shape}",
        lambda group, shape=shape: gathered_tensor(group, *shape),
        torch.cat(contract.everyone(*shape)),
    )
contract.check("all_gather_into_tensor, stacked", gathered_stacked, torch.stack(contract.everyone(3, 2)))


def gathered_uneven(group: Group, step: int) -> list[torch.Tensor]:
    parts = [torch.zeros(step * peer, dtype=torch.int64) for peer in range(size)]  # rank 0 brings nothing
    dist.all_gather(parts, contract.values(step * rank, dtype=torch.int64), group=group)
    return parts


for step in (3, 300_001):
    contract.check(
        f"all_gather uneven {step}",
        lambda group, step=step: gathered_uneven(group, step),
        [contract.values(step * peer, dtype=torch.int64, rank=peer) for peer in range(size)],
    )


def gathered_to_views(group: Group) -> torch.Tensor:
    whole = torch.zeros(5, size)
    dist.all_gather(list(whole.t().unbind()), contract.values(5), group=group)
    return whole


contract.check("all_gather into views", gathered_to_views, torch.stack(contract.everyone(5), 1))


def gathered_at(group: Group, root: int, dtype: torch.dtype, *shape: int) -> list[torch.Tensor]:
    parts = [torch.zeros(shape, dtype=dtype) for _ in range(size)] if rank == root else None
    dist.gather(contract.values(*shape, dtype=dtype), parts, root, group=group)
    return parts or []


def scattered(group: Group, root: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    output = torch.zeros(shape, dtype=dtype)
    parts = contract.everyone(*shape, dtype=dtype) if rank == root else None
    dist.scatter(output, parts, root, group=group)
    return output


for root in range(size):
    for shape in ((), (0,), (1,), (3, 5), (40_001,)):
        contract.check(
            f"gather at {root} {shape}",
            lambda group, root=root, shape=shape: gathered_at(group, root, torch.float32, *shape),
            contract.everyone(*shape) if rank == root else [],
        )
        contract.check(
            f"scatter from {root} {shape}",
            lambda group, root=root, shape=shape: scattered(group, root, torch.float32, *shape),
            contract.values(*shape),
        )
for dtype in EVERY_TYPE:
    contract.check(
        f"gather {dtype}",
        lambda group, dtype=dtype: gathered_at(group, 0, dtype, 5),
        contract.everyone(5, dtype=dtype) if rank == 0 else [],
    )
    contract.check(
        f"scatter {dtype}",
        lambda group, dtype=dtype: scattered(group, 0, dtype, 5),
        contract.values(5, dtype=dtype),
    )

# -- all to all: rank i sends to rank j the rows that `sent(i, j)` says --------------------------------------------


def rows(sender: int, receiver: int) -> int:
    return (sender + 2 * receiver) % 4


def parcel(sender: int, receiver: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(count * 3).reshape(count, 3) % 5 + 10 * sender + receiver).to(dtype)


def exchanged(group: Group, dtype: torch.dtype, *, even: bool, listed: bool) -> list[torch.Tensor]:
    def count(sender: int, receiver: int) -> int:
        return 2 if even else rows(sender, receiver)

    inputs = [parcel(rank, peer, count(rank, peer), dtype) for peer in range(size)]
    outputs = [torch.zeros(count(peer, rank), 3, dtype=dtype) for peer in range(size)]
    if listed:
        dist.all_to_all(outputs, inputs, group=group)
        return outputs
    splits_in, splits_out = ([len(tensor) for tensor in side] for side in (inputs, outputs))
    whole = torch.cat(outputs)
    if even:
        dist.all_to_all_single(whole, torch.cat(inputs), group=group)
    else:
        dist.all_to_all_single(whole, torch.cat(inputs), splits_out, splits_in, group=group)
    return list(torch.split(whole, splits_out))


for dtype in EVERY_TYPE:
    for even in (True, False):
        expected = [parcel(peer, rank, 2 if even else rows(peer, rank), dtype) for peer in range(size)]
        for listed in (True, False):
            if dtype.is_complex and not even and not listed:
                continue  # torch turns the tensor to pairs of numbers
            contract.check(
                f"all_to_all {dtype} even={even} listed={listed}",
                lambda group, dtype=dtype, even=even, listed=listed: exchanged(
                    group, dtype, even=even, listed=listed
                ),
                expected,
            )


def transposed(group: Group) -> torch.Tensor:
    output = torch.zeros(4, 2 * size)
    dist.all_to_all_single(output.t(), contract.values(4, 2 * size).t(), group=group)
    return output


contract.check(
    "all_to_all_single of views",
    transposed,
    torch.cat([part[:, 2 * rank : 2 * rank + 2] for part in contract.everyone(4, 2 * size)], 1),
)

# -- objects and meetings ------------------------------------------------------------------------------------------


def objects(group: Group) -> list[Any]:
    everyone: list[Any] = [None] * size
    dist.all_gather_object(everyone, {"rank": rank, "more": "x" * (rank * 1000)}, group=group)
    told: list[Any] = [f"from {rank}", rank]
    dist.broadcast_object_list(told, size - 1, group=group)
    at_root: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object(("part", rank), at_root, 0, group=group)
    mine: list[Any] = [None]
    dist.scatter_object_list(
        mine, [f"for {peer}" for peer in range(size)] if rank == 0 else None, 0, group=group
    )
    dist.barrier(group=group)
    return [everyone, told, at_root, mine]


contract.check("objects", objects)
contract.refuses(
    "too few tensors", lambda group: dist.all_gather([torch.zeros(1)], torch.zeros(1)), f"{size} tensors"
)
contract.refuses(
    "tensors of two types",
    lambda group: dist.all_gather([torch.zeros(1, dtype=torch.int32)] * size, torch.zeros(1)),
    "",
)
contract.refuses(
    "a whole of another size",
    lambda group: dist.all_gather_into_tensor(torch.zeros(1 + 3 * size), torch.zeros(3)),
    f"{size} x 3 elements",
)
contract.refuses(
    "splits that do not add up",
    lambda group: dist.all_to_all_single(torch.zeros(size), torch.zeros(size), [2] * size, [1] * size),
    f"must make {size} rows",
)
contract.check("monitored_barrier", dist.monitored_barrier)
contract.check("the group still works", lambda group: gathered(group, 3))
contract.end()
