"""The step and the cluster of the workers that are running: recorded and measured now, in some seconds."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from weft.parallel.applying import groups
from weft.parallel.applying.sharding import shard_over
from weft.parallel.applying.torch_private import all_gather, reduce_scatter
from weft.parallel.prediction.cluster import (
    COLLECTIVES,
    USUAL_MEMORY_BPS,
    ClusterFacts,
    CollectiveSpeed,
    fit_speed,
)
from weft.parallel.prediction.step import RecordedStep
from weft.parallel.prediction.way import Way
from weft.parallel.recording.optimizers import optimizer_sample
from weft.parallel.recording.recorder import Batch, record_step

SIZES = (64 << 10, 1 << 20, 8 << 20)  # bytes
LONG_ENOUGH_S = 0.1  # of calls, to tell a rate: shapers and buffers let a burst of some ms through
SLOWER = 1.15  # times as long as a usual worker: one that computes longer is slower, less is scatter
LIGHT_WIRES = ("bf16", "fp16")
COPIES = 16  # of 8 MiB: longer than a worker keeps its core while others wait for it
OPTIMIZER_STEPS = 4
TINY_LAYERS = 8
ROUNDS = 3
LEAST_CALLS, MOST_CALLS = 2, 100  # in a round, without a pause
_PASSED = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}


def recorded_here(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    passes: int = 1,
    repeats: int = 5,
) -> RecordedStep:
    """Record a step on all workers at once, as they will share cores and memory; a collective call.

    All get the record of a worker in the middle, or of the slowest where it really is slower: others wait for it.
    """
    dist.barrier()
    step = record_step(model, batch, loss=loss, optimizer=optimizer, passes=passes, repeats=repeats)
    if optimizer is not None:
        whole_s, fixed_s = (_optimizer_seconds(optimizer, tiny=tiny) for tiny in (False, True))
        step = replace(step, optimizer_s=whole_s, optimizer_fixed_s=fixed_s)
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
                measured[f"{operation} {wire}"], cores = _speed(operation, group, count, share=0.5)
                transport_cores = max(transport_cores, cores)
            dist.destroy_process_group(group)
    exchange, layer_s, shards, buckets = _memory_speeds(hosts)
    on_cpu = not device_bytes
    return ClusterFacts(
        hosts=names,
        workers_per_host=workers,
        card_bps=measured["all_reduce"].card_bps if measured else 0.0,
        measured=measured,
        host_fixed_s=exchange.fixed_s,
        memory_bps=exchange.card_bps,
        shard_fixed_s=layer_s if on_cpu else 0.0,
        shard_copy_bps=shards if on_cpu else 0.0,
        bucket_copy_bps=buckets if on_cpu else 0.0,
        worker_cores=_worker_cores() if on_cpu else 0.0,
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
        seconds, cores = _seconds(_call(operation, size, group))
        times[int(_PASSED[operation] * (hosts - 1) / hosts * size * share)] = seconds
        if 2 * seconds > LONG_ENOUGH_S:
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


def _memory_speeds(hosts: list[list[int]]) -> tuple[CollectiveSpeed, float, float, float]:
    """Return the speed of exchanges in a host, seconds of FSDP2 for a layer, and rates of copies to new and old memory.

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
            exchanged[int(passed)], _ = _seconds(_gather(whole, part, own[host]))
    source, copy = (torch.zeros(SIZES[-1] // 4, device=device) for _ in range(2))
    cloned_s = _together(source.clone, COPIES)
    copied_s = _together(lambda: copy.copy_(source), COPIES)
    layer_s = _layer_seconds(own[host]) if device == "cpu" else 0.0
    for group in own:
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    exchange = fit_speed(exchanged) if exchanged else CollectiveSpeed(0.0, USUAL_MEMORY_BPS)
    return exchange, layer_s, source.nbytes / cloned_s, source.nbytes / copied_s


def _together(call: Callable[[], object], calls: int) -> float:
    """Return the time of a call that talks to nobody, while all workers make as many and wait for the last."""
    found = []
    for number in range(ROUNDS + 1):
        dist.barrier()
        began = time.perf_counter()
        for _ in range(calls if number else 0):  # the first round tells what it takes to meet
            call()
        _synchronise()
        dist.barrier()
        found.append(time.perf_counter() - began)
    seconds = max(1e-9, median(found[1:]) - found[0])
    return _slowest(seconds)[0] / calls


def _worker_cores() -> float:
    """Return the cores that a worker gets while two threads of every worker want them."""
    source = torch.zeros(SIZES[-1] // 4)

    def copies() -> None:
        for _ in range(COPIES):
            source.clone()

    dist.barrier()
    began, ran_s = time.perf_counter(), time.process_time()
    threads = [threading.Thread(target=copies) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ran_s = time.process_time() - ran_s
    dist.barrier()
    (fewest,) = _slowest(-ran_s / (time.perf_counter() - began))
    return -fewest


def _slowest(*seconds: float) -> list[float]:
    """Return the largest of each on all ranks."""
    longest: Any = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    found: list[float] = longest.tolist()
    return found


def _optimizer_seconds(optimizer: torch.optim.Optimizer, *, tiny: bool) -> float:
    """Return what a step of such an optimizer takes while all workers make one."""
    sample = optimizer_sample(optimizer, tiny=tiny)
    made = torch.tensor([float(sample is not None)])
    dist.all_reduce(made, op=dist.ReduceOp.MIN)
    return (
        _together(sample.step, OPTIMIZER_STEPS) * sample.share if sample is not None and made.item() else 0.0
    )


def _layer_seconds(group: Any) -> float:
    """Return what FSDP2 takes for a tiny layer in a pass, forward or backward, beside computing and exchanges."""
    plain, sharded = (nn.Sequential(*(nn.Linear(8, 8) for _ in range(TINY_LAYERS))) for _ in range(2))
    shard_over(sharded, torch.optim.SGD(sharded.parameters(), 0.1), Way(kind="fsdp"), group)
    rows = torch.zeros(4, 8)

    def passing(net: nn.Module) -> Callable[[], object]:
        return lambda: net(rows).sum().backward()

    workers = dist.get_world_size(group)
    part = torch.zeros(max(1, 72 // workers))
    whole = torch.zeros(part.numel() * workers)
    exchanged_s = _together(lambda: all_gather(whole, part, group=group), TINY_LAYERS) if workers > 1 else 0.0
    sharded_s, plain_s = (_together(passing(net), TINY_LAYERS) for net in (sharded, plain))
    # A layer is gathered twice and reduced once.
    return max(0.0, (sharded_s - plain_s) / TINY_LAYERS - 3 * exchanged_s) / 2


def _gather(whole: torch.Tensor, part: torch.Tensor, group: Any) -> Callable[[], object]:
    """Return a gather into new memory, as a layer is gathered for a pass."""
    return lambda: all_gather(torch.empty_like(whole), part, group=group)


def _seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Return the time of a call among calls without a pause, on the slowest rank, and the cores they kept busy.

    They go on for long enough that what a link lets through at once after a pause is little of it.
    """
    found = []
    dist.barrier()
    began = time.perf_counter()
    call()
    _synchronise()
    (once_s,) = _slowest(time.perf_counter() - began)
    calls = min(MOST_CALLS, max(LEAST_CALLS, round(LONG_ENOUGH_S / once_s)))
    for _ in range(ROUNDS):
        dist.barrier()
        call()
        _synchronise()
        began, ran_s = time.perf_counter(), time.process_time()
        for _ in range(calls):
            call()
        _synchronise()
        seconds = time.perf_counter() - began
        found.append((seconds / calls, (time.process_time() - ran_s) / seconds))
    seconds, cores = _slowest(*(median(each) for each in zip(*found, strict=True)))
    return seconds, cores


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
