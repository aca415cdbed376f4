"""The workers that fit one model together, each on its own rows, and sums over all of them.

    weft.init()
    with weft.learn.together():
        model = LogisticRegression().fit(X_of_this_worker, y_of_this_worker)

Inside `together()` each sum over rows becomes a sum over the rows of all workers, so that every worker takes the same
step and ends with the same model. Outside of `together()` a fit is the worker's own, and torch is not loaded.
`joint_fit.py` says how an error of one worker reaches the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from weft.learn.workers.faults import Fault, check_alike

Array = np.ndarray[Any, Any]


class Workers(Protocol):
    """The workers of a joint fit. All of them call the same methods in the same order."""

    rank: int
    size: int

    def add(self, values: Array) -> None:
        """Replace `values` (integers, float32 or float64, contiguous) by their sums over all workers."""
        ...

    def largest(self, value: float) -> float:
        """Return the largest of all workers' values."""
        ...

    def gathered(self, thing: Any) -> list[Any]:
        """Return the things of all workers, in the order of ranks."""
        ...

    def give_up(self, fault: Fault) -> None:
        """Leave the group: pending and later calls of the other workers raise the error of this fault."""
        ...


_current: ContextVar[Workers | None] = ContextVar("weft_learn_workers", default=None)


def current_workers() -> Workers | None:
    """Return the workers of the joint fit, or None where this process fits alone."""
    return _current.get()


@contextmanager
def entered(workers: Workers) -> Iterator[None]:
    """Make these workers the current ones inside a `with` block."""
    token = _current.set(workers)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def together(workers: Workers | None = None) -> Iterator[Workers]:
    """Make each fit inside one fit of all workers of torch's current group, or of `workers`."""
    if workers is None:
        from weft.learn.workers.torch_workers import TorchWorkers

        workers = TorchWorkers()
    with entered(workers):
        yield workers


def sum_over_workers(values: Sequence[Any]) -> list[Any]:
    """Return numbers and arrays added up over workers, in one message; unchanged where this process fits alone."""
    workers = current_workers()
    if workers is None:
        return list(values)
    arrays = [np.asarray(value, np.float64) for value in values]
    flat = np.concatenate([array.ravel() for array in arrays])
    workers.add(flat)
    ends = np.cumsum([array.size for array in arrays])[:-1]
    return [
        part.reshape(array.shape) if array.ndim else float(part[0])
        for part, array in zip(np.split(flat, ends), arrays, strict=True)
    ]


def total_rows(rows: int) -> int:
    """Return the number of rows of all workers, by which all of them decide alike."""
    return int(sum_over_workers([float(rows)])[0])


def largest_over_workers(value: float) -> float:
    """Return the largest of all workers' values."""
    workers = current_workers()
    return value if workers is None else workers.largest(value)


def distinct_over_workers(values: Array) -> Array:
    """Return the distinct values of all workers, sorted."""
    workers = current_workers()
    if workers is None:
        return np.unique(values)
    found = workers.gathered(np.unique(values))
    found = [each for each in found if len(each)] or found[:1]  # labels of no rows are of no kind
    check_alike("labels of one kind", list(map(_kind, found)))
    return np.unique(np.concatenate(found))


def _kind(values: Array) -> str:
    return "text" if len(values) and isinstance(values[0], str | bytes) else "numbers"


def shared_seed(seed: int) -> int:
    """Return the seed of rank 0, on all workers."""
    workers = current_workers()
    return seed if workers is None else int(workers.gathered(seed)[0])
