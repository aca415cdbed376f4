"""`DistributedOptimizer` of `horovod.keras`: an optimizer of Keras 3 that reduces gradients before it applies them."""

from __future__ import annotations

from typing import Any

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.negotiation.messages import ReduceKind
from weft.compat.horovod.torch import ops
from weft.compat.horovod.torch.compression import Compression
from weft.compat.horovod.torch.ops import Average, Sum
from weft.keras.backends import keras_on
from weft.keras.seam import reduce_before_apply


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
    local_layers: Any = (),
    scale_local_gradients: bool = True,
    **other: Any,
) -> Any:
    """Have an optimizer reduce its gradients over all ranks of a set; returns the same optimizer.

    Gradients of local layers stay those of each rank, divided by the number of ranks unless that is not wanted.
    """
    if op not in (Average, Sum):
        raise ValueError(f"op must be Average or Sum, got {ReduceKind(op).name}")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor must come with op=Average, got op=Sum; leave it out")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be above 0, got {backward_passes_per_step}")
    factors = 1.0, 1.0
    if gradient_predivide_factor != 1.0:
        factors = 1.0 / gradient_predivide_factor, gradient_predivide_factor

    def reduce(grads: list[Any], part: int) -> list[Any]:
        if world.place.size == 1 or not process_set.included():
            return grads
        packed = [compression.compress(grad.contiguous()) for grad in grads]
        made = ops.synchronize(
            ops.grouped_allreduce_async(
                [tensor for tensor, _ in packed],
                None,
                f"keras.{name or 'gradients'}.{part}",
                op,
                *factors,
                process_set,
            )
        )
        pairs = zip(made, packed, strict=True)
        return [compression.decompress(reduced, ctx) for reduced, (_, ctx) in pairs]

    layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]

    def keep(variable: Any, grad: Any) -> Any:
        if grad is None or not any(variable is own for layer in layers for own in layer.trainable_variables):
            return None
        return grad / world.place.size if scale_local_gradients and op == Average else grad

    return reduce_before_apply(
        optimizer,
        reduce,
        backward_passes_per_step,
        average_aggregated_gradients,
        keep if layers else None,
    )


def PartialDistributedOptimizer(  # noqa: N802
    optimizer: Any, name: str | None = None, local_layers: Any = (), **options: Any
) -> Any:
    """Have an optimizer reduce its gradients over all ranks, but for those of local layers."""
    return DistributedOptimizer(optimizer, name, local_layers=local_layers, **options)


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    **options: Any,
) -> Any:
    """Load a model whose optimizer reduces gradients again."""
    keras = keras_on()
    known = {kind.__name__: kind for kind in custom_optimizers or ()} | dict(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known, **options)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
