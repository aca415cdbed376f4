"""A mode that gives wrong results on purpose: `shm` or `ring`, on one rank, once or always, or none.

For tensors of each of the shapes, in a world of its own: what one rank was told ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import weft
from weft.collectives.modes.shared_memory.shm import SharedMemory
from weft.collectives.modes.tcp.ring import Ring

mode, victim, how, shapes = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
torch.set_num_threads(1)
sound, times = True, 0


def spoil(kind: type, name: str) -> None:
    """One value is not what it should be; in float32 one is far more than rounding."""
    right: Callable[..., Any] = getattr(kind, name)

    def spoiled(self: Any, values: torch.Tensor, *args: Any) -> Any:
        global times
        result = right(self, values, *args)
        if sound:
            return result
        if result is not None:
            result.wait()  # what was started in the background
        times += 1
        if how == "always" or times == 1:
            values.view(-1)[values.numel() // 3] += 1
        return result

    setattr(kind, name, spoiled)


def said(shape: list[int]) -> str:
    try:
        for _ in range(4):
            dist.all_reduce(torch.randn(*shape), dist.ReduceOp.AVG)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


if mode != "none":
    for operation in ("all_reduce", "reduce_scatter"):
        spoil({"shm": SharedMemory, "ring": Ring}[mode], operation)
if mode == "ring":
    spoil(Ring, "start_all_reduce")
for written in shapes:
    weft.init("weft", timeout_s=30)
    shape = [int(size) for size in written.split("x")]
    dist.all_reduce(torch.ones(*shape))
    sound, times = weft.rank() != victim, 0
    torch.manual_seed(weft.rank())
    print(f"{written}: told {said(shape)}", flush=True)
    sound = True
    weft.shutdown()
