"""`DistributedGradientTape` and `DistributedOptimizer` of `horovod.tensorflow`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.tensorflow import ops
from weft.compat.horovod.tensorflow.calls import tf
from weft.compat.horovod.tensorflow.compression import TensorFlowCompression as Compression
from weft.compat.horovod.torch.ops import Average, Sum
from weft.keras.backends import parts_of


class ReducingTape:
    """A gradient tape whose gradients are reduced over all ranks; everything else is the tape's own."""

    def __init__(self, tape: Any, reduce: Any) -> None:
        self._tape, self._reduce = tape, reduce

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def __enter__(self) -> ReducingTape:
        self._tape.__enter__()
        return self

    def __exit__(self, *given: Any) -> Any:
        return self._tape.__exit__(*given)

    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, use_local: bool = False, **options: Any
    ) -> Any:
        """Return the gradients of all ranks together; with `use_local` those of this rank alone."""
        grads = self._tape.gradient(target, sources, output_gradients, **options)
        if use_local:
            return grads
        flat = tf.nest.flatten(grads, expand_composites=False) if grads is not None else []
        return tf.nest.pack_sequence_as(grads, self._reduce(flat, tf.nest.flatten(sources)))


def reducer(
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    name: str | None = None,
    scale_local_gradients: bool = True,
    local: set[int] | None = None,
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
    kept = local if local is not None else set()

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
            if id(variable) in kept:
                result[index] = grad / world.place.size if scale_local_gradients else grad
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
    return ReducingTape(
        gradtape,
        reducer(compression, sparse_as_dense, op, gradient_predivide_factor, process_set),
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
    layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]
    local = {id(variable) for layer in layers if layer is not None for variable in layer.trainable_variables}
    return ReducingTape(
        gradtape,
        reducer(
            compression,
            sparse_as_dense,
            op,
            gradient_predivide_factor,
            process_set,
            scale_local_gradients=scale_local_gradients,
            local=local,
        ),
    )
