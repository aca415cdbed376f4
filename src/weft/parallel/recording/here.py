"""The cluster of the workers that are running: their collectives are measured now, in a second or so."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from weft.parallel.applying.torch_private import all_gather, reduce_scatter
from weft.parallel.prediction.cluster import USUAL_MEMORY_BPS, ClusterFacts, fit_speed

SIZES = (64 << 10, 1 << 20, 8 << 20)  # bytes
ROUNDS = 3
_PASSED = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}


def measured_here(hosts: list[list[int]]) -> ClusterFacts:
    """Measure the collectives of the world; a collective call, with the same result on every rank."""
    count = len(hosts)
    names = tuple(f"host{number}" for number in range(count))
    workers = max(map(len, hosts))
    device_bytes = 0
    if torch.cuda.is_available():
        device_bytes = int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory * 0.92)
    times: dict[str, dict[int, float]] = {operation: {} for operation in _PASSED}
    for size in SIZES if count > 1 else ():
        for operation, rounds in _PASSED.items():
            seconds = _seconds(operation, size)
            times[operation][int(rounds * (count - 1) / count * size)] = seconds
    exchange_bps, copy_bps = _memory_speeds(hosts)
    measured = {operation: fit_speed(found) for operation, found in times.items() if found}
    return ClusterFacts(
        hosts=names,
        workers_per_host=workers,
        card_bps=measured["all_reduce"].card_bps if measured else 0.0,
        measured=measured,
        memory_bps=exchange_bps,
        shard_copy_bps=0.0 if device_bytes else copy_bps,
        device_bytes=device_bytes,
        copy_bps=12e9 if device_bytes else 0.0,
        source="measured now",
    )


def _memory_speeds(hosts: list[list[int]]) -> tuple[float, float]:
    """Return the rates at which workers of a host exchange, and copy, memory while all others do the same."""
    size, device = SIZES[-1], "cuda" if torch.cuda.is_available() else "cpu"
    own = [dist.new_group(ranks) for ranks in hosts]
    host = next(number for number, ranks in enumerate(hosts) if dist.get_rank() in ranks)
    workers = len(hosts[host])
    part = torch.zeros(size // 4 // workers, device=device)
    whole = torch.zeros(part.numel() * workers, device=device)
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS + 1):
        dist.barrier()
        began = time.perf_counter()
        all_gather(whole, part, group=own[host])
        middle = time.perf_counter()
        whole.clone()
        times[0].append(middle - began)
        times[1].append(time.perf_counter() - middle)
    usual: Any = torch.tensor([sorted(each[1:])[ROUNDS // 2] for each in times], dtype=torch.float64)
    dist.all_reduce(usual, op=dist.ReduceOp.MAX)
    exchange_s, copy_s = usual.tolist()
    exchanged = (workers - 1) / workers * whole.nbytes
    return (exchanged / exchange_s if workers > 1 else USUAL_MEMORY_BPS), whole.nbytes / copy_s


def _seconds(operation: str, size: int) -> float:
    """Return the median time of a collective on the slowest rank."""
    world = dist.get_world_size()
    elements = max(1, size // 4 // world)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    whole, part = (torch.zeros(number, device=device) for number in (elements * world, elements))
    found = []
    for _ in range(ROUNDS + 1):
        dist.barrier()
        began = time.perf_counter()
        if operation == "all_reduce":
            dist.all_reduce(whole)
        elif operation == "reduce_scatter":
            reduce_scatter(part, whole)
        else:
            all_gather(whole, part)
        found.append(time.perf_counter() - began)
    slowest: Any = torch.tensor([sorted(found[1:])[ROUNDS // 2]], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest.item())
