"""`DistributedOptimizer` of `horovod.keras`: an optimizer of Keras 3 that reduces gradients before it applies them."""

from __future__ import annotations

from typing import Any

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.negotiation.messages import ReduceKind
from weft.compat.horovod.torch import ops
from weft.compat.horovod.torch.compression import Compression
from weft.compat.horovod.torch.ops import Average, Sum
from weft.keras.seam import keras_on_torch, reduce_before_apply


def DistributedOptimizer(  # noqa: N802 (a function there, too)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    **other: Any,
) -> Any:
    """Have an optimizer reduce its gradients over all ranks of a set; returns the same optimizer."""
    if op not in (Average, Sum):
        raise ValueError(f"op must be Average or Sum, got {ReduceKind(op).name}")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor must come with op=Average, got op=Sum; leave it out")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be above 0, got {backward_passes_per_step}")
    factors = 1.0, 1.0
    if gradient_predivide_factor != 1.0:
        factors = 1.0 / gradient_predivide_factor, gradient_predivide_factor

    def reduce(grads: list[Any]) -> list[Any]:
        if world.place.size == 1 or not process_set.included():
            return grads
        given = [index for index, grad in enumerate(grads) if grad is not None]
        packed = [compression.compress(grads[index].detach().contiguous()) for index in given]
        made = ops.synchronize(
            ops.grouped_allreduce_async(
                [tensor for tensor, _ in packed],
                None,
                f"keras.{name or 'gradients'}",
                op,
                *factors,
                process_set,
            )
        )
        result = list(grads)
        for index, reduced, (_, ctx) in zip(given, made, packed, strict=True):
            result[index] = compression.decompress(reduced, ctx)
        return result

    return reduce_before_apply(optimizer, reduce, backward_passes_per_step, average_aggregated_gradients)


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    **options: Any,
) -> Any:
    """Load a model whose optimizer reduces gradients again."""
    keras = keras_on_torch()
    known = {kind.__name__: kind for kind in custom_optimizers or ()} | dict(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known, **options)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
