"""A mode that gives wrong results on purpose: `shm` or `ring`, on one rank, once or always, or none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import weft
from weft.collectives.modes.ring import Ring
from weft.collectives.modes.shm import SharedMemory

mode, victim, how, shape = (
    sys.argv[1],
    int(sys.argv[2]),
    sys.argv[3],
    [int(size) for size in sys.argv[4].split("x")],
)
torch.set_num_threads(1)
weft.init("weft", timeout_s=30)
times = 0


def spoil(kind: type, name: str) -> None:
    """One value is not what it should be; in float32 one is far more than rounding."""
    sound: Callable[..., Any] = getattr(kind, name)

    def spoiled(self: Any, values: torch.Tensor, *args: Any) -> Any:
        global times
        result = sound(self, values, *args)
        if result is not None:
            result.wait()  # what was started in the background
        times += 1
        if how == "always" or times == 1:
            values.view(-1)[values.numel() // 3] += 1
        return result

    setattr(kind, name, spoiled)


dist.all_reduce(torch.ones(*shape))
if weft.rank() == victim:
    for operation in ("all_reduce", "reduce_scatter"):
        if mode != "none":
            spoil({"shm": SharedMemory, "ring": Ring}[mode], operation)
    if mode == "ring":
        spoil(Ring, "start_all_reduce")
torch.manual_seed(weft.rank())
try:
    for _ in range(4):
        dist.all_reduce(torch.randn(*shape), dist.ReduceOp.AVG)
    print("told nothing", flush=True)
except RuntimeError as error:
    print(f"told {type(error).__name__}: {error}", flush=True)
weft.shutdown()
