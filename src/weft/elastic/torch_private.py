"""Private names of torch that elastic training needs, all in this file; they hold for torch 2.11, 2.12 and 2.13.

A later version of torch is tried with `pytest tests/elastic/worker`, which goes through each function below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import distributed_c10d


def call_after_backward(callback: Callable[[], None]) -> None:
    """Have `callback` called at the end of the backward pass that runs now; to be called from one of its hooks.

    DistributedDataParallel and FSDP2 use `queue_callback` in the same way; there is no public name for it.
    """
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def restart_group_count() -> None:
    """Let the next process group have the name that the first one of a process has.

    torch counts the groups it has begun, those that could not be made too, and names them by the count. Members of
    one view may have begun different numbers of groups, and would not find each other in its store.
    """
    distributed_c10d._world.group_count = 0


def mark_scheduler_aware(step: Any) -> None:
    """Mark a function as fit to be an optimizer's `step`.

    A scheduler wraps `step` to count its calls, and warns if a function without this mark has replaced the wrapper.
    """
    step._wrapped_by_lr_sched = True
