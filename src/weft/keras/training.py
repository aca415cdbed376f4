"""Training with Keras 3 on the workers of a run: gradients averaged, variables from rank 0, metrics averaged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft import context
from weft.errors import UsageError
from weft.keras.backends import broadcast_all, keras_on
from weft.keras.seam import reduce_before_apply


def distribute(optimizer: Any, passes: int = 1) -> Any:
    """Have an optimizer average its gradients over all workers before it applies them; returns the same optimizer.

    Gradients of `passes` batches are summed first.
    """
    return reduce_before_apply(optimizer, _average, passes)


def _average(grads: list[Any], part: int) -> list[Any]:
    """Average gradients over the workers of `weft.init()` where they lie, all of a part in one message."""
    from weft.collectives.arrays import allreduce_n

    return grads if context.size() == 1 else allreduce_n(grads, "avg", inplace=True)


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
