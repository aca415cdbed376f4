"""CUDA graphs of a loss: forward and backward of one shape of batch, recorded once and replayed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weft.vision.training.tasks.base import LossModule


def graphed(module: LossModule, sample: tuple[Tensor, ...], dtype: torch.dtype | None) -> Any:
    """Return a loss module whose calls replay a graph; every batch must have the shapes of `sample`.

    Recording runs the module a few times: what norms learn from that is undone.
    """
    kept = {name: value.clone() for name, value in module.named_buffers()}
    with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None, cache_enabled=False):
        replayed = torch.cuda.make_graphed_callables(module, sample)
    with torch.no_grad():
        for name, value in module.named_buffers():
            value.copy_(kept[name])
    return replayed
