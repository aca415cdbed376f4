"""A worker of benchmarks/plan.py: records a step, plans, runs ways and prints what was predicted and measured.

Compute is a calibrated wait that leaves the core to others: eight workers share the cores of one machine. Parameters,
gradients, the optimizer and all that is sent are real.
"""

from __future__ import annotations

import json
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


def measured(case: dict[str, Any], way: Way | None, steps: int) -> list[float]:
    """Time some steps; without a way, of FSDP2 as it comes, on Gloo."""
    net = make_net(case)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    model = net
    if way is None:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(dist.new_group(backend="gloo"), "cpu", mesh_dim_names=("shard",))
        for layer in net:  # type: ignore[attr-defined]
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
        passes = case["passes"]
    else:
        model, optimizer = apply(net, optimizer, way)  # type: ignore[assignment]
        passes = way.passes or case["passes"]
        if passes != case["passes"]:  # the same samples in fewer passes
            times = case["passes"] // passes
            for layer in net.modules():
                if isinstance(layer, WaitingLayer):
                    layer.seconds *= times
    found = [run_step(model, optimizer, passes, way is not None) for _ in range(steps + 1)]
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
        ways: dict[str, Way | None] = {}
        for name in case["ways"]:
            ways[name] = (
                {"chosen": chosen[0].way, "gloo": None}.get(name)
                if name in ("chosen", "gloo")
                else Way(**case["ways"][name])
            )
        rounds = case.get("rounds", 1)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):  # interleaved
            for name, way in ways.items():
                times[name] += measured(case, way, 1 if way is None else case.get("steps", 2))
        for name, way in ways.items():
            found = sorted(times[name])[len(times[name]) // 2]
            predicted = None if way is None else predict(step, facts, way)
            if rank == 0:
                data = {
                    "case": case["name"],
                    "name": name,
                    "way": "FSDP2 on Gloo" if way is None else str(way),
                    "kind": None if way is None else asdict(way),
                    "measured_s": found,
                    "compute_s": case["passes"] * case["compute_s"],
                    "predicted_s": None if predicted is None else predicted.step_s,
                }
                print("weft-figure " + json.dumps(data), flush=True)
    weft.shutdown()


main()
