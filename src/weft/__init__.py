"""Distributed deep learning on the machines you have.

`import weft` is quick and silent: names are looked up when they are first used, and torch is loaded by `init()`
and by what works on tensors.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.version import __version__

__all__ = [
    "Context",
    "World",
    "__version__",
    "allgather",
    "allreduce",
    "allreduce_n",
    "alltoall",
    "barrier",
    "broadcast",
    "device",
    "host",
    "host_index",
    "init",
    "local_rank",
    "local_size",
    "log",
    "num_hosts",
    "rank",
    "reduce_scatter",
    "report",
    "shutdown",
    "size",
    "world",
]

_PARTS = (
    "elastic",
    "jobs",
    "keras",
    "learn",
    "lms",
    "parallel",
    "serve",
    "tune",
    "vision",
)  # packages that are loaded when they are first used
_ARRAYS = ("allgather", "allreduce", "allreduce_n", "alltoall", "barrier", "broadcast", "reduce_scatter")
_REPORTS = ("log", "report")

if TYPE_CHECKING:
    from weft.collectives.arrays import (
        allgather,
        allreduce,
        allreduce_n,
        alltoall,
        barrier,
        broadcast,
        reduce_scatter,
    )
    from weft.context import (
        Context,
        World,
        device,
        host,
        host_index,
        init,
        local_rank,
        local_size,
        num_hosts,
        rank,
        shutdown,
        size,
        world,
    )
    from weft.reporting.calls import log, report


def __getattr__(name: str) -> Any:
    if name in _REPORTS:
        # Kept under its name: a training loop may call it thousands of times a second.
        found = globals()[name] = getattr(import_module("weft.reporting.calls"), name)
        return found
    if name in __all__:
        module = import_module("weft.collectives.arrays" if name in _ARRAYS else "weft.context")
        return getattr(module, name)
    if name in _PARTS:
        return import_module(f"weft.{name}")
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
