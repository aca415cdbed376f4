"""Errors that Horovod's scripts catch by name."""

from __future__ import annotations

from weft.errors import RunError

# Horovod's own names and bases: scripts and its elastic loop tell these two apart by type.


class HorovodInternalError(RuntimeError):
    """An operation among ranks failed. If data had moved, the world is of no more use; a mismatch leaves it whole."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818 (Horovod's name)
    """The members of the run have changed: an elastic loop starts again with the state it has."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts of the run have changed")
        self.skip_sync = skip_sync


class HorovodRunError(RunError, RuntimeError):
    """Workers of `horovod.run` failed; scripts catch a RuntimeError that begins like this."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{WORKERS_FAILED}: {why}")


WORKERS_FAILED = "Horovod detected that one or more processes exited with non-zero status"
NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."
SHUT_DOWN = "Horovod has been shut down"
