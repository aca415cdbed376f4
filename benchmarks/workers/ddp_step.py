"""One step of DistributedDataParallel after another, on ours and on Gloo in turns; compute is a fixed amount of work.

    weft run -n 2 benchmarks/workers/ddp_step.py STEPS COMPUTE_MS

25 layers of a million parameters each. A layer's forward takes a third of its compute, its backward two thirds: so many
small matrix products, counted once on an idle core. Prints the median step, each taken on its slowest rank.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

LAYERS, PARAMETERS = 25, 1_000_000


class Work(torch.autograd.Function):
    """Stands for a layer: costs what was asked for, and has a gradient for every parameter."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, gradient: Tensor, products: int) -> Tensor:
        ctx.products, ctx.gradient = products, gradient
        compute(products)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        compute(2 * ctx.products)
        return gradients[0], ctx.gradient, None, None


class Layer(torch.nn.Module):
    def __init__(self, gradient: Tensor, products: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(PARAMETERS))
        self.gradient = gradient  # made once: new memory for each would cost more than the compute
        self.products = products

    def forward(self, values: Tensor) -> Tensor:
        out: Tensor = Work.apply(values, self.weight, self.gradient, self.products)  # type: ignore[no-untyped-call]
        return out


_LEFT, _RIGHT = torch.rand(64, 64), torch.rand(64, 64)


def compute(products: int) -> None:
    for _ in range(products):
        torch.mm(_LEFT, _RIGHT)


def products_in(milliseconds: float) -> int:
    """How many matrix products take so long; the same number for every rank."""
    compute(1000)
    began = time.thread_time()
    compute(1000)
    each_ms = time.thread_time() - began  # of a thousand in s is of one in ms
    count = torch.tensor([max(1.0, milliseconds / each_ms)])
    dist.broadcast(count, 0)
    return int(count)


def step(model: torch.nn.Module, token: Tensor) -> float:
    """One step on all ranks; how long it took the slowest."""
    dist.all_reduce(token)
    began = time.perf_counter()
    model(torch.ones(1, requires_grad=True)).sum().backward()
    took = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took)


def main() -> None:
    torch.set_num_threads(1)
    steps, compute_ms = int(sys.argv[1]), float(sys.argv[2])
    dist.init_process_group("gloo")
    products = products_in(compute_ms / LAYERS / 3)
    rank, world = dist.get_rank(), dist.get_world_size()
    gradient = torch.full((PARAMETERS,), 1.0 + rank)
    models: dict[str, torch.nn.Module] = {}
    for name in ("weft", "gloo"):
        layers = torch.nn.Sequential(*(Layer(gradient, products) for _ in range(LAYERS)))
        models[name] = DistributedDataParallel(
            layers, process_group=dist.new_group(backend=name), gradient_as_bucket_view=True
        )
    models["alone"] = torch.nn.Sequential(*(Layer(gradient, products) for _ in range(LAYERS)))
    token = torch.zeros(1)
    times: dict[str, list[float]] = {name: [] for name in models}
    for number in range(steps + 2):  # DDP makes its buckets anew after the first
        for name, model in models.items():
            model.zero_grad(set_to_none=False)
            took = step(model, token)
            if number > 1:
                times[name].append(took)
    for name in ("weft", "gloo"):
        for parameter in models[name].parameters():
            assert parameter.grad is not None
            assert torch.equal(parameter.grad, torch.full_like(parameter, (1 + world) / 2)), name
    if rank == 0:
        print(json.dumps({name: statistics.median(values) for name, values in times.items()}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
