"""A group that breaks, in the way the argument says; every survivor prints what it was told, and when."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from weft.collectives.reduction import Reduction

signal.signal(
    signal.SIGTERM, signal.SIG_IGN
)  # the launcher ends everyone after the first death: not before we spoke
torch.set_num_threads(1)
how, victim, timeout_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
dist.init_process_group("weft", timeout=timedelta(seconds=60))
group = dist.new_group(timeout=timedelta(seconds=timeout_s))  # so that a slow start is not a timeout
rank = dist.get_rank()


def stop_halfway(number: signal.Signals) -> None:
    """When the others already have some of what we bring."""
    Reduction.combine = lambda *_: os.kill(os.getpid(), number)  # type: ignore[method-assign]


def fail() -> None:
    raise RuntimeError("no more data")


def leave() -> None:
    """Be done with the group, and live on."""
    dist.destroy_process_group(group)
    dist.barrier()


HOW: dict[str, Callable[[], None]] = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "killed-halfway": lambda: stop_halfway(signal.SIGKILL),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "raises": fail,
    "leaves": leave,
    "wait": lambda: None,  # for what the test does
}


def all_reduce() -> None:
    dist.all_reduce(torch.ones(1000, 1000), group=group)


def gradients_of_a_model() -> Callable[[], None]:
    # Only where it is asked for: with DDP comes torch's compiler, which takes longer to import than torch.
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(nn.Linear(300, 300), process_group=group)
    return lambda: model(torch.ones(2, 300)).sum().backward()


def receive() -> None:
    dist.recv(torch.ones(7), victim, group=group)


OPERATIONS: dict[str, Callable[[], object]] = {
    "all_reduce": all_reduce,
    "recv": receive,
    "broadcast": lambda: dist.broadcast(torch.ones(5), victim, group=group),
    "gather": lambda: dist.gather(torch.ones(6), [torch.ones(6)] * 3 if rank == 0 else None, 0, group=group),
}
operation = gradients_of_a_model() if sys.argv[4] == "backward" else OPERATIONS[sys.argv[4]]
if operation is not receive:
    operation()
dist.barrier()
print("up", os.getpid(), flush=True)
if rank == victim:
    HOW[how]()
last = begin = time.monotonic()
try:
    while time.monotonic() < begin + 40:
        last = time.monotonic()
        operation()
except RuntimeError as error:
    took = time.monotonic() - last
    try:
        operation()
        again = "nothing"
    except RuntimeError as second:
        again = type(second).__name__
    print(f"told {type(error).__name__} after {took:.1f} s: {error} | then {again}", flush=True)
    if how == "leaves":
        dist.barrier()  # the other group is whole
    # 3: so that the launcher ends a victim that still is there. One that raised ends the job by itself, and which of
    # two failures a busy starter tells first is chance.
    sys.exit(0 if how == "raises" else 3)
