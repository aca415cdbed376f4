"""A script that ends right after its last step, while the thread of Gloo that averaged its gradients is still busy.

Whatever that thread lets go of last, it must not be the group: a group waits for its threads when it ends, and a
thread that waits for itself ends the process with SIGABRT ("Resource deadlock avoided").
"""

# Annotations are not put off here: DDP compares those of a hook with the types themselves.

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

import weft
from weft.collectives.hooks import Int8State, bf16_hook, int8_hook
from weft.collectives.torch_private import GradBucket

HOOKS: dict[str, tuple[Any, Callable[..., Future[torch.Tensor]]]] = {
    "bf16": (None, bf16_hook),
    "int8": (Int8State(), int8_hook),
}

weft.init("gloo")
state, hook = HOOKS[sys.argv[1]]
ended = threading.Event()


def busy(averaged: Future[Any]) -> None:
    """Hold the thread of Gloo until the script has left its groups."""
    ended.wait(20)


def hook_that_stays(state: Any, bucket: GradBucket) -> Future[torch.Tensor]:
    average = hook(state, bucket)
    average.then(busy)
    return average


def step() -> None:
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    model.register_comm_hook(state, hook_that_stays)
    model(torch.ones(1, 4)).sum().backward()


step()
leaving = threading.Thread(target=weft.shutdown)
leaving.start()
leaving.join(1)  # a group that is destroyed may wait for its thread
ended.set()
leaving.join()
print("as it should be\n", end="", flush=True)
