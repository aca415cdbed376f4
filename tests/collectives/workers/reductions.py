"""all_reduce, reduce and reduce_scatter: operators, types, shapes."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
from tests.collectives.workers.contract import COMPLEX, EVERY_TYPE, FLOATS, INTEGERS, Contract
from torch._C._distributed_c10d import _make_nccl_premul_sum
from torch.distributed import ReduceOp

contract = Contract()
size = contract.size
OPERATORS = {
    name: getattr(ReduceOp, name) for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
}


def all_reduced(group: dist.ProcessGroup, tensor: torch.Tensor, op: Any = ReduceOp.SUM) -> torch.Tensor:
    dist.all_reduce(tensor, op, group=group)
    return tensor


# -- operators and types, small (all ranks reduce everything) and large (each a part) ------------------------------

for dtype in EVERY_TYPE:
    for name, op in OPERATORS.items():
        if name.startswith("B") and (dtype in FLOATS or dtype.is_complex):
            continue
        if dtype.is_complex and name != "SUM":
            continue
        for count in (13, 20_011):
            expected = None
            if dtype is torch.bool:  # Gloo adds truth values as bytes, which leaves no truth value behind
                everyone = torch.stack(contract.everyone(count, dtype=dtype))
                reduced = {"SUM": torch.any, "MAX": torch.any, "BOR": torch.any}.get(name, torch.all)
                expected = reduced(everyone, 0)
                if name == "BXOR":
                    expected = everyone.sum(0) % 2 == 1
            contract.check(
                f"all_reduce {name} {dtype} {count}",
                lambda group, dtype=dtype, op=op, count=count: all_reduced(
                    group, contract.values(count, dtype=dtype), op
                ),
                expected,
                same=True,
            )

for dtype in (*FLOATS, *COMPLEX, torch.int32):
    for count in (13, 20_011):
        total = functools.reduce(torch.add, contract.everyone(count, dtype=dtype))
        mean = total / size if dtype != torch.int32 else total.div(size, rounding_mode="trunc")
        contract.check(
            f"all_reduce AVG {dtype} {count}",
            lambda group, dtype=dtype, count=count: all_reduced(
                group, contract.values(count, dtype=dtype), ReduceOp.AVG
            ),
            mean,
            same=True,
        )

for factor in (0.25, torch.tensor([0.5])):
    for dtype in FLOATS:
        total = functools.reduce(torch.add, [part * factor for part in contract.everyone(99, dtype=dtype)])
        contract.check(
            f"all_reduce PREMUL_SUM {factor} {dtype}",
            lambda group, dtype=dtype, factor=factor: all_reduced(
                group, contract.values(99, dtype=dtype), _make_nccl_premul_sum(factor)
            ),
            total.to(dtype),
            same=True,
        )

# -- shapes --------------------------------------------------------------------------------------------------------

contract.check("all_reduce of nothing", lambda group: all_reduced(group, torch.empty(0)))
contract.check("all_reduce of nothing, 2-d", lambda group: all_reduced(group, torch.empty(3, 0)))
contract.check("all_reduce 0-d", lambda group: all_reduced(group, contract.values().clone()), same=True)
for count in (1, 2, 3, 1021, 8191, 8192, 8193, 262_147, 3_000_017):
    contract.check(
        f"all_reduce {count}",
        lambda group, count=count: all_reduced(group, contract.values(count)),
        same=True,
    )
contract.check("all_reduce 3-d", lambda group: all_reduced(group, contract.values(3, 5, 7)), same=True)


def through_a_view(group: dist.ProcessGroup) -> torch.Tensor:
    whole: torch.Tensor = contract.values(40, 60)
    dist.all_reduce(whole.t()[3:50:3], group=group)
    return whole


def non_contiguous(group: dist.ProcessGroup) -> torch.Tensor:
    """Only the view is reduced, the rest stays."""
    whole, part = contract.values(40, 60), contract.values(40, 60).t()[3:50:3].contiguous()
    dist.all_reduce(part, group=contract.gloo)
    whole.t()[3:50:3] = part
    return whole


contract.check("all_reduce of a view", through_a_view, non_contiguous(contract.gloo))
contract.check(
    "all_reduce channels_last",
    lambda group: all_reduced(group, contract.values(2, 3, 4, 5).to(memory_format=torch.channels_last)),
    all_reduced(contract.gloo, contract.values(2, 3, 4, 5)),
)
contract.check(
    "all_reduce of a parameter",
    lambda group: all_reduced(group, torch.nn.Parameter(contract.values(5)).data),
)


def inferring(group: dist.ProcessGroup, *, waiting: bool) -> torch.Tensor:
    """By the caller's thread, or by the group's own, which knows nothing of the caller's inference mode."""
    with torch.inference_mode():
        tensor = contract.values(40, 60).clone()
        work = dist.all_reduce(tensor, group=group, async_op=True)
        assert work is not None
        while not (waiting or work.is_completed()):
            pass
        work.wait()
        return tensor + 0


for waiting in (True, False):
    contract.check(
        f"all_reduce in inference mode, {waiting=}",
        lambda group, waiting=waiting: inferring(group, waiting=waiting),
        all_reduced(contract.gloo, contract.values(40, 60)),
    )


def sparse(group: dist.ProcessGroup) -> torch.Tensor:
    dense = contract.values(6, 2)
    dense[contract.rank :: 2] = 0
    tensor = dense.to_sparse()
    dist.all_reduce(tensor, group=group)
    return tensor.to_dense()


contract.check("all_reduce sparse", sparse, same=True)

# -- to one rank ---------------------------------------------------------------------------------------------------


def reduced_to(
    group: dist.ProcessGroup, root: int, count: int, op: Any, dtype: torch.dtype
) -> list[torch.Tensor]:
    tensor = contract.values(count, dtype=dtype)
    dist.reduce(tensor, root, op, group=group)
    return [tensor] if contract.rank == root else []


for root in range(size):
    for count in (0, 1, 7, 30_001):
        contract.check(
            f"reduce to {root} {count}",
            lambda group, root=root, count=count: reduced_to(group, root, count, ReduceOp.SUM, torch.float32),
        )
contract.check("reduce MAX int64", lambda group: reduced_to(group, size - 1, 9, ReduceOp.MAX, torch.int64))

# -- a part to each ------------------------------------------------------------------------------------------------


def scattered_list(group: dist.ProcessGroup, dtype: torch.dtype, sizes: list[int], op: Any) -> torch.Tensor:
    output = torch.zeros(sizes[contract.rank], dtype=dtype)
    dist.reduce_scatter(output, [contract.values(count, dtype=dtype) for count in sizes], op, group=group)
    return output


def scattered(group: dist.ProcessGroup, dtype: torch.dtype, rows: int, op: Any) -> torch.Tensor:
    output = torch.zeros(rows, 3, dtype=dtype)
    dist.reduce_scatter_tensor(output, contract.values(rows * size, 3, dtype=dtype), op, group=group)
    return output


for dtype in (*FLOATS, *INTEGERS):
    for rows in (1, 3, 7001):
        whole = functools.reduce(torch.add, contract.everyone(rows * size, 3, dtype=dtype))
        contract.check(
            f"reduce_scatter_tensor {dtype} {rows}",
            lambda group, dtype=dtype, rows=rows: scattered(group, dtype, rows, ReduceOp.SUM),
            whole.chunk(size)[contract.rank],
        )
    contract.check(
        f"reduce_scatter {dtype}",
        lambda group, dtype=dtype: scattered_list(group, dtype, [5] * size, ReduceOp.MAX),
        functools.reduce(torch.maximum, contract.everyone(5, dtype=dtype)),
    )
contract.check(
    "reduce_scatter_tensor AVG",
    lambda group: scattered(group, torch.float32, 4, ReduceOp.AVG),
    torch.stack(contract.everyone(4 * size, 3)).mean(0).chunk(size)[contract.rank],
)
uneven = [3 * rank + 1 for rank in range(size)]
contract.check(
    "reduce_scatter uneven",
    lambda group: scattered_list(group, torch.float32, uneven, ReduceOp.SUM),
    functools.reduce(torch.add, contract.everyone(uneven[contract.rank])),
)
contract.check(
    "reduce_scatter_tensor of nothing",
    lambda group: scattered(group, torch.float32, 0, ReduceOp.SUM),
    torch.zeros(0, 3),
)

# -- what makes no sense is refused before anyone waits --------------------------------------------------------------

contract.refuses(
    "BAND of floats",
    lambda group: all_reduced(group, contract.values(4), ReduceOp.BAND),
    "BAND must have integers",
)
contract.refuses(
    "a split that does not divide",
    lambda group: dist.reduce_scatter_tensor(torch.zeros(3), torch.zeros(3 * size + 1)),
    "",
)
contract.check("the group still works", lambda group: all_reduced(group, contract.values(4)), same=True)
contract.end()
