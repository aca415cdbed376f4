"""A timer that wakes a thread which listens to descriptors: an alarm in a while, set by another thread.

Python has these from 3.13 on. A thread that sets one goes on at once, and nobody is woken before its time.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_MONOTONIC_CLOCK = 1


class _TimerSpec(ctypes.Structure):
    """The C library's `itimerspec`: an interval, and the time until the alarm."""

    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")]


class CycleTimer:
    """An alarm on a descriptor."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(
            None, use_errno=True
        )  # a call is too short to let another thread run meanwhile
        self._set = library.timerfd_settime
        self._descriptor: int = library.timerfd_create(_MONOTONIC_CLOCK, _NONBLOCK_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._never = ctypes.byref(_TimerSpec())

    def fileno(self) -> int:
        return self._descriptor

    def set(self, seconds: float) -> None:
        """Ring once, after a number of seconds; an alarm that was set before is off."""
        nanoseconds = max(1, int(seconds * 1e9))
        whole, rest = divmod(nanoseconds, 1_000_000_000)
        self._set(self._descriptor, 0, ctypes.byref(_TimerSpec(0, 0, whole, rest)), None)

    def off(self) -> None:
        """Do not ring."""
        self._set(self._descriptor, 0, self._never, None)

    def clear(self) -> None:
        """Take note of an alarm."""
        with suppress(BlockingIOError):
            os.read(self._descriptor, 8)

    def close(self) -> None:
        os.close(self._descriptor)
