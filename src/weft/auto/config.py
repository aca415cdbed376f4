"""The settings of a run of `weft.auto`, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.errors import UsageError

TASKS = ("auto", "classes", "numbers")
METRICS = {"classes": ("log_loss", "auc", "accuracy"), "numbers": ("rmse", "mae")}
FAMILIES = ("linear", "forest", "boosting", "network", "lightgbm", "xgboost", "catboost")
LONGEST_MINUTES = 7 * 24 * 60


@dataclass(frozen=True, kw_only=True)
class AutoConfig:
    """The settings of a run: what to predict, how to validate, and how long to look for better models."""

    target: str
    minutes: float = 10.0
    task: str = "auto"
    metric: str | None = None  # None: log_loss of classes, rmse of numbers
    time: str | None = None  # the column by which rows are in order: validation is always later than training
    group: str | None = None  # rows with the same value of it are never on both sides of a split
    fairness: tuple[str, ...] = ()  # columns whose groups must be treated alike
    drop: tuple[str, ...] = ()  # columns to leave out
    models: tuple[str, ...] = ()  # families; none: all that are installed
    trials: int | None = None  # at most so many, if the time allows them
    seed: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.minutes, (int, float)) and math.isfinite(self.minutes)):
            raise UsageError(f"--minutes must be a number, got {self.minutes!r}; write --minutes 10")
        if not 0 < self.minutes <= LONGEST_MINUTES:
            raise UsageError(
                f"--minutes must be above 0 and at most {LONGEST_MINUTES}, got {self.minutes:g}; write --minutes 10"
            )
        if self.task not in TASKS:
            raise UsageError(f"--task must be one of {', '.join(TASKS)}, got {self.task!r}; leave it out")
        known = sorted({name for names in METRICS.values() for name in names})
        if self.metric is not None and self.metric not in known:
            raise UsageError(f"--metric must be one of {', '.join(known)}, got {self.metric!r}; leave it out")
        if self.time is not None and self.group is not None:
            raise UsageError("--time must come without --group, got both; choose what splits the rows")
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"--trials must be at least 1, got {self.trials}; leave it out")
        strange = [name for name in self.models if name not in FAMILIES]
        if strange:
            raise UsageError(f"--model must be one of {', '.join(FAMILIES)}, got {strange[0]!r}; choose one")
        if self.target in (*self.drop, self.time, self.group):
            raise UsageError(
                f"--target must be a column of its own, got {self.target!r} for two purposes; name another"
            )
