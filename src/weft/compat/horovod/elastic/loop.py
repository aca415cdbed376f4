"""`hvd.elastic.run`: a training function that is called again, in the same process, when members come or go."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from weft.compat.horovod.elastic.changes import finish, sync_needed
from weft.compat.horovod.elastic.state import State
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.errors import HorovodInternalError, HostsUpdatedInterrupt

logger = logging.getLogger("horovod")


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of a state elastic.

    The state is taken over from rank 0 before each call. If a member is lost, the state goes back to the last commit;
    if members come or go, it is kept. In both cases a new world is made, and the function is called again.
    """
    return run_fn(func, reset)


def reset() -> None:
    """Make the next world."""
    world.shutdown()
    world.init()


def run_fn(func: Callable[..., Any], reset: Callable[[], object]) -> Callable[..., Any]:
    """Make a function of a state elastic; `reset` makes the next world."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        if not world.initialized:
            world.init()
        skip_sync = reset_first = False
        while True:
            try:
                if reset_first:
                    reset()
                    state.on_reset()
                if sync_needed(not skip_sync):
                    state.sync()
                result = func(state, *args, **kwargs)
                finish()
                return result
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            except Exception as error:
                if not _is_lost_member(error):
                    raise
                logger.info("going back to the last commit: %s", error)
                state.restore()
                skip_sync = False
            reset_first = True

    return wrapper


def _is_lost_member(error: Exception) -> bool:
    """Return whether a member was lost; TensorFlow and JAX wrap what is raised within a step."""
    return isinstance(error, HorovodInternalError) or HorovodInternalError.__name__ in str(error)
