"""A joint fit succeeds on all workers or fails on all: an error of one worker reaches the others.

Each worker first checks its rows, then all of them solve together:

    @joint_fit
    def fit(self, X, y):
        X, y = checked(X, y)       # an error here is told in the next message of the others
        with solving(self):        # all checks succeeded, and all workers bring the same columns
            ...                    # an error here breaks the group up
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from weft.errors import CollectiveError, ShareError, UsageError
from weft.learn.workers.faults import Fault, check_alike, error_of, fault_of
from weft.learn.workers.group import Workers, current_workers, entered

Array = np.ndarray[Any, Any]
P = ParamSpec("P")
Model = TypeVar("Model")


class JointFit:
    """The workers during one joint fit: a `Workers` that also carries errors.

    While rows are checked every message has room for a fault: a worker that fails sends its fault in place of the next
    message, whatever the others exchange there, and the group stays whole. While a model is solved messages are bare
    sums whose sizes a failed worker does not know; it gives the group up instead.
    """

    def __init__(self, inner: Workers):
        self.rank, self.size = inner.rank, inner.size
        self.checking = True
        self._inner = inner

    def meet(self, thing: Any = None, fault: Fault | None = None) -> list[Any]:
        """Return the things of all workers; raise where another worker has a fault and this one has none."""
        told = self._inner.gathered((fault, thing))
        faults = {rank: each for rank, (each, _) in enumerate(told) if each is not None}
        if faults and fault is None:
            raise error_of(faults)
        return [thing for _, thing in told]

    def tell(self, error: Exception) -> None:
        """Tell the other workers which error this one failed with."""
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


@contextmanager
def all_or_none() -> Iterator[None]:
    """Make a block succeed on all workers or fail on all; a nested block leaves that to the outer one."""
    others = current_workers()
    if others is None or isinstance(others, JointFit):
        yield
        return
    joint = JointFit(others)
    with entered(joint):
        try:
            yield
            joint.meet()  # another worker may have failed after the last sum
        except (ShareError, CollectiveError):
            raise  # the other workers know already
        except Exception as error:
            with suppress(ShareError, CollectiveError):  # this worker's own error says more
                joint.tell(error)
            raise


def joint_fit(fit: Callable[Concatenate[Model, P], Model]) -> Callable[Concatenate[Model, P], Model]:
    """Decorate a `fit` that succeeds on all workers or fails on all; a failed one leaves the model as it was."""

    @wraps(fit)
    def fitted(self: Model, /, *args: P.args, **kwargs: P.kwargs) -> Model:
        if current_workers() is None:
            return fit(self, *args, **kwargs)
        # Lists are copied, because a warm start appends to them.
        before = {name: value[:] if isinstance(value, list) else value for name, value in vars(self).items()}
        try:
            with all_or_none():
                return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return fitted


@contextmanager
def solving(model: Any, targets: int = 1) -> Iterator[None]:
    """Pass from checks to the solver: all workers have arrived, and their columns and targets agree."""
    others = current_workers()
    if not isinstance(others, JointFit):
        yield
        return
    _check_shares(others.meet((model.n_features_in_, _names(model), targets)))
    others.checking = False
    yield
    others.checking = True  # not after an error: the other workers still solve


@contextmanager
def checking() -> Iterator[None]:
    """Run checks in the midst of solving, on all workers alike; solving goes on if all of them succeed."""
    others = current_workers()
    if not isinstance(others, JointFit) or others.checking:
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
    if None in names:  # columns of an array have no names
        return
    for place, found in enumerate(zip(*names, strict=True)):
        check_alike("the same columns in the same order", list(map(repr, found)), f" in place {place}")


def refuse_workers(estimator: Any, why: str = "") -> None:
    """Raise, inside `together()`, for a fit that needs all rows on one worker."""
    if current_workers() is None:
        return
    with checking():  # all workers refuse alike
        name = type(estimator).__name__
        raise UsageError(f"{name} must be fitted by one worker{why}, got a fit inside together(); leave it")
