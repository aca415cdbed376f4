"""Steps through hvd.DistributedOptimizer, DDP on the backend "weft" and DDP on Gloo, in turns; then small tensors.

    weft run -n 2 benchmarks/horovod_scripts/step.py STEPS LAYERS WIDTH BATCH [steps,small,negotiation]

Prints one line of JSON at rank 0: each time is that of the slowest rank.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft
import weft.compat.horovod.torch as hvd

STEPS, LAYERS, WIDTH, BATCH = map(int, sys.argv[1:5])
SMALL, SMALL_ELEMENTS = 1000, 16 * 1024


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def stepper(model: Any, optimizer: Any) -> Callable[[], object]:
    batch = torch.randn(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def slowest(seconds: float) -> float:
    told = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return float(told)


def timed(call: Callable[[], object]) -> float:
    """Return the time of a call that all ranks begin together, on the slowest of them."""
    dist.barrier()
    begin = time.perf_counter()
    call()
    return slowest(time.perf_counter() - begin)


def in_turns(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 2):
        names = list(ways)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            took = timed(ways[name])
            if number >= 2:  # the first ones find their memory
                found[name].append(took)
    return found


def steps() -> dict[str, list[float]]:
    gloo = dist.new_group(backend="gloo")
    ours = make_model()
    hvd.broadcast_parameters(ours.state_dict(), root_rank=0)
    wrapped = hvd.DistributedOptimizer(torch.optim.SGD(ours.parameters(), lr=0.001), ours.named_parameters())
    ways = {"hvd": stepper(ours, wrapped)}
    for name, group in (("weft", None), ("gloo", gloo)):
        model = DistributedDataParallel(make_model(), process_group=group)
        ways[name] = stepper(model, torch.optim.SGD(model.parameters(), lr=0.001))
    return in_turns(ways, STEPS)


def small_tensors() -> dict[str, list[float]]:
    """Many small tensors, by name, against one reduction of the same bytes."""
    tensors = [torch.ones(SMALL_ELEMENTS) for _ in range(SMALL)]
    names = [f"small.{index}" for index in range(SMALL)]
    whole = torch.ones(SMALL * SMALL_ELEMENTS)

    def fused() -> None:
        pairs = zip(tensors, names, strict=True)
        handles = [hvd.allreduce_async_(tensor, name=name, op=hvd.Sum) for tensor, name in pairs]
        for handle in handles:
            hvd.synchronize(handle)

    return in_turns(
        {
            "fused": fused,
            "grouped": lambda: hvd.grouped_allreduce_(tensors, name="together", op=hvd.Sum),
            "one": lambda: dist.all_reduce(whole),
        },
        STEPS,
    )


def negotiation() -> dict[str, list[float]]:
    """The time from the last rank's last submission to the last result, beside the same work without names.

    Without names means: the same tensors, packed, reduced at once and unpacked, by ranks that begin together. One that
    was agreed on before, and one reduction of as many elements, are measured too.
    """
    tensors = [torch.ones(1) for _ in range(160)]
    names = [f"tiny.{index}" for index in range(160)]
    whole = torch.ones(160)
    parts = list(torch.split(whole, 1))
    found: dict[str, list[float]] = {"negotiated": [], "packed": [], "plain": [], "single": []}

    def packed() -> None:
        torch.cat(tensors, out=whole)
        dist.all_reduce(whole)
        torch._foreach_copy_(tensors, parts)

    for number in range(20 + 10 * STEPS):
        dist.barrier()
        pairs = zip(tensors, names, strict=True)
        handles = [hvd.allreduce_async_(tensor, name=name, op=hvd.Sum) for tensor, name in pairs]
        submitted = time.perf_counter()  # of a clock that all processes of a host share
        for handle in handles:
            hvd.synchronize(handle)
        done = time.perf_counter()
        took = {
            "negotiated": slowest(done) - slowest(submitted),
            "packed": timed(packed),
            "plain": timed(lambda: dist.all_reduce(whole)),
            "single": timed(lambda: hvd.allreduce_(tensors[0], name="tiny.0", op=hvd.Sum)),
        }
        for tensor in tensors:
            tensor.fill_(1.0)
        if number >= 20:
            for name, seconds in took.items():
                found[name].append(seconds)
    return found


def idle_cpu_share(seconds: float = 1.0) -> float:
    """Return the share of a core that this process uses while nothing is submitted."""
    begin, used = time.monotonic(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - used) / (time.monotonic() - begin)


def main() -> None:
    weft.init("weft")
    hvd.init()
    found: dict[str, Any] = {"idle": idle_cpu_share()}
    parts = {"steps": steps, "small": small_tensors, "negotiation": negotiation}
    wanted = sys.argv[5].split(",") if len(sys.argv) > 5 else list(parts)
    for part in wanted:
        found[part] = parts[part]()
    parameters = sum(p.numel() for p in make_model().parameters())
    if hvd.rank() == 0:
        medians = {
            part: {name: statistics.median(times) for name, times in found[part].items()} for part in wanted
        }
        print(
            json.dumps({"parameters": parameters, "idle": found["idle"], "medians": medians, "times": found})
        )


if __name__ == "__main__":
    main()
