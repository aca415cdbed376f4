"""Passes of a step: which of them reduce, and which keep parameters gathered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from weft.errors import UsageError
from weft.parallel.prediction.way import Way

ATTRIBUTE = "weft_way"  # of a model that a plan was applied to


def way_of(model: nn.Module) -> Way:
    """Return the way that was applied to a model."""
    way = getattr(model, ATTRIBUTE, None)
    if not isinstance(way, Way):
        raise UsageError("a model must have a plan, got one without; call weft.parallel.apply first")
    return way


@contextmanager
def micro_batch(model: nn.Module, *, last: bool) -> Iterator[None]:
    """Reduce gradients in the last of the passes of a step alone; forward and backward of a pass go inside.

    Where the plan says so, they are reduced in every pass.
    """
    way = way_of(model)
    reduces = last or way.sync_every_pass or way.kind == "zero2"
    if isinstance(model, DistributedDataParallel):
        if reduces:
            yield
        else:
            with model.no_sync():
                yield
        return
    if way.shards:
        sharded: Any = model
        sharded.set_requires_gradient_sync(reduces)
        sharded.set_reshard_after_backward(last or way.kind != "zero2")
    yield
