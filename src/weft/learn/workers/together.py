"""Several workers that fit one model, each on its own rows.

    weft.init()
    with weft.learn.together():
        model = LogisticRegression().fit(X_of_this_worker, y_of_this_worker)

Sums over rows become sums over everyone's rows; each worker then takes the same step and ends with the same model.
Outside of `together()` a fit is the worker's own, and torch is not loaded.

A fit ends well for all workers or for none. Each first checks its rows, then all of them solve together:

    @workers.as_one_fit
    def fit(self, X, y):
        X, y = checked(X, y)                # whoever fails here says so at the next meeting
        with workers.solving(self):         # all checks went well, and workers bring the same columns
            ...                             # whoever fails here gives the group up
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from weft.errors import CollectiveError, ShareError, UsageError
from weft.learn.workers.faults import Fault, check_alike, error_of, fault_of

Array = np.ndarray[Any, Any]
P = ParamSpec("P")
Model = TypeVar("Model")


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

    def give_up(self, fault: Fault) -> None:
        """Take part no more: calls of the others, which wait for us or will, raise the fault's error."""
        ...


class AsOne:
    """Workers in the midst of one fit, in which a fault of one reaches the others.

    While rows are checked every message is a meeting, which has room for a fault: whoever fails goes to the one that
    the others come to next, whatever it is for, and the group stays whole. While a model is solved messages are bare
    sums, of sizes that only those know who are there; whoever fails then gives the group up.
    """

    def __init__(self, inner: Workers):
        self.rank, self.size = inner.rank, inner.size
        self.checking = True
        self._inner = inner

    def meet(self, thing: Any = None, fault: Fault | None = None) -> list[Any]:
        """Everyone's thing; raises where others have faults and we have none."""
        told = self._inner.gathered((fault, thing))
        faults = {rank: each for rank, (each, _) in enumerate(told) if each is not None}
        if faults and fault is None:
            raise error_of(faults)
        return [thing for _, thing in told]

    def tell(self, error: Exception) -> None:
        """Let the others know what we failed with."""
        if self.checking:
            self.meet(fault=fault_of(error))
        else:
            self._inner.give_up(fault_of(error))

    def add(self, values: Array) -> None:
        if self.checking:
            values[...] = np.sum(self.meet(values.copy()), axis=0)
        else:
            self._inner.add(values)

    def largest(self, value: float) -> float:
        return float(max(self.meet(value))) if self.checking else self._inner.largest(value)

    def gathered(self, thing: Any) -> list[Any]:
        return self.meet(thing) if self.checking else self._inner.gathered(thing)

    def give_up(self, fault: Fault) -> None:
        self._inner.give_up(fault)


_current: ContextVar[Workers | None] = ContextVar("weft_learn_workers", default=None)


def current() -> Workers | None:
    return _current.get()


@contextmanager
def together(workers: Workers | None = None) -> Iterator[Workers]:
    """Fits inside are one fit of all workers of the current group, or of `workers`."""
    if workers is None:
        from weft.learn.workers.torch_workers import TorchWorkers

        workers = TorchWorkers()
    token = _current.set(workers)
    try:
        yield workers
    finally:
        _current.reset(token)


@contextmanager
def as_one() -> Iterator[None]:
    """What is done inside ends well for all workers or for none; inside of another such, that one sees to it."""
    others = current()
    if others is None or isinstance(others, AsOne):
        yield
        return
    one = AsOne(others)
    token = _current.set(one)
    try:
        yield
        one.meet()  # one of us may have failed after the last sum
    except (ShareError, CollectiveError):
        raise  # the others know
    except Exception as error:
        with suppress(ShareError, CollectiveError):  # our own error tells more
            one.tell(error)
        raise
    finally:
        _current.reset(token)


def as_one_fit(fit: Callable[Concatenate[Model, P], Model]) -> Callable[Concatenate[Model, P], Model]:
    """A `fit` that is `as_one`; where it fails, the model is what it was before."""

    @wraps(fit)
    def fitted(self: Model, /, *args: P.args, **kwargs: P.kwargs) -> Model:
        if current() is None:
            return fit(self, *args, **kwargs)
        # Lists are what a warm start adds to.
        before = {name: value[:] if isinstance(value, list) else value for name, value in vars(self).items()}
        try:
            with as_one():
                return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return fitted


@contextmanager
def solving(model: Any, targets: int = 1) -> Iterator[None]:
    """From checks to the solver: all workers are here, and what they bring goes together."""
    others = current()
    if not isinstance(others, AsOne):
        yield
        return
    _check_shares(others.meet((model.n_features_in_, _names(model), targets)))
    others.checking = False
    yield
    others.checking = True  # not where it failed: the others still solve


@contextmanager
def checks() -> Iterator[None]:
    """Checks in the midst of solving, to which all workers come; they go on if all went well."""
    others = current()
    if not isinstance(others, AsOne) or others.checking:
        yield
        return
    others.checking = True
    yield
    others.meet()
    others.checking = False


def _names(model: Any) -> tuple[str, ...] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def _check_shares(shares: list[tuple[int, tuple[str, ...] | None, int]]) -> None:
    counts, names, targets = zip(*shares, strict=True)
    check_alike("the same number of columns", counts)
    check_alike("the same number of targets", targets)
    if None in names:  # arrays have none
        return
    for place, found in enumerate(zip(*names, strict=True)):
        check_alike("the same columns in the same order", list(map(repr, found)), f" in place {place}")


def refuse(estimator: Any, why: str = "") -> None:
    """For fits that need all rows at one place."""
    if current() is None:
        return
    with checks():  # all workers refuse alike
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
    found = workers.gathered(np.unique(values))
    check_alike("labels of one kind", list(map(_kind, found)))
    return np.unique(np.concatenate(found))


def _kind(values: Array) -> str:
    return "text" if len(values) and isinstance(values[0], str | bytes) else "numbers"


def same_seed(seed: int) -> int:
    """Rank 0's."""
    workers = current()
    return seed if workers is None else int(workers.gathered(seed)[0])
