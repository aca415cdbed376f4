"""The leaderboard of a search: models that were judged, their blend, and a model that looks at no column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.auto.columns import Task
from weft.auto.folder import ModelTrial
from weft.auto.model import BoardRow, Leaderboard
from weft.auto.search.ensemble import blended, sharpened
from weft.auto.validation import loss_of, shown_score

Array = np.ndarray[Any, Any]


def prior_of(task: Task, target: Array, rows: int) -> Array:
    """Return what a model that looks at no column says of some rows: the mean, or the shares of classes."""
    if task.classes is None:
        return np.full((rows, 1), target.mean())
    shares = np.bincount(target, minlength=len(task.classes)) / len(target)
    return np.tile(shares, (rows, 1))


def leaderboard_of(
    metric: str,
    target: Array,
    trials: Sequence[ModelTrial],
    weights: Mapping[int, float],
    held: Mapping[str, float],
    prior: Array,
    seconds: float,
    power: float = 1.0,
) -> Leaderboard:
    """Return completed trials, the best first, with their ensemble and the baseline."""
    rows = [
        (trial.loss or 0.0, trial.name, weights.get(trial.number, 0.0), trial.seconds, trial.params)
        for trial in trials
    ]
    rows.append((loss_of(metric, target, prior), "baseline", 0.0, 0.0, {}))
    if weights:
        done = {trial.number: trial.predicted for trial in trials if trial.predicted is not None}
        whole = sharpened(blended(done, weights), power)
        params = {"power": power} if power != 1 else {}
        rows.append((loss_of(metric, target, whole), "ensemble", 1.0, seconds, params))
    rows.sort(key=lambda row: (row[0], row[1] != "ensemble", row[1]))
    return Leaderboard(
        BoardRow(name, shown_score(metric, loss), held.get(name), weight, spent, params)
        for loss, name, weight, spent, params in rows
    )
