"""The world as every framework's module shows it: who this process is, and what Horovod was built with."""

from __future__ import annotations

from typing import Any

from weft.compat.horovod.engine.world import world


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Join the other processes of the run; a second call does nothing."""
    world.init(comm, process_sets)


def shutdown() -> None:
    """Leave the world, which ends it for all; `init` may be called again."""
    world.shutdown()


def is_initialized() -> bool:
    return world.initialized


def rank() -> int:
    """Return this process's number."""
    return world.place.rank


def size() -> int:
    """Return how many processes there are."""
    return world.place.size


def local_rank() -> int:
    """Return this process's number on its host."""
    return world.place.local_rank


def local_size() -> int:
    """Return how many processes this host has."""
    return world.place.local_size


def cross_rank() -> int:
    """Return this host's number among those that have a process with this local rank."""
    return world.cross.rank


def cross_size() -> int:
    """Return how many hosts have a process with this local rank."""
    return world.cross.size


def is_homogeneous() -> bool:
    """Return whether all hosts have as many processes."""
    return world.cross.homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begin a timeline; HOROVOD_TIMELINE must be DYNAMIC."""
    world.start_timeline(file_path, mark_cycles)


def stop_timeline() -> None:
    """End the timeline, and write its file."""
    world.stop_timeline()


def mpi_threads_supported() -> bool:
    raise ValueError(
        "mpi_threads_supported needs MPI, got Weft's own transport; MPI is not used by this process"
    )


def mpi_enabled() -> bool:
    return False


def mpi_built() -> bool:
    return False


def gloo_enabled() -> bool:
    return True


def gloo_built() -> bool:
    return True


def ddl_built() -> bool:
    return False


def ccl_built() -> bool:
    return False


def cuda_built() -> bool:
    import torch

    return torch.version.cuda is not None


def rocm_built() -> bool:
    import torch

    return torch.version.hip is not None


def nccl_built() -> int:
    """Return NCCL's version as one number, 22703 say, or 0."""
    import torch

    if not cuda_built():
        return 0
    major, minor, patch = (*torch.cuda.nccl.version(), 0, 0)[:3]  # type: ignore[no-untyped-call]
    return int(major) * 10000 + int(minor) * 100 + int(patch)
