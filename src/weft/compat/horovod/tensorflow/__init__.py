"""`horovod.tensorflow`, for TensorFlow 2: everything that scripts call as `hvd`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from weft.compat.horovod.basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world as _world
from weft.compat.horovod.errors import HorovodInternalError, HostsUpdatedInterrupt
from weft.compat.horovod.tensorflow.compression import TensorFlowCompression as Compression
from weft.compat.horovod.tensorflow.functions import (
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from weft.compat.horovod.tensorflow.gradient_tape import (
    DistributedGradientTape,
    PartialDistributedGradientTape,
)
from weft.compat.horovod.tensorflow.ops import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
    world_value,
)
from weft.compat.horovod.torch.ops import Adasum, Average, Max, Min, Product, Sum, barrier, join

add_process_set, remove_process_set = _world.add_process_set, _world.remove_process_set
_LATE = {  # what needs Keras on TensorFlow
    "SyncBatchNormalization": "weft.compat.horovod.tensorflow.sync_batch_norm:SyncBatchNormalization",
    "elastic": "weft.compat.horovod.tensorflow.elastic",
    "keras": "weft.compat.horovod.keras",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"horovod.tensorflow has no {name!r}")
    module, _, inside = _LATE[name].partition(":")
    found = import_module(module)
    return getattr(found, inside) if inside else found


def DistributedOptimizer(optimizer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 (Horovod's name)
    """Have an optimizer of Keras reduce its gradients over all ranks; returns the same optimizer."""
    from weft.compat.horovod.keras.optimizer import DistributedOptimizer as OfKeras

    if not hasattr(optimizer, "apply"):
        raise ValueError(
            f"an optimizer must be one of Keras, got {type(optimizer).__name__}; those of TensorFlow 1 are not served: "
            "use tf.keras.optimizers, or hvd.DistributedGradientTape"
        )
    return OfKeras(optimizer, *args, **kwargs)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of ranks, read when the operation is carried out."""
    return world_value(lambda: len(_world.engine.sets[process_set_id]))


def rank_op(name: str | None = None) -> Any:
    """Return this process's rank, read when the operation is carried out."""
    return world_value(rank)


def local_rank_op(name: str | None = None) -> Any:
    """Return this process's rank on its host, read when the operation is carried out."""
    return world_value(local_rank)


def local_size_op(name: str | None = None) -> Any:
    """Return the number of ranks on this host, read when the operation is carried out."""
    return world_value(local_size)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return whether this rank is in a process set, as 0 or 1, read when the operation is carried out."""
    return world_value(lambda: int(rank() in _world.engine.sets[process_set_id]))


__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]
