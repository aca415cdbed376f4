"""Distributed deep learning on the machines you have.

`import weft` is quick and silent: names are looked up when they are first used, and torch is loaded by `init()`.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Context",
    "World",
    "__version__",
    "device",
    "host",
    "host_index",
    "init",
    "local_rank",
    "local_size",
    "num_hosts",
    "rank",
    "shutdown",
    "size",
    "world",
]

if TYPE_CHECKING:
    from weft.launch.world import (
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


def __getattr__(name: str) -> Any:
    if name in __all__:
        from weft.launch import world as module

        return getattr(module, name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
