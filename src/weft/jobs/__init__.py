"""Jobs: runs that a service keeps, queues, places, watches and restarts, on machines that a team shares.

`weft.jobs.Client` talks to a service; `weft up` is one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Client"]

if TYPE_CHECKING:
    from weft.jobs.client.client import JobsClient as Client


def __getattr__(name: str) -> Any:
    if name == "Client":
        return import_module("weft.jobs.client.client").JobsClient
    raise AttributeError(f"module 'weft.jobs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
