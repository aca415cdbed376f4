"""A worker of benchmarks/plan.py: records a step, plans, runs ways and prints what was predicted and measured.

Compute is a calibrated wait that leaves the core to others: eight workers share the cores of one machine. Parameters,
gradients, the optimizer and all that is sent are real.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import weft
from weft.parallel import Way, apply, choose, micro_batch, predict, record_step
from weft.parallel.applying.groups import hosts_of_ranks
from weft.parallel.recording.here import measured_here


class _Wait(torch.autograd.Function):
    """Takes a known time, forward and twice as long backward."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, weight: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds, ctx.like = seconds, weight
        time.sleep(seconds)
        return rows + 1

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        time.sleep(2 * ctx.seconds)
        return gradient, torch.ones_like(ctx.like), None


class WaitingLayer(nn.Module):
    """A layer of so many bytes that computes for so many seconds."""

    def __init__(self, nbytes: int, seconds: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(nbytes // 4096, 1024))
        self.seconds = seconds

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        weight: Any = self.weight
        return _Wait.apply(rows, weight, self.seconds)  # type: ignore[no-any-return, no-untyped-call]


def make_net(case: dict[str, Any]) -> nn.Module:
    count = case["layers"]
    return nn.Sequential(
        *(WaitingLayer(case["bytes"] // count, case["compute_s"] / 3 / count) for _ in range(count))
    )


def run_step(model: nn.Module, optimizer: torch.optim.Optimizer, passes: int, planned: bool) -> float:
    dist.barrier()
    began = time.perf_counter()
    optimizer.zero_grad()
    for number in range(passes):
        rows = torch.zeros(1, requires_grad=True)
        if planned:
            with micro_batch(model, last=number == passes - 1):
                model(rows).sum().backward()
        else:
            model(rows).sum().backward()
    optimizer.step()
    seconds = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return float(seconds)


def measured(case: dict[str, Any], way: Way | str, steps: int, alone_in: int = 0) -> list[float]:
    """Time some steps of a way, of FSDP2 as it comes on Gloo, or of workers that exchange nothing.

    Those compute in `alone_in` passes, if it is given.
    """
    net = make_net(case)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    model, passes = net, case["passes"]
    if way == "gloo":
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(dist.new_group(backend="gloo"), "cpu", mesh_dim_names=("shard",))
        for layer in net:  # type: ignore[attr-defined]
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    elif isinstance(way, Way):
        model, optimizer = apply(net, optimizer, way)  # type: ignore[assignment]
        passes = way.passes or passes
    elif alone_in:
        passes = alone_in
    for layer in net.modules():
        if isinstance(layer, WaitingLayer):
            layer.seconds *= case["passes"] // passes  # the same samples in fewer passes
    found = [run_step(model, optimizer, passes, isinstance(way, Way)) for _ in range(steps + 1)]
    return found[1:]


def main() -> None:
    asked = json.loads(sys.argv[1])
    weft.init()
    rank = dist.get_rank()
    cluster = measured_here(hosts_of_ranks())
    for case in asked["cases"]:
        step = record_step(
            make_net(case), [torch.zeros(1, requires_grad=True)], passes=case["passes"], repeats=2
        )
        step = replace(step, optimizer_bytes=2 * step.parameter_bytes)
        facts = replace(cluster, device_bytes=case.get("budget", 0))
        chosen: list[Any] = [choose(step, facts).best]
        dist.broadcast_object_list(chosen)
        ways: dict[str, Way | str] = {}
        for name, given in case["ways"].items():
            ways[name] = {"chosen": chosen[0].way, "gloo": name, "alone": name}.get(name) or Way(**given)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(case.get("rounds", 1)):  # interleaved
            for name, way in ways.items():
                if way != "gloo" or number == 0:  # it takes minutes
                    times[name] += measured(
                        case, way, 1 if way == "gloo" else case.get("steps", 2), chosen[0].way.passes
                    )
        for name, way in ways.items():
            found = statistics.median(times[name])
            predicted = predict(step, facts, way) if isinstance(way, Way) else None
            if rank == 0:
                data = {
                    "case": case["name"],
                    "name": name,
                    "way": {"gloo": "FSDP2 on Gloo", "alone": "nothing exchanged"}.get(str(way), str(way)),
                    "kind": asdict(way) if isinstance(way, Way) else None,
                    "measured_s": found,
                    "compute_s": case["passes"] * case["compute_s"],
                    "predicted_s": None if predicted is None else predicted.step_s,
                }
                print("weft-figure " + json.dumps(data), flush=True)
    weft.shutdown()


main()
