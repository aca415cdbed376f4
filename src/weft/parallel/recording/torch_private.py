"""Private names of torch that recording a model needs; they hold for torch 2.11, 2.12 and 2.13."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.autograd import Variable

OUTSIDE = -1  # the number of the running backward pass, if there is none

backward_number: Callable[[], int] = torch._C._current_graph_task_id


def at_backward_end(callback: Callable[[], None]) -> None:
    """Call back when the running backward pass has ended."""
    Variable._execution_engine.queue_callback(callback)
