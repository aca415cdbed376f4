"""States that scripts derive theirs from, and the loop."""

from weft.compat.horovod.elastic.loop import run_fn
from weft.compat.horovod.elastic.state import ObjectState, State
from weft.compat.horovod.errors import HorovodInternalError, HostsUpdatedInterrupt

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "run_fn"]
