"""The search: which family is tried next, with which parameters, and when to stop."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.auto.columns import ColumnRole, Task
from weft.auto.families import FAMILIES, Judges, ModelFamily, fit_model
from weft.auto.features.view import FeatureView, fit_view
from weft.auto.folder import ModelTrial
from weft.auto.frames import RawTable
from weft.auto.validation import Splits, as_targets, loss_of
from weft.tune.study.study import Study

Array = np.ndarray[Any, Any]

HOPELESS = 1.15  # a first fold so many times worse than that of the best trial ends a trial
CACHE_BYTES = 1 << 30  # of features that are kept from trial to trial
FASTEST_RANK = 0.5  # a family gets this share of the time of the family before it in rank
LEAST_SHARE = 0.05


def next_family(trials: Sequence[ModelTrial], families: Sequence[ModelFamily]) -> ModelFamily | None:
    """Return the family to try next: each once, then by time spent, in shares that halve from rank to rank.

    None where every family has had all the trials that its space needs.
    """
    for family in families:
        if not any(trial.family == family.name for trial in trials):
            return family
    best = {family.name: _best_loss(trials, family.name) for family in families}
    ranked = sorted(families, key=lambda family: (best[family.name], family.name))

    def owed(family: ModelFamily) -> tuple[float, int]:
        own = [trial for trial in trials if trial.family == family.name]
        share = max(LEAST_SHARE, FASTEST_RANK ** ranked.index(family))
        return sum(trial.seconds for trial in own) / share, ranked.index(family)

    counts = Counter(trial.family for trial in trials)
    left = [family for family in ranked if counts[family.name] < family.most]
    return min(left, key=owed) if left else None


def _best_loss(trials: Sequence[ModelTrial], family: str) -> float:
    losses = [trial.loss for trial in trials if trial.family == family and trial.loss is not None]
    return min(losses, default=math.inf)


def hopeless(losses: Sequence[float], best: Sequence[float]) -> bool:
    """Return whether the first fold of a trial is so much worse than the best trial's that the rest can be spared."""
    return bool(best) and len(losses) == 1 and losses[0] > HOPELESS * best[0]


def finishing_s(trials: Sequence[ModelTrial], folds: int) -> float:
    """Return about how long the fits of the final models will take: two for each of a few of the best."""
    done = sorted((trial for trial in trials if trial.loss is not None), key=lambda trial: trial.loss or 0.0)
    return sum(2.5 * trial.seconds / folds for trial in done[:4]) + 1.0


class Suggestions:
    """Parameters for the next trial of each family, from a study of its trials so far."""

    def __init__(self, trials: Sequence[ModelTrial], seed: int) -> None:
        self.seed = seed
        self._studies: dict[str, Study] = {}
        self._asked: dict[int, Any] = {}
        for trial in trials:
            self._study(trial.family).add(trial.params)
            self._told(trial, self._study(trial.family).ask())

    def _study(self, family: str) -> Study:
        if family not in self._studies:
            settings = {"name": "tpe", "startup": 6}
            self._studies[family] = Study(
                FAMILIES[family].space, minimize="loss", seed=self.seed, search=settings, failures=10_000
            )
        return self._studies[family]

    def next(self, family: str, number: int) -> dict[str, Any]:
        """Return the parameters of trial `number`; the first of a family are its defaults."""
        study = self._study(family)
        if not study.trials:
            study.add(FAMILIES[family].first)
        asked = study.ask()
        self._asked[number] = asked
        return dict(asked.params)

    def take(self, trial: ModelTrial) -> None:
        """Take in how a trial ended."""
        self._told(trial, self._asked.pop(trial.number))

    def _told(self, trial: ModelTrial, asked: Any) -> None:
        study = self._studies[trial.family]
        known = trial.loss if trial.loss is not None else (trial.fold_losses or (None,))[0]
        if known is None or not math.isfinite(known):
            study.tell(asked, failed=trial.why or "it failed")
        else:
            study.tell(asked, float(known))


@dataclass
class SearchData:
    """The rows of the search with their features, which are made once for each fold and kept while there is room."""

    table: RawTable
    target: Array
    roles: list[ColumnRole]
    task: Task
    splits: Splits
    seed: int
    _kept: dict[tuple[str, bool, int], tuple[FeatureView, Any, Any]] = field(default_factory=dict)
    _bytes: int = 0

    def features(self, kind: str, pairs: bool, fold: int) -> tuple[FeatureView, Any, Any]:
        """Return a view fitted to a fold's training rows, with the features of its two sides."""
        key = (kind, pairs, fold)
        if key in self._kept:
            return self._kept[key]
        rows = self.splits.folds[fold]
        goals = as_targets(self.target[rows.train], self.task)
        view, train = fit_view(
            kind, self.table.take(rows.train), self.roles, goals, pairs=pairs, seed=self.seed
        )
        made = view, train, view.transform(self.table.take(rows.test))
        size = sum(_bytes_of(one) for one in made[1:])
        if self._bytes + size <= CACHE_BYTES:
            self._bytes += size
            self._kept[key] = made
        return made


def _bytes_of(rows: Any) -> int:
    return int(rows.data.nbytes)


def run_trial(
    data: SearchData,
    number: int,
    family: str,
    params: dict[str, Any],
    *,
    best: Sequence[float] = (),
    over: Callable[[], bool] = lambda: False,
) -> ModelTrial | None:
    """Fit and judge parameters fold by fold; None where the time is over before all folds are done."""
    began = time.monotonic()
    losses: list[float] = []
    rounds: list[int] = []
    parts: list[Array] = []
    for fold in range(len(data.splits.folds)):
        if over() and fold:
            return None
        try:
            predicted, count = _one_fold(data, family, params, fold)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError, RuntimeError) as error:
            why = f"{type(error).__name__}: {(str(error) or 'no reason given').splitlines()[0]}"
            spent = time.monotonic() - began
            return ModelTrial(number, family, dict(params), "failed", seconds=spent, why=why)
        losses.append(loss_of(data.task.metric, data.target[data.splits.folds[fold].test], predicted))
        rounds += [count] if count is not None else []
        parts.append(predicted)
        if hopeless(losses, best):
            spent = time.monotonic() - began
            return ModelTrial(
                number, family, dict(params), "pruned", fold_losses=tuple(losses), seconds=spent,
                why=f"its first fold is {losses[0] / best[0]:.2f} times that of the best trial",
            )  # fmt: skip
    joined = np.concatenate(parts)
    return ModelTrial(
        number,
        family,
        dict(params),
        "completed",
        loss=loss_of(data.task.metric, data.target[data.splits.judged], joined),
        fold_losses=tuple(losses),
        rounds=round(float(np.mean(rounds)) * 1.05) if rounds else None,
        seconds=time.monotonic() - began,
        predicted=joined,
    )


def _one_fold(data: SearchData, family: str, params: dict[str, Any], fold: int) -> tuple[Array, int | None]:
    rows = data.splits.folds[fold]
    view, train, test = data.features(FAMILIES[family].view, bool(params.get("pairs")), fold)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, predicted = fit_model(
            family,
            params,
            train,
            data.target[rows.train],
            data.task,
            categorical=view.categorical,
            judges=Judges(test, data.target[rows.test]),
            seed=data.seed,
        )
    assert predicted is not None
    if not np.isfinite(predicted).all():
        raise ArithmeticError("predictions must be finite, got others")
    return predicted, model.rounds
