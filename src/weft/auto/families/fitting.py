"""Fits of any family: what a fit is asked for, its deadline and its threads, and the model that comes of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from weft.auto.columns import Task

Array = np.ndarray[Any, Any]
Params = Mapping[str, Any]

MOST_ROUNDS = 1500
PATIENCE = 30  # rounds without a better loss that end a boosting
LEAST_GAIN_OF_CLASSES = 5e-5  # of a log-loss
LEAST_GAIN_OF_NUMBERS = 1e-6  # where their spread is 1
PATIENT_FROM = 0.05  # rate below which it waits longer

FITTERS = {
    "linear": "weft.auto.families.own:fit_linear",
    "forest": "weft.auto.families.own:fit_forest",
    "boosting": "weft.auto.families.own:fit_boosting",
    "network": "weft.auto.families.network:fit_network",
    "lightgbm": "weft.auto.families.others:fit_lightgbm",
    "xgboost": "weft.auto.families.others:fit_xgboost",
    "catboost": "weft.auto.families.others:fit_catboost",
}


class Deadline:
    """A moment of the monotonic clock after which a fit ends; `passed` remembers that one was ended by it."""

    def __init__(self, at_s: float = math.inf) -> None:
        self.at_s = at_s
        self.passed = False

    @property
    def left_s(self) -> float:
        return self.at_s - time.monotonic()

    def over(self) -> bool:
        """Return whether the time is over; asked after each round of a boosting."""
        self.passed = self.passed or self.left_s <= 0
        return self.passed


@dataclass(frozen=True)
class Judges:
    """Rows that tell a boosting or a network when to stop."""

    rows: Any
    target: Array


@dataclass(frozen=True)
class FitRequest:
    """The request for one fit; with `rounds` and no judges, a model of so many rounds is made."""

    params: Params
    rows: Any
    target: Array
    task: Task
    categorical: tuple[int, ...] = ()
    judges: Judges | None = None
    rounds: int | None = None
    seed: int = 0
    threads: int = 1
    deadline: Deadline = field(default_factory=Deadline)

    @property
    def classes(self) -> int | None:
        return None if self.task.classes is None else len(self.task.classes)

    @property
    def most_rounds(self) -> int:
        return MOST_ROUNDS if self.rounds is None else self.rounds

    @property
    def least_gain(self) -> float:
        """The gain of a loss below which further rounds are not worth their time: a column may tell all."""
        if self.classes is not None:
            return LEAST_GAIN_OF_CLASSES
        spread = float(self.target.std())
        return LEAST_GAIN_OF_NUMBERS * (spread if self.task.metric == "mae" else spread**2)

    @property
    def patience(self) -> int:
        return PATIENCE if self.params["rate"] >= PATIENT_FROM else 2 * PATIENCE


@dataclass
class FittedModel:
    """A fitted estimator of a family; `rounds` is the best number of rounds that judges found."""

    family: str
    estimator: Any
    classes: int | None  # how many; None for numbers
    rounds: int | None = None
    cut: bool = False  # a deadline ended the fit before its time

    def predict(self, rows: Any) -> Array:
        """Return (rows, outputs): probabilities of all classes, or one number."""
        if self.classes is None:
            return np.asarray(self.estimator.predict(rows), np.float64).reshape(len_of(rows), 1)
        return np.asarray(self.estimator.predict_proba(rows), np.float64)


def len_of(rows: Any) -> int:
    return int(rows.shape[0])


def dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows


def fit_model(family: str, request: FitRequest) -> tuple[FittedModel, Array | None]:
    """Fit a model; with judges, also return what it predicts for them at its best round.

    At the deadline boostings and networks end with the rounds that they have, and forests with the trees.
    """
    module, name = FITTERS[family].split(":")
    fitter: Callable[[FitRequest], Any] = getattr(import_module(module), name)
    made = fitter(request)
    if isinstance(made, tuple):
        return made
    return made, None if request.judges is None else made.predict(request.judges.rows)
