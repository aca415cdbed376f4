"""Splits of rows for honest validation, and the losses that models are compared by.

A part of the rows is held out first: no choice is made by it. The rest is split into folds. By time, the held-out part
and every fold are later than what they judge; by group, no group is on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from weft.auto.columns import Task
from weft.errors import DataError

Array = np.ndarray[Any, Any]

HELD_SHARE = 0.2
MANY_ROWS = 50_000  # from here on three folds are as sure as five
KEPT_OF_CLASS = 100  # rows of each class that a sample has, if the table has so many
FEWEST = 1e-15  # probabilities are kept so far from 0 and 1


@dataclass(frozen=True)
class Fold:
    """The rows to train on and those to judge by."""

    train: Array
    test: Array


@dataclass(frozen=True)
class Splits:
    """The rows of the search with their folds, and the rows that are held out of it."""

    search: Array
    held: Array
    folds: tuple[Fold, ...]  # of places in `search`
    how: str

    @property
    def judged(self) -> Array:
        """Places in `search` that some fold judges, in the order of the folds."""
        return self.judged_by(len(self.folds))

    def judged_by(self, count: int) -> Array:
        """Return the places in `search` that the first `count` folds judge."""
        return np.concatenate([fold.test for fold in self.folds[:count]])

    def thinned(self, places: Array) -> Splits:
        """Return the splits of some places in `search` (ascending) alone, renumbered."""
        number = np.full(len(self.search), -1)
        number[places] = np.arange(len(places))

        def left(rows: Array) -> Array:
            found: Array = number[rows]
            return found[found >= 0]

        folds = tuple(Fold(left(fold.train), left(fold.test)) for fold in self.folds)
        return Splits(self.search[places], self.held, folds, self.how)


def some_places(target: Array, task: Task, count: int, seed: int) -> Array:
    """Return about `count` of the places of a target at random, ascending; rare classes keep up to 100 rows each."""
    if count >= len(target):
        return np.arange(len(target))
    order = np.random.default_rng(seed).permutation(len(target))
    chosen = np.zeros(len(target), bool)
    chosen[order[:count]] = True
    if task.classes is not None:
        for code in range(len(task.classes)):
            chosen[order[target[order] == code][:KEPT_OF_CLASS]] = True
    return np.flatnonzero(chosen)


def split_rows(target: Array, task: Task, *, time: Array | None, group: Array | None, seed: int) -> Splits:
    """Return the splits of rows in file order; `time` and `group` have one value for each row."""
    count = 3 if len(target) > MANY_ROWS else 5
    if time is not None:
        return _by_time(target, task, time, count)
    if group is not None:
        return _by_group(target, task, group, count, seed)
    return _at_random(target, task, count, seed)


def _by_time(target: Array, task: Task, time: Array, count: int) -> Splits:
    if np.isnan(time).any():
        raise DataError(
            f"--time must be known in every row, got {int(np.isnan(time).sum())} rows without; fill them in"
        )
    order = np.argsort(time, kind="stable")
    cut = int(len(order) * (1 - HELD_SHARE))
    search, held = order[:cut], order[cut:]
    edges = np.linspace(0, cut, count + 2).astype(int)[1:]  # the first part is never judged
    folds = tuple(Fold(np.arange(start), np.arange(start, stop)) for start, stop in pairwise(edges.tolist()))
    for fold in folds:
        _check_classes(target[search][fold.train], task, "--time")
    return Splits(search, held, folds, "by time: later rows judge models of earlier ones")


def _by_group(target: Array, task: Task, group: Array, count: int, seed: int) -> Splits:
    from sklearn.model_selection import GroupKFold, GroupShuffleSplit

    groups = len(np.unique(group))
    if groups < 2 * count:
        raise DataError(f"--group must have at least {2 * count} groups, got {groups}; leave it out")
    parts = GroupShuffleSplit(1, test_size=HELD_SHARE, random_state=seed).split(target, groups=group)
    search, held = next(parts)
    kept = GroupKFold(count, shuffle=True, random_state=seed).split(search, groups=group[search])
    folds = tuple(Fold(train, test) for train, test in kept)
    for fold in folds:
        _check_classes(target[search][fold.train], task, "--group")
    return Splits(search, held, folds, "by group: no group is on both sides of a split")


def _at_random(target: Array, task: Task, count: int, seed: int) -> Splits:
    from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

    classes = None if task.classes is None else target
    rows = np.arange(len(target))
    search, held = train_test_split(rows, test_size=HELD_SHARE, random_state=seed, stratify=classes)
    if classes is not None:
        count = int(min(count, np.bincount(target[search]).min()))
    kind = KFold if classes is None else StratifiedKFold
    folds = kind(max(2, count), shuffle=True, random_state=seed).split(search, target[search])
    return Splits(search, held, tuple(Fold(train, test) for train, test in folds), "at random")


def _check_classes(target: Array, task: Task, option: str) -> None:
    if task.classes is None:
        return
    for code, name in enumerate(task.classes):
        if not (target == code).any():
            raise DataError(
                f"{option} must leave rows of every class to train on, got none of {name!r} in a fold; leave it out"
            )


def as_targets(target: Array, task: Task) -> Array:
    """Return (rows, outputs): numbers, or 0 and 1 for each class (one column where there are two classes)."""
    if task.classes is None:
        return target[:, None].astype(np.float64)
    marks = np.eye(len(task.classes))[target]
    return marks[:, 1:] if len(task.classes) == 2 else marks


def loss_of(metric: str, target: Array, predicted: Array) -> float:
    """Return what is to be small: log-loss, 1 - AUC, error rate, root mean square or mean absolute error."""
    if metric == "rmse":
        return float(np.sqrt(np.mean((target - predicted[:, 0]) ** 2)))
    if metric == "mae":
        return float(np.mean(np.abs(target - predicted[:, 0])))
    if metric == "accuracy":
        return float(np.mean(predicted.argmax(axis=1) != target))
    if metric == "auc":
        return 1.0 - auc_of(target, predicted[:, 1])
    sure = np.clip(predicted, FEWEST, 1.0)
    sure = sure / sure.sum(axis=1, keepdims=True)
    return float(-np.mean(np.log(sure[np.arange(len(target)), target])))


def auc_of(target: Array, score: Array) -> float:
    """Return the share of pairs of both classes that are in the right order; one class alone has 0.5."""
    from scipy.stats import rankdata

    right = target == 1
    if right.all() or not right.any():
        return 0.5
    ranks = rankdata(score)[right]
    count = int(right.sum())
    return float((ranks.sum() - count * (count + 1) / 2) / (count * (len(target) - count)))


def shown_score(metric: str, loss: float) -> float:
    """Return a loss as people know it: AUC and accuracy are to be large."""
    return 1.0 - loss if metric in ("auc", "accuracy") else loss
