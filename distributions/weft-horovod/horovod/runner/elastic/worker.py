"""What a change of hosts was."""

from weft.compat.horovod.elastic.changes import HostUpdateResult

__all__ = ["HostUpdateResult"]
