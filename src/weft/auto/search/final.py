"""Final models are the members of an ensemble, fitted to more rows than a trial had, each within its seconds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.auto.families import FAMILIES, Deadline, fit_model
from weft.auto.features.view import fit_view
from weft.auto.folder import ModelTrial
from weft.auto.model import EnsembleMember
from weft.auto.preparing import PreparedTable
from weft.auto.search.budget import fit_s
from weft.auto.validation import as_targets

Array = np.ndarray[Any, Any]


def fit_members(
    prepared: PreparedTable,
    trials: Sequence[ModelTrial],
    weights: Mapping[int, float],
    rows: Array,
    left_s: float,
    seed: int,
) -> list[EnsembleMember]:
    """Return the models of an ensemble, fitted to some rows; each has its share of the seconds."""
    costs = {number: fit_s(trials[number], 1.0) for number in weights}
    until_s, found = time.monotonic() + left_s, []
    for number, weight in weights.items():
        share = costs[number] / max(1e-9, sum(costs.values()))
        now = time.monotonic()
        deadline = Deadline(now + share * (until_s - now))
        found.append(_fit_member(prepared, trials[number], weight, rows, seed, deadline))
        del costs[number]
    return found


def _fit_member(
    prepared: PreparedTable, trial: ModelTrial, weight: float, rows: Array, seed: int, deadline: Deadline
) -> EnsembleMember:
    target, task = prepared.target[rows], prepared.task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        view, features = fit_view(
            FAMILIES[trial.family].view,
            prepared.table.take(rows),
            prepared.roles,
            as_targets(target, task),
            pairs=bool(trial.params.get("pairs")),
            seed=seed,
        )
        fitted, _ = fit_model(
            trial.family,
            trial.params,
            features,
            target,
            task,
            categorical=view.categorical,
            rounds=trial.rounds,
            seed=seed,
            deadline=deadline,
        )
    return EnsembleMember(trial.name, weight, view, fitted)
