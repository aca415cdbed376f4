"""Several workers that fit one model, each on its own rows.

    weft.init()
    with weft.learn.together():
        model = LogisticRegression().fit(X_of_this_worker, y_of_this_worker)

Sums over rows become sums over everyone's rows; each worker then takes the same step and ends with the same model.
Outside of `together()` a fit is the worker's own, and torch is not loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from weft.errors import UsageError

Array = np.ndarray[Any, Any]


class Workers(Protocol):
    """Those who fit together. All of them call the same methods, in the same order."""

    rank: int
    size: int

    def add(self, values: Array) -> None:
        """Replace values by their sums over workers; whole numbers, float32 or float64, contiguous."""
        ...

    def largest(self, value: float) -> float: ...

    def gathered(self, thing: Any) -> list[Any]:
        """Everyone's thing, in the order of ranks."""
        ...


class TorchWorkers:
    """The ranks of torch.distributed's group."""

    def __init__(self) -> None:
        import torch.distributed as dist

        if not dist.is_initialized():
            raise UsageError(
                "weft.learn.together() must come after weft.init(), got no group of ranks; call weft.init() first"
            )
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def add(self, values: Array) -> None:
        import torch
        import torch.distributed as dist

        dist.all_reduce(torch.from_numpy(values))

    def largest(self, value: float) -> float:
        import torch
        import torch.distributed as dist

        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return float(tensor[0])

    def gathered(self, thing: Any) -> list[Any]:
        import torch.distributed as dist

        things: list[Any] = [None] * self.size
        dist.all_gather_object(things, thing)
        return things


_current: ContextVar[Workers | None] = ContextVar("weft_learn_workers", default=None)


def current() -> Workers | None:
    return _current.get()


@contextmanager
def together(workers: Workers | None = None) -> Iterator[Workers]:
    """Fits inside are one fit of all workers of the current group, or of `workers`."""
    chosen = workers or TorchWorkers()
    token = _current.set(chosen)
    try:
        yield chosen
    finally:
        _current.reset(token)


def refuse(estimator: Any, why: str = "") -> None:
    """For fits that need all rows at one place."""
    if current() is not None:
        name = type(estimator).__name__
        raise UsageError(f"{name} must be fitted by one worker{why}, got a fit inside together(); leave it")


def sums(values: Sequence[Any]) -> list[Any]:
    """Numbers and arrays, added up over workers in one message; as they are where there are none."""
    workers = current()
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


def everyone(rows: int) -> int:
    """Rows of all workers: what all of them decide by must be the same."""
    return int(sums([float(rows)])[0])


def largest(value: float) -> float:
    workers = current()
    return value if workers is None else workers.largest(value)


def union(values: Array) -> Array:
    """Everyone's distinct values, in order."""
    workers = current()
    if workers is None:
        return np.unique(values)
    return np.unique(np.concatenate(workers.gathered(np.unique(values))))


def same_seed(seed: int) -> int:
    """Rank 0's."""
    workers = current()
    return seed if workers is None else int(workers.gathered(seed)[0])
