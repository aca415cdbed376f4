"""The search: which family is tried next, with which parameters, and when to stop."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weft.auto.columns import ColumnRole, Task
from weft.auto.families.fitting import Deadline, FitRequest, Judges, fit_model
from weft.auto.families.spaces import FAMILIES, ModelFamily
from weft.auto.features.view import FeatureView, fit_view
from weft.auto.folder import ModelTrial
from weft.auto.frames import RawTable
from weft.auto.search.budget import expected_s
from weft.auto.search.crew import core_count, run_together, threads_each
from weft.auto.validation import Splits, as_targets, loss_of
from weft.tune.study.study import Study

Array = np.ndarray[Any, Any]

ALIKE = 1.02  # times the best loss, at most, of trials that are kept where others were judged by fewer folds
MORE_FOLDS_SHARE = 0.25  # of the time left, in which a trial may be judged by more folds than all others were
HOPELESS = 1.15  # a first fold so many times worse than that of the best trial ends a trial
CACHE_BYTES = 1 << 30  # of features that are kept from trial to trial
FASTEST_RANK = 0.5  # a family gets this share of the time of the family before it in rank
LEAST_SHARE = 0.05


def next_family(
    trials: Sequence[ModelTrial], families: Sequence[ModelFamily], left_s: float = math.inf
) -> ModelFamily | None:
    """Return the family to try next: each once, then by time spent, in shares that halve from rank to rank.

    Families whose trials take longer than is left are passed over, but while no trial is judged there is always a
    next one, unless all failed. None where no family has a trial to run: each had all that its space needs, or the
    time is too short.
    """
    judged = any(trial.loss is not None for trial in trials)
    for family in families:
        untried = not any(trial.family == family.name for trial in trials)
        if untried and (least_s(trials) <= left_s or not judged):
            return family
    best = {family.name: _best_loss(trials, family.name) for family in families}
    ranked = sorted(families, key=lambda family: (best[family.name], family.name))

    def owed(family: ModelFamily) -> tuple[float, int]:
        own = [trial for trial in trials if trial.family == family.name]
        share = max(LEAST_SHARE, FASTEST_RANK ** ranked.index(family))
        return sum(trial.seconds for trial in own) / share, ranked.index(family)

    counts = Counter(trial.family for trial in trials)
    left = [
        family
        for family in ranked
        if 0 < counts[family.name] < family.most and expected_s(trials, family.name) <= left_s
    ]
    return min(left, key=owed) if left else None


def least_s(trials: Sequence[ModelTrial]) -> float:
    """Return what the first trial of a family takes at least: as long as the quickest trial of trees so far."""
    return min(
        (one.seconds for one in trials if one.family != "linear" and one.loss is not None), default=0.0
    )


def folds_in_common(trials: Sequence[ModelTrial], folds: int) -> int:
    """Return how many folds trials are compared by: the most that leave a trial about as good as the best of all.

    Slow trials end after some folds. Where quicker ones are as good, the slow ones are set aside; else all are compared
    by the folds that the slow ones have.
    """
    done = [one.fold_losses for one in trials if one.loss is not None]
    least = min(map(len, done), default=folds)
    best = min((_mean(losses[:least]) for losses in done), default=0.0)
    for count in sorted({len(losses) for losses in done}, reverse=True):
        if min(_mean(losses[:least]) for losses in done if len(losses) >= count) <= ALIKE * best:
            return count
    return least


def _mean(losses: Sequence[float]) -> float:
    return sum(losses) / max(1, len(losses))


def may_shorten(trials: Sequence[ModelTrial]) -> bool:
    """Return whether a trial that is too slow sets a smaller number of folds for all: where no trees are judged yet."""
    return all(one.family == "linear" or one.loss is None for one in trials)


def _best_loss(trials: Sequence[ModelTrial], family: str) -> float:
    losses = [trial.loss for trial in trials if trial.family == family and trial.loss is not None]
    return min(losses, default=math.inf)


def hopeless(losses: Sequence[float], best: Sequence[float]) -> bool:
    """Return whether the first folds of a trial are so much worse than the best trial's that the rest can be spared."""
    count = len(losses)
    return 0 < count < len(best) and sum(losses) > HOPELESS * sum(best[:count])


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


FeatureKey = tuple[Any, ...]
FoldFeatures = tuple[FeatureView, Any, Any]


@dataclass
class SearchData:
    """The rows of the search with their features, which are made once for each fold and kept while there is room."""

    table: RawTable
    target: Array
    roles: list[ColumnRole]
    task: Task
    splits: Splits
    seed: int
    _kept: dict[FeatureKey, FoldFeatures] = field(default_factory=dict)
    _bytes: int = 0
    _lock: Any = field(default_factory=threading.Lock)

    def features(self, kind: str, params: Mapping[str, Any], fold: int) -> FoldFeatures:
        """Return a view fitted to a fold's training rows, with the features of its two sides; threads may ask."""
        options = {"pairs": bool(params.get("pairs")), "steps": bool(params.get("steps"))}
        key = (kind, *options.values(), fold)
        if key in self._kept:
            return self._kept[key]
        rows = self.splits.folds[fold]
        goals = as_targets(self.target[rows.train], self.task)
        train_table = self.table.take(rows.train)
        view, train = fit_view(kind, train_table, self.roles, goals, seed=self.seed, **options)
        made = view, train, view.transform(self.table.take(rows.test))
        size = sum(_bytes_of(one) for one in made[1:])
        with self._lock:
            if self._bytes + size <= CACHE_BYTES:
                self._bytes += size
                self._kept[key] = made
        return made

    def cells(self, fold: int) -> int:
        """Return about how many numbers a fit to a fold looks at."""
        return len(self.splits.folds[fold].train) * sum(role.used for role in self.roles)


def _bytes_of(rows: Any) -> int:
    return int(rows.data.nbytes)


def comparable(trials: Sequence[ModelTrial], data: SearchData) -> list[ModelTrial]:
    """Return completed trials with at least the folds in common, and their losses and predictions of those folds."""
    count = folds_in_common(trials, len(data.splits.folds))
    rows = data.splits.judged_by(count)
    found = []
    for trial in trials:
        if trial.loss is None or trial.predicted is None or len(trial.fold_losses) < count:
            continue
        if len(trial.fold_losses) > count:
            predicted = trial.predicted[: len(rows)]
            loss = loss_of(data.task.metric, data.target[rows], predicted)
            trial = replace(trial, loss=loss, predicted=predicted)
        found.append(trial)
    return found


@dataclass(frozen=True)
class TrialLimits:
    """The limits of a trial: when it must be over, by how many folds it is judged, and whether fewer will do."""

    until_s: float = math.inf  # of the monotonic clock
    folds: int = (
        10_000  # that it must be judged by, if there are as many; further ones are judged until `more_s`
    )
    shorten: bool = False
    more_s: float = math.inf


def run_trial(
    data: SearchData,
    number: int,
    family: str,
    params: dict[str, Any],
    *,
    best: Sequence[float] = (),
    limits: TrialLimits = TrialLimits(),
) -> ModelTrial:
    """Fit and judge parameters, some folds at a time: completed, pruned where hopeless or too slow, or failed."""
    began = time.monotonic()
    done: list[FoldResult] = []

    def ended(state: str, why: str = "") -> ModelTrial:
        spent = time.monotonic() - began
        kept = tuple(one.loss for one in done) if state != "failed" else ()
        each = float(np.mean([one.seconds for one in done])) if done else spent
        return ModelTrial(
            number, family, dict(params), state, fold_losses=kept, seconds=spent, fit_s=each, why=why
        )

    needed = min(limits.folds, len(data.splits.folds))
    for wave in fold_waves(needed, len(data.splits.folds), core_count()):
        if len(done) >= needed and _too_late(began, len(done), wave, limits.more_s):
            break
        if done and _too_late(began, len(done), wave, limits.until_s):
            if limits.shorten or len(done) >= needed:
                break
            return ended("pruned", f"too slow: {len(done)} folds in {time.monotonic() - began:.1f} s")
        try:
            found = _some_folds(data, family, params, wave, limits)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError, MemoryError, RuntimeError) as error:
            why = f"{type(error).__name__}: {(str(error) or 'no reason given').splitlines()[0]}"
            return ended("failed", why)
        cut = next((place for place, one in enumerate(found) if one.cut), None)
        if cut is not None and not limits.shorten and len(done) < needed:
            return ended("pruned", f"too slow: it had {time.monotonic() - began:.1f} s")
        done += found if cut is None else found[: max(cut, 0 if done else 1)]
        if cut is not None:
            break
        if hopeless([one.loss for one in done], best):
            return ended("pruned", f"its first {len(done)} folds are much worse than those of the best trial")
    joined = np.concatenate([one.predicted for one in done])
    rounds = [one.rounds for one in done if one.rounds is not None]
    return replace(
        ended("completed"),
        loss=loss_of(data.task.metric, data.target[data.splits.judged_by(len(done))], joined),
        rounds=round(float(np.mean(rounds)) * 1.05) if rounds else None,
        predicted=joined,
    )


def fold_waves(needed: int, count: int, cores: int) -> list[range]:
    """Return the folds that are fitted at the same time, wave by wave: first those that are needed, then the others."""
    ends = ((0, needed), (needed, count))
    return [
        range(first, min(first + cores, end))
        for start, end in ends
        for first in range(start, end, max(1, cores))
    ]


def _too_late(began: float, done: int, wave: range, until_s: float) -> bool:
    """Return whether a wave of folds will end after a moment, if it takes as long as those before."""
    now = time.monotonic()
    return now + (now - began) * len(wave) / done > until_s


@dataclass(frozen=True)
class FoldResult:
    """The result of a fold: its loss, what was predicted, its rounds, and whether the deadline ended it."""

    loss: float
    predicted: Array
    rounds: int | None
    seconds: float
    cut: bool


def _some_folds(
    data: SearchData, family: str, params: dict[str, Any], wave: range, limits: TrialLimits
) -> list[FoldResult]:
    threads = threads_each(len(wave), data.cells(wave[0]))

    def one_fold(fold: int, deadline: Deadline) -> FoldResult:
        return _one_fold(data, family, params, fold, deadline, threads)

    with warnings.catch_warnings():  # around all threads: filters are the process's
        warnings.simplefilter("ignore")
        return run_together(one_fold, wave, [Deadline(limits.until_s) for _ in wave], threads)


def _one_fold(
    data: SearchData, family: str, params: dict[str, Any], fold: int, deadline: Deadline, threads: int
) -> FoldResult:
    began = time.monotonic()
    rows = data.splits.folds[fold]
    view, train, test = data.features(FAMILIES[family].view, params, fold)
    asked = FitRequest(
        params,
        train,
        data.target[rows.train],
        data.task,
        view.categorical,
        Judges(test, data.target[rows.test]),
        seed=data.seed,
        threads=threads,
        deadline=deadline,
    )
    model, predicted = fit_model(family, asked)
    assert predicted is not None
    if not np.isfinite(predicted).all():
        raise ArithmeticError("predictions must be finite, got others")
    loss = loss_of(data.task.metric, data.target[rows.test], predicted)
    return FoldResult(loss, predicted, model.rounds, time.monotonic() - began, deadline.passed)
