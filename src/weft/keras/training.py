"""Training with Keras 3 on the workers of a run: gradients averaged, variables from rank 0, metrics averaged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from weft import context
from weft.errors import UsageError
from weft.keras.backends import broadcast_all, keras_on
from weft.keras.overlap import PendingAverage
from weft.keras.seam import overlap_of, reduce_before_apply


def distribute(optimizer: Any, passes: int = 1) -> Any:
    """Have an optimizer average its gradients over all workers before it applies them; returns the same optimizer.

    Gradients of `passes` batches are summed first.
    """
    return reduce_before_apply(optimizer, _average, passes, start=_start_average)


def _average(grads: list[Any], part: int) -> list[Any]:
    """Average gradients over the workers of `weft.init()` where they lie, all of a part in one message."""
    from weft.collectives.arrays import allreduce_n

    return grads if context.size() == 1 else allreduce_n(grads, "avg", inplace=True)


def _start_average(flat: Tensor) -> PendingAverage:
    """Begin to average a tensor over the workers of `weft.init()`, in place."""
    import torch.distributed as dist

    if dist.get_backend() in ("weft", "nccl"):
        work: Any = dist.all_reduce(flat, dist.ReduceOp.AVG, async_op=True)
        return _PendingSum(work, flat, 1)
    return _PendingSum(dist.all_reduce(flat, async_op=True), flat, dist.get_world_size())


@dataclass
class _PendingSum:
    """A sum that is under way, and what it is divided by."""

    work: Any
    flat: Tensor
    divisor: int

    def wait(self) -> None:
        self.work.wait()
        if self.divisor > 1:
            self.flat.div_(self.divisor)


def shard(*arrays: Any) -> Any:
    """Return this worker's rows of arrays, as many as every other worker's; those that are left over are dropped."""
    world = context.world()
    each = min(len(array) for array in arrays) // world.size
    if not each:
        raise UsageError(f"arrays must have a row for each of {world.size} workers, got fewer; use more data")
    parts = tuple(array[world.rank * each : (world.rank + 1) * each] for array in arrays)
    return parts[0] if len(parts) == 1 else parts


def first_only(callbacks: Iterable[Any]) -> list[Any]:
    """Return callbacks at rank 0 and none elsewhere: for those that write checkpoints and logs."""
    return list(callbacks) if context.rank() == 0 else []


def together() -> Any:
    """Return the callback that starts all workers with the variables of rank 0, and averages what epochs report."""
    base: Any = keras_on().callbacks.Callback

    class Together(base):  # type: ignore[misc]
        """Keeps the workers of a run together; put it before callbacks that look at metrics."""

        def set_model(self, model: Any) -> None:
            super().set_model(model)
            without_xla(model)

        def on_train_begin(self, logs: Any = None) -> None:
            if context.size() > 1:
                broadcast_all(self.model, _broadcast)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            overlap = overlap_of(self.model.optimizer)
            if overlap is not None and context.size() > 1:
                overlap.batch_begins()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            overlap = overlap_of(self.model.optimizer)
            if overlap is not None:
                overlap.batch_ends()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if logs and context.size() > 1:
                logs.update(_averages(logs))

    return Together()


def without_xla(model: Any) -> None:
    """Have TensorFlow not compile a model's step by XLA, which cannot call out of it."""
    if keras_on().backend.backend() == "tensorflow" and getattr(model, "jit_compile", False):
        model.jit_compile = False


def _broadcast(tensors: list[Any]) -> None:
    import torch.distributed as dist

    for tensor in tensors:
        dist.broadcast(tensor, 0)


def _averages(logs: dict[str, Any]) -> dict[str, float]:
    import torch
    import torch.distributed as dist

    names = sorted(name for name, value in logs.items() if isinstance(value, (int, float)))
    values = torch.tensor([float(logs[name]) for name in names], dtype=torch.float64)
    dist.all_reduce(values)
    return dict(zip(names, (values / dist.get_world_size()).tolist(), strict=True))
