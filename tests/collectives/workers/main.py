"""The main collectives once each, for worlds too large to try everything in."""

from __future__ import annotations

import torch
import torch.distributed as dist
from tests.collectives.workers.contract import Contract, Group

contract = Contract()
rank, size = contract.rank, contract.size


def all_reduced(group: Group, count: int, dtype: torch.dtype) -> torch.Tensor:
    tensor = contract.values(count, dtype=dtype)
    dist.all_reduce(tensor, group=group)
    return tensor


for dtype in (torch.float32, torch.int64):
    for count in (0, 1, 13, 9001, 300_007, 3_000_017):
        contract.check(
            f"all_reduce {dtype} {count}",
            lambda group, count=count, dtype=dtype: all_reduced(group, count, dtype),
            same=True,
        )


def copies(group: Group) -> list[torch.Tensor]:
    told, whole, output = contract.values(70_001), torch.zeros(size * 501), torch.zeros(501)
    dist.broadcast(told, size - 1, group=group)
    dist.all_gather_into_tensor(whole, contract.values(501), group=group)
    dist.reduce_scatter_tensor(output, contract.values(501 * size), group=group)
    exchanged = torch.zeros(size, 3)
    dist.all_to_all_single(exchanged, contract.values(size, 3), group=group)
    mine = torch.zeros(5)
    dist.scatter(mine, contract.everyone(5) if rank == 1 else None, 1, group=group)
    parts = [torch.zeros(5) for _ in range(size)] if rank == 2 else None
    dist.gather(mine, parts, 2, group=group)
    dist.barrier(group=group)
    came = torch.zeros(6)
    letters = [
        dist.P2POp(dist.isend, contract.values(6), (rank + 1) % size, group),
        dist.P2POp(dist.irecv, came, (rank - 1) % size, group),
    ]
    for work in dist.batch_isend_irecv(letters):
        work.wait()
    return [told, whole, output, exchanged, mine, came, *(parts or [])]


contract.check("copies", copies)

for step in (2, 3):
    rows = [dist.new_group(list(range(first, size, step))) for first in range(step)]
    mine = list(range(rank % step, size, step))
    contract.check(
        f"every {step}. rank",
        lambda _, rows=rows, step=step: all_reduced(rows[rank % step], 40_001, torch.float32),
        sum(contract.values(40_001, rank=peer) for peer in mine),
    )
contract.end()
