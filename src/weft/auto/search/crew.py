"""Fits that run at the same time, one core each, since a small table keeps no more than one core of a fit busy.

Libraries whose threads wait for each other by spinning are ten times slower where another program has one of the cores;
a fit with a single thread is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

from weft.auto.families.fitting import Deadline
from weft.learn.threads import thread_count

T = TypeVar("T")
R = TypeVar("R")


def core_count() -> int:
    """Return the cores that this process may use."""
    return thread_count(-1, 0)


def threads_each(at_once: int, cells: int) -> int:
    """Return the threads of each of some fits that run at the same time, to tables of so many numbers."""
    return max(1, thread_count(None, cells) // max(1, at_once))


def run_together(
    work: Callable[[T, Deadline], R], items: Sequence[T], deadlines: Sequence[Deadline], threads: int
) -> list[R]:
    """Return the results of all items, as many at once as there are cores; an interrupt ends their fits."""
    at_once = min(core_count(), len(items))
    with threadpool_limits(limits=threads, user_api="blas"):
        if at_once < 2:
            return [work(*one) for one in zip(items, deadlines, strict=True)]
        with ThreadPoolExecutor(at_once, thread_name_prefix="weft-auto") as executor:
            waiting = [executor.submit(work, *one) for one in zip(items, deadlines, strict=True)]
            try:
                return [one.result() for one in waiting]
            except BaseException:
                for one, deadline in zip(waiting, deadlines, strict=True):
                    one.cancel()
                    deadline.at_s = 0.0
                raise
