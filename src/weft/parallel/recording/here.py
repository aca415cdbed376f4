"""The step and the cluster of the workers that are running: recorded and measured now, in some seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from weft.parallel.applying import groups
from weft.parallel.applying.torch_private import all_gather, reduce_scatter
from weft.parallel.prediction.cluster import (
    COLLECTIVES,
    USUAL_MEMORY_BPS,
    ClusterFacts,
    CollectiveSpeed,
    fit_speed,
)
from weft.parallel.prediction.step import RecordedStep
from weft.parallel.recording.recorder import record_step

SIZES = (64 << 10, 1 << 20, 8 << 20)  # bytes
LONG_ENOUGH_S = (
    0.08  # a call that takes longer tells the rate: shapers and buffers let a burst of some ms through
)
SLOWER = 1.15  # times as long as a usual worker: one that computes longer is slower, less is scatter
LIGHT_WIRES = ("bf16", "fp16")
ROUNDS, CALLS = 3, 2  # of each size: as many rounds, of calls without a pause
_PASSED = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}


def recorded_here(
    model: nn.Module,
    batch: Sequence[Any],
    *,
    optimizer: torch.optim.Optimizer | None = None,
    passes: int = 1,
    repeats: int = 5,
) -> RecordedStep:
    """Record a step on all workers at once, as they will share cores and memory; a collective call.

    All get the record of a worker in the middle, or of the slowest where it really is slower: others wait for it.
    """
    dist.barrier()
    step = record_step(model, batch, optimizer=optimizer, passes=passes, repeats=repeats)
    steps: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(steps, step)
    steps.sort(key=lambda each: each.compute_s)
    usual: RecordedStep = steps[len(steps) // 2]
    slowest: RecordedStep = steps[-1]
    return slowest if slowest.compute_s > SLOWER * usual.compute_s else usual


def measured_here(hosts: list[list[int]]) -> ClusterFacts:
    """Measure the collectives of the world; a collective call, with the same result on every rank."""
    count = len(hosts)
    names = tuple(f"host{number}" for number in range(count))
    workers = max(map(len, hosts))
    device_bytes = 0
    if torch.cuda.is_available():
        device_bytes = int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory * 0.92)
    measured: dict[str, CollectiveSpeed] = {}
    transport_cores = 0.0
    if count > 1:
        everyone = list(range(dist.get_world_size()))
        for operation in COLLECTIVES:
            measured[operation], cores = _speed(operation, None, count)
            transport_cores = max(transport_cores, cores)
        for wire in LIGHT_WIRES if groups.is_ours() else ():
            group = groups.group_of(everyone, wire, dict(os.environ))
            for operation in ("all_reduce", "reduce_scatter"):
                measured[f"{operation} {wire}"], _ = _speed(operation, group, count, share=0.5)
            dist.destroy_process_group(group)
    exchange, shards, buckets = _memory_speeds(hosts)
    on_cpu = not device_bytes
    return ClusterFacts(
        hosts=names,
        workers_per_host=workers,
        card_bps=measured["all_reduce"].card_bps if measured else 0.0,
        measured=measured,
        host_fixed_s=exchange.fixed_s,
        memory_bps=exchange.card_bps,
        shard_copy_bps=shards if on_cpu else 0.0,
        bucket_copy_bps=buckets if on_cpu else 0.0,
        transport_cores=transport_cores if on_cpu else 0.0,
        device_bytes=device_bytes,
        copy_bps=12e9 if device_bytes else 0.0,
        source="measured now",
    )


def _speed(operation: str, group: Any, hosts: int, share: float = 1.0) -> tuple[CollectiveSpeed, float]:
    """Measure a collective of growing size until it takes long; its speed, and the cores that it keeps busy."""
    times: dict[int, float] = {}
    cores = 0.0
    for size in SIZES:
        seconds, cores = _seconds(_call(operation, size, group), CALLS)
        times[int(_PASSED[operation] * (hosts - 1) / hosts * size * share)] = seconds
        if seconds > LONG_ENOUGH_S:
            break
    return fit_speed(times), cores


def _call(operation: str, size: int, group: Any) -> Callable[[], object]:
    world = dist.get_world_size()
    elements = max(1, size // 4 // world)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    whole, part = (torch.zeros(number, device=device) for number in (elements * world, elements))
    if operation == "all_reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if operation == "reduce_scatter":
        return lambda: reduce_scatter(part, whole, group=group)
    return _gather(whole, part, group)


def _memory_speeds(hosts: list[list[int]]) -> tuple[CollectiveSpeed, float, float]:
    """Return the speed of exchanges in a host, and the rates of copies to new memory and to memory in use.

    All workers do the same at the same time, as in a step.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    own = [dist.new_group(ranks) for ranks in hosts]
    host = next(number for number, ranks in enumerate(hosts) if dist.get_rank() in ranks)
    workers = len(hosts[host])
    exchanged: dict[int, float] = {}
    for size in (SIZES[0], SIZES[-1]):
        part = torch.zeros(max(1, size // 4 // workers), device=device)
        whole = torch.zeros(part.numel() * workers, device=device)
        if workers > 1:
            passed = (workers - 1) / workers * whole.nbytes
            exchanged[int(passed)], _ = _seconds(_gather(whole, part, own[host]), CALLS)
    source, copy = (torch.zeros(SIZES[-1] // 4, device=device) for _ in range(2))
    cloned_s, _ = _seconds(source.clone, CALLS)
    copied_s, _ = _seconds(lambda: copy.copy_(source), CALLS)
    for group in own:
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    exchange = fit_speed(exchanged) if exchanged else CollectiveSpeed(0.0, USUAL_MEMORY_BPS)
    return exchange, source.nbytes / cloned_s, source.nbytes / copied_s


def _gather(whole: torch.Tensor, part: torch.Tensor, group: Any) -> Callable[[], object]:
    """Return a gather into new memory, as a layer is gathered for a pass."""
    return lambda: all_gather(torch.empty_like(whole), part, group=group)


def _seconds(call: Callable[[], object], calls: int) -> tuple[float, float]:
    """Return the time of a call among calls without a pause, on the slowest rank, and the cores they kept busy."""
    found = []
    for _ in range(ROUNDS):
        dist.barrier()
        call()  # what a link lets through at once after a pause goes with this one
        _synchronise()
        began, ran_s = time.perf_counter(), time.process_time()
        for _ in range(calls):
            call()
        _synchronise()
        seconds = time.perf_counter() - began
        found.append((seconds / calls, (time.process_time() - ran_s) / seconds))
    usual: Any = torch.tensor([median(each) for each in zip(*found, strict=True)], dtype=torch.float64)
    dist.all_reduce(usual, op=dist.ReduceOp.MAX)
    seconds, cores = usual.tolist()
    return seconds, cores


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
