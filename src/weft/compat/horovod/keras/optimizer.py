"""`DistributedOptimizer` of `horovod.keras`: an optimizer of Keras 3 that reduces gradients before it applies them."""

from __future__ import annotations

import warnings
from typing import Any

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.negotiation.messages import ReduceKind
from weft.compat.horovod.torch import ops
from weft.compat.horovod.torch.compression import Compression
from weft.compat.horovod.torch.ops import Average, Sum
from weft.keras.backends import is_one_of, keras_on
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
    check_groups(num_groups, groups)
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

    layers = local_layers_of(local_layers)
    local: list[Any] = []  # registered later

    def keep(variable: Any, grad: Any) -> Any:
        if grad is None or not (layers or local):
            return None
        own = [each for layer in layers for each in layer.trainable_variables]
        if not is_one_of(variable, [*own, *local]):
            return None
        return grad / (process_set.size() or 1) if scale_local_gradients else grad

    made = reduce_before_apply(
        optimizer, reduce, backward_passes_per_step, average_aggregated_gradients, keep
    )
    made.register_local_var = local.append
    return made


def local_layers_of(given: Any) -> list[Any]:
    """Return the layers whose gradients stay those of each rank, of one layer or several."""
    layers = list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]
    if not all(hasattr(layer, "trainable_variables") for layer in layers):
        raise ValueError("local_layers must be layers of Keras, got something else")
    return layers


def check_groups(num_groups: int, groups: Any) -> None:
    """Refuse groups of gradients that cannot be; those that can are reduced together with all others."""
    if num_groups:
        warnings.warn("num_groups is deprecated; use groups", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is not None and not (isinstance(groups, list) or groups > 0):
        raise ValueError(f"groups must be an int above 0 or lists of variables, got {groups!r}")


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
    legacy_opts: bool = False,
    **options: Any,
) -> Any:
    """Load a model whose optimizer reduces gradients again."""
    keras = keras_on()
    known = {kind.__name__: kind for kind in custom_optimizers or ()} | dict(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known, **options)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
