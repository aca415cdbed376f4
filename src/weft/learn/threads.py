"""The threads of a fit, and sums over blocks that do not depend on their number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from weft.learn.workers.group import sum_over_workers

T = TypeVar("T")
R = TypeVar("R")

SMALL = 1 << 20  # stored numbers below which a second thread costs more than it saves


def thread_count(n_jobs: int | None, stored: int) -> int:
    """Return the threads for a table with `stored` numbers: n_jobs as in scikit-learn, all cores where it is None.

    OMP_NUM_THREADS bounds the cores: joblib sets it where it runs several fits at once.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = os.environ.get("OMP_NUM_THREADS", "")
    allowed = min(cores, int(told)) if told.isdigit() and int(told) > 0 else cores
    if n_jobs is None:
        return 1 if stored < SMALL else allowed
    return n_jobs if n_jobs > 0 else max(1, allowed + 1 + n_jobs)


class ThreadTeam:
    """The threads of one fit, which work on blocks of rows."""

    def __init__(self, size: int, executor: Executor | None):
        self.size = size
        self._executor = executor

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """Return the results of a function in the order of the items."""

        def quiet(item: T) -> R:
            with np.errstate(all="ignore"):  # complete sums are checked for NaN and infinity
                return function(item)

        if self._executor is None or len(items) < 2:
            return map(quiet, items)
        return self._executor.map(quiet, items)

    def total(self, function: Callable[[T], tuple[Any, ...]], items: Sequence[T]) -> list[Any]:
        """Return the sums of the tuples a function returns, added in the order of the items, then over workers."""
        return sum_over_workers(add_up(self.map(function, items)))

    def alone(self) -> ThreadTeam:
        """Return a team of one thread, for work too small for more."""
        return ThreadTeam(1, None)


def add_up(parts: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return the sums of tuples, element by element, added in the order given."""
    sums: list[Any] | None = None
    for part in parts:
        if sums is None:
            sums = list(part)
        else:
            for place, value in enumerate(part):
                sums[place] += value
    assert sums is not None, "a table has at least one block"
    return sums


@contextmanager
def thread_team(size: int) -> Iterator[ThreadTeam]:
    """Start threads that live as long as a fit; BLAS keeps to one thread in each of them."""
    with _blas().limit(limits=1 if size > 1 else None, user_api="blas"):
        if size == 1:
            yield ThreadTeam(1, None)
        else:
            with ThreadPoolExecutor(size, thread_name_prefix="weft-learn") as executor:
                yield ThreadTeam(size, executor)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # looking for libraries takes milliseconds
