"""A worker of benchmarks/plan.py: records a step, plans, runs ways and prints what was predicted and measured.

Compute is a calibrated wait that leaves the core to others: eight workers share the cores of one machine, and each
takes its time whatever the others do. A case may ask for real compute instead. Parameters, gradients, the optimizer and
all that is sent are real.
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
from weft.parallel import ClusterFacts, RecordedStep, Way, apply, choose, micro_batch, predict
from weft.parallel.applying.groups import hosts_of_ranks
from weft.parallel.recording.here import measured_here, recorded_here


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
    """A layer of so many bytes in some tensors that computes for so many seconds."""

    def __init__(self, nbytes: int, seconds: float, tensors: int = 1) -> None:
        super().__init__()
        rows = max(1, nbytes // tensors // 4096)
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(rows, 1024)) for _ in range(tensors))
        self.seconds = seconds

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        each_s = self.seconds / len(self.weights)
        for weight in self.weights:
            rows = _Wait.apply(rows, weight, each_s)  # type: ignore[no-untyped-call]
        return rows


class TransformerBlock(nn.TransformerEncoderLayer):
    """A block that really computes."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 4, 4 * width, dropout=0.0, batch_first=True)


def make_net(case: dict[str, Any]) -> nn.Module:
    if width := case.get("width"):
        return nn.Sequential(*(TransformerBlock(width) for _ in range(case["layers"])))
    sizes = case.get("sizes") or [1] * case["layers"]  # of the layers, in proportion
    times = case.get("times") or [1] * len(sizes)
    return nn.Sequential(
        *(
            WaitingLayer(
                int(case["bytes"] * size / sum(sizes)),
                case["compute_s"] / 3 * seconds / sum(times),
                case.get("tensors", 1),
            )
            for size, seconds in zip(sizes, times, strict=True)
        )
    )


def make_rows(case: dict[str, Any], times: int = 1) -> torch.Tensor:
    """Return the input of a pass; `times` as large where a step has fewer passes."""
    if width := case.get("width"):
        return torch.randn(times * case["rows"], 16, width)
    return torch.zeros(1, requires_grad=True)


def run_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, rows: torch.Tensor, passes: int, planned: bool
) -> float:
    dist.barrier()
    began = time.perf_counter()
    optimizer.zero_grad()
    for number in range(passes):
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
    rows = make_rows(case, case["passes"] // passes)
    found = [run_step(model, optimizer, rows, passes, isinstance(way, Way)) for _ in range(steps + 1)]
    return found[1:]


def recorded(case: dict[str, Any], cluster: ClusterFacts) -> tuple[RecordedStep, ClusterFacts]:
    """Record a step of the case; what to predict it from."""
    net = make_net(case)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    step = recorded_here(net, [make_rows(case)], optimizer=optimizer, passes=case["passes"])
    facts = replace(cluster, device_bytes=case.get("budget", 0))
    return replace(step, optimizer_bytes=2 * step.parameter_bytes), facts


def chosen_way(step: RecordedStep, facts: ClusterFacts) -> Way:
    best: list[Any] = [choose(step, facts).best.way]
    dist.broadcast_object_list(best)
    way: Way = best[0]
    return way


def measured_case(case: dict[str, Any], cluster: ClusterFacts) -> list[dict[str, Any]]:
    """Record and time every way in turns; the rows of a case.

    Each round records and measures what the predictions are made from anew, so that both see the machine as it is then.
    """
    records = [recorded(case, cluster)]
    best = chosen_way(*records[0])
    given: dict[str, Way | str] = {
        name: {"chosen": best, "gloo": name, "alone": name}.get(name) or Way(**fields)
        for name, fields in case["ways"].items()
    }
    same = [name for name, way in given.items() if name != "chosen" and way == given.get("chosen")]
    times: dict[str, list[float]] = {name: [] for name in given if name != "chosen" or not same}
    for number in range(case.get("rounds", 1)):
        if number:
            records.append(recorded(case, measured_here(hosts_of_ranks())))
        for name, way in given.items():
            if name in times and (way != "gloo" or number == 0):  # which takes minutes
                steps = 1 if way == "gloo" else case.get("steps", 2)
                times[name] += measured(case, way, steps, best.passes)
    for name in same:
        times["chosen"] = times[name]
    return [row(case, name, way, times[name], records, same) for name, way in given.items()]


def row(
    case: dict[str, Any],
    name: str,
    way: Way | str,
    times: list[float],
    records: list[tuple[RecordedStep, ClusterFacts]],
    same: list[str],
) -> dict[str, Any]:
    predicted = [predict(step, facts, way).step_s for step, facts in records if isinstance(way, Way)]
    return {
        "case": case["name"],
        "name": name,
        "way": {"gloo": "FSDP2 on Gloo", "alone": "nothing exchanged"}.get(str(way), str(way)),
        "kind": asdict(way) if isinstance(way, Way) else None,
        "same": name == "chosen" and ", ".join(same),  # it was measured under that name
        "measured_s": statistics.median(times),
        "all_s": times,
        "compute_s": statistics.median(step.compute_s for step, _ in records),
        "predicted_s": statistics.median(predicted) if predicted else None,
        "all_predicted_s": predicted,
        "records": [{"step": asdict(step), "cluster": asdict(facts)} for step, facts in records],
    }


def main() -> None:
    asked = json.loads(sys.argv[1])
    weft.init()
    cluster = measured_here(hosts_of_ranks())
    for case in asked["cases"]:
        for found in measured_case(case, cluster):
            if dist.get_rank() == 0:
                print("weft-figure " + json.dumps(found), flush=True)
    weft.shutdown()


main()
