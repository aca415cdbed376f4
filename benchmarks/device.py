"""Tensors on an accelerator: ours against Gloo, and how much of a reduction hides behind compute.

    python benchmarks/device.py             two workers that share the first accelerator

The two backends take turns in the same processes; times are medians of the slowest rank. For the overlap, a reduction
of 64 MiB is started, then a fixed amount of matrix work; both alone, then together.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims

ROUNDS = 11
MIB = 1 << 20


def measure() -> None:
    """In each worker."""
    import torch
    import torch.distributed as dist

    import weft

    weft.init(backend="weft")
    gloo: Any = dist.new_group(backend="gloo")

    def seconds(work: Callable[[], None]) -> float:
        dist.barrier()
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
        dist.all_reduce(taken, dist.ReduceOp.MAX, group=gloo)
        return taken.item()

    def medians(*works: Callable[[], None]) -> list[float]:
        for work in works:
            work()
        turns = [[seconds(work) for work in works] for _ in range(ROUNDS)]
        return [statistics.median(column) for column in zip(*turns, strict=True)]

    def say(text: str) -> None:
        if weft.rank() == 0:
            print(text, flush=True)

    def reduce(values: torch.Tensor, group: Any) -> None:
        dist.all_reduce(values, group=group)

    say(f"{torch.cuda.get_device_name()}, {weft.size()} workers on it, torch {torch.__version__}")
    figures: dict[str, float] = {}
    for size in (1, 8, 64, 256):
        values = torch.zeros(size * MIB // 4, device="cuda")
        ours, theirs = medians(partial(reduce, values, None), partial(reduce, values, gloo))
        figures[f"all-reduce-{size}MiB"] = theirs / ours
        say(
            f"all_reduce {size:4d} MiB  weft {ours * 1e3:8.2f} ms  gloo {theirs * 1e3:8.2f} ms  {theirs / ours:5.2f}x"
        )

    values = torch.zeros(64 * MIB // 4, device="cuda")
    left = torch.randn(4096, 4096, device="cuda")

    def compute() -> None:
        product = left
        for _ in range(120):
            product = product @ left

    def both(group: Any) -> None:
        work = dist.all_reduce(values, group=group, async_op=True)
        compute()
        assert work is not None
        work.wait()

    for name, group in (("weft", None), ("gloo", gloo)):
        works = (partial(reduce, values, group), compute, partial(both, group))
        alone, computing, together = medians(*works)
        hidden = (alone + computing - together) / min(alone, computing)
        say(
            f"overlap, {name}: reduction {alone * 1e3:.1f} ms, compute {computing * 1e3:.1f} ms, "
            f"together {together * 1e3:.1f} ms: {hidden:.0%} of the shorter one is hidden"
        )
    known = {claim.name for part in claims.parts(["device"]) for claim in part.claims}
    say("\n" + claims.report("device", {name: figures[name] for name in known}))
    weft.shutdown()


def main() -> None:
    if "RANK" in os.environ:
        measure()
        return
    sys.exit(
        subprocess.call(
            [sys.executable, "-m", "weft", "run", "-n", "2", "--no-pin", str(Path(__file__).resolve())]
        )
    )


if __name__ == "__main__":
    main()
