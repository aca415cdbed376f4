"""`horovod.keras`, for Keras 3 on its backends torch, tensorflow and jax."""

from __future__ import annotations

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
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.errors import HorovodInternalError, HostsUpdatedInterrupt
from weft.compat.horovod.keras import callbacks, elastic
from weft.compat.horovod.keras.optimizer import (
    DistributedOptimizer,
    PartialDistributedOptimizer,
    load_model,
)
from weft.compat.horovod.keras.values import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    reducescatter,
)
from weft.compat.horovod.torch.compression import Compression
from weft.compat.horovod.torch.functions import allgather_object, broadcast_object
from weft.compat.horovod.torch.ops import Adasum, Average, Sum, barrier, join

add_process_set = world.add_process_set
remove_process_set = world.remove_process_set

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
