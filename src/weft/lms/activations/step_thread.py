"""The one thread that a budget's open step belongs to.

Hooks of autograd and dispatch modes belong to the thread that set them, and a budget counts the memory that all threads
take on a device. So two threads cannot have a step under one budget at once: the second is told, and nothing changes.
"""

from __future__ import annotations

import threading

from weft.errors import UsageError


class StepThread:
    """The thread that has a step open, if one has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: threading.Thread | None = None

    def claim(self) -> bool:
        """Take the step for this thread, or raise; return whether its last owner has died with a step open."""
        with self._lock:
            self._check()
            died = self._owner is not None and self._owner is not threading.current_thread()
            self._owner = threading.current_thread()
            return died

    @property
    def is_mine(self) -> bool:
        """Whether this thread has the step."""
        return self._owner is threading.current_thread()

    def check(self) -> None:
        """Raise if another thread has a step open."""
        with self._lock:
            self._check()

    def release(self) -> None:
        with self._lock:
            self._owner = None

    def _check(self) -> None:
        owner, current = self._owner, threading.current_thread()
        if owner is not None and owner is not current and owner.is_alive():
            raise UsageError(
                f"steps under one budget must run one after the other, got one of thread {current.name} while one of "
                f"{owner.name} is open; train in one thread, or in a process for each"
            )
