"""`DistributedGradientTape` and `DistributedOptimizer` of `horovod.tensorflow`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.keras.optimizer import check_groups, local_layers_of
from weft.compat.horovod.tensorflow import ops
from weft.compat.horovod.tensorflow.calls import tf
from weft.compat.horovod.tensorflow.compression import TensorFlowCompression as Compression
from weft.compat.horovod.torch.ops import Average, Sum
from weft.keras.backends import parts_of


class ReducingTape:
    """The part of a gradient tape that is added to its class: its gradients are those of all ranks together."""

    _reduce: Any
    _local: list[Any]

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        *args: Any,
        use_generic_names: bool = False,  # names are numbers here
        use_local: bool = False,
        **options: Any,
    ) -> Any:
        """Return the gradients of all ranks together; with `use_local` those of this rank alone."""
        grads = super().gradient(target, sources, output_gradients, *args, **options)  # type: ignore[misc]
        if use_local:
            return grads
        flat = tf.nest.flatten(grads, expand_composites=False) if grads is not None else []
        return tf.nest.pack_sequence_as(grads, self._reduce(flat, tf.nest.flatten(sources)))

    def register_local_source(self, source: Any) -> None:
        """Leave the gradient of a variable as it is on each rank."""
        self._local.append(source)

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[Any], list[Any]]:
        """Return pairs of sources and gradients: those that stayed local, and those of all ranks."""
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients), strict=True))
        local = [pair for pair in pairs if is_local(pair[0], self._local)]
        return local, [pair for pair in pairs if not is_local(pair[0], self._local)]


def is_local(source: Any, local: Sequence[Any]) -> bool:
    """Return whether a source was registered as local, by itself or as the variable of Keras around it."""
    return any(source is each or source is getattr(each, "value", None) for each in local)


def _reducing(gradtape: Any, local: Sequence[Any], **options: Any) -> Any:
    """Return a tape of the same class that shares all that a tape has recorded, and reduces."""
    kind = type(gradtape)
    made: Any = object.__new__(type(kind.__name__, (ReducingTape, kind), {"__module__": kind.__module__}))
    made.__dict__ = gradtape.__dict__
    made._local = list(local)
    made._reduce = reducer(local=made._local, **options)
    return made


def reducer(
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    name: str | None = None,
    scale_local_gradients: bool = True,
    local: Sequence[Any] = (),
) -> Any:
    """Return what reduces a list of gradients: in parts, the last layers' first, so that they travel early."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor must come with op=Average, got another; leave it out")
    if op not in (Average, Sum):
        raise ValueError(
            "op must be Average or Sum for gradients here, got another; use horovod.torch for Adasum"
        )
    factors: dict[str, Any] = {}
    if gradient_predivide_factor != 1.0:
        factors = {
            "prescale_factor": 1.0 / gradient_predivide_factor,
            "postscale_factor": gradient_predivide_factor,
        }

    def reduce(grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        result = [
            tf.convert_to_tensor(grad) if sparse_as_dense and isinstance(grad, tf.IndexedSlices) else grad
            for grad in grads
        ]
        if not world.initialized or world.place.size == 1 or not process_set.included():
            return result
        wanted = []
        for index, (grad, variable) in enumerate(zip(result, variables, strict=True)):
            if grad is None:
                continue
            if is_local(variable, local):
                result[index] = _divided(grad, process_set.size()) if scale_local_gradients else grad
            else:
                wanted.append(index)
        sizes = [_bytes(result[index]) for index in wanted]
        for number, part in enumerate(parts_of(sizes)):
            given = [result[wanted[each]] for each in part]
            called = f"{name or 'DistributedGradientTape'}.{number}"
            made = ops.grouped_allreduce(
                given, op=op, compression=compression, name=called, process_set=process_set, **factors
            )
            for each, reduced in zip(part, made, strict=True):
                result[wanted[each]] = reduced
        return result

    return reduce


def _divided(grad: Any, divisor: Any) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(grad.values / divisor, grad.indices, grad.dense_shape)
    return grad / divisor


def _bytes(grad: Any) -> int:
    if isinstance(grad, tf.IndexedSlices):
        return 0
    return int(grad.shape.num_elements() or 0) * int(grad.dtype.size)


def DistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return a tape whose `gradient` gives the gradients of all ranks together."""
    return PartialDistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients=scale_local_gradients,
    )


def PartialDistributedGradientTape(  # noqa: N802
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Return a tape whose gradients are those of all ranks, but for the variables of local layers."""
    check_groups(num_groups, groups)
    return _reducing(
        gradtape,
        [variable for layer in local_layers_of(local_layers) for variable in layer.trainable_variables],
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
