"""Final models are the members of an ensemble, fitted to more rows than a trial had, each within its seconds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.auto.families.fitting import Deadline, FitRequest, fit_model
from weft.auto.families.spaces import FAMILIES
from weft.auto.features.view import fit_view
from weft.auto.folder import ModelTrial
from weft.auto.model import EnsembleMember
from weft.auto.preparing import PreparedTable
from weft.auto.search.budget import fit_s
from weft.auto.search.crew import core_count, run_together, threads_each
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
    """Return the models of an ensemble, fitted to some rows, as many at a time as there are cores."""
    costs = {number: fit_s(trials[number], 1.0) for number in weights}
    order = sorted(weights, key=lambda number: (-costs[number], number))  # a long one must not begin last
    plan = _ClosingTime(time.monotonic() + left_s, costs, core_count())
    cells = len(rows) * sum(role.used for role in prepared.roles)
    threads = threads_each(min(core_count(), len(order)), cells)

    def one_member(number: int, deadline: Deadline) -> EnsembleMember:
        deadline.at_s = min(deadline.at_s, plan.next_s(number))
        return _fit_member(prepared, trials[number], weights[number], rows, seed, deadline, threads)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = run_together(one_member, order, [Deadline() for _ in order], threads)
    found = dict(zip(order, made, strict=True))
    return [found[number] for number in weights]


@dataclass
class _ClosingTime:
    """The moment when all fits must be over, and what those that have not begun cost."""

    until_s: float
    costs: dict[int, float]
    cores: int

    def next_s(self, number: int) -> float:
        """Return the deadline of a fit that begins now: its share of the time, as others come after it on its core."""
        own, now = max(self.costs.pop(number), 1e-9), time.monotonic()
        after = sum(self.costs.values()) / self.cores
        return now + (self.until_s - now) * own / (own + after)


def _fit_member(
    prepared: PreparedTable,
    trial: ModelTrial,
    weight: float,
    rows: Array,
    seed: int,
    deadline: Deadline,
    threads: int,
) -> EnsembleMember:
    target, task = prepared.target[rows], prepared.task
    view, features = fit_view(
        FAMILIES[trial.family].view,
        prepared.table.take(rows),
        prepared.roles,
        as_targets(target, task),
        pairs=bool(trial.params.get("pairs")),
        steps=bool(trial.params.get("steps")),
        seed=seed,
    )
    asked = FitRequest(
        trial.params,
        features,
        target,
        task,
        view.categorical,
        rounds=trial.rounds,
        seed=seed,
        threads=threads,
        deadline=deadline,
    )
    fitted, _ = fit_model(trial.family, asked)
    return EnsembleMember(trial.name, weight, view, fitted)
