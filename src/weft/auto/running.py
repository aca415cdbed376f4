"""A run from a table to a model: look, search within the time, blend, judge on held-out rows, fit again, keep."""

from __future__ import annotations

import json
import math
import pickle
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.auto.columns import ColumnRole, Task
from weft.auto.config import AutoConfig
from weft.auto.explaining import MOST_EXPLAINED, Explanation, explain, some_background
from weft.auto.families.spaces import ModelFamily, chosen_families
from weft.auto.findings import TableFinding
from weft.auto.folder import EXPLANATION, PROGRESS, RESULT, ModelTrial, RunFolder, fingerprint
from weft.auto.frames import RawTable, read_table
from weft.auto.model import FILE, AutoModel, EnsembleMember, Leaderboard, load
from weft.auto.preparing import PreparedTable, prepare
from weft.auto.search.board import leaderboard_of, prior_of
from weft.auto.search.budget import (
    EXPLAIN_SHARE,
    FEWEST_SEARCH_ROWS,
    MEMBER_SHARE,
    FinalPlan,
    affordable,
    explain_sizes,
    final_plan,
    first_trial_s,
    fit_s,
    fits_again,
    reserve_s,
    search_rows,
)
from weft.auto.search.crew import core_count
from weft.auto.search.ensemble import best_power, blended, greedy_weights, sharpened
from weft.auto.search.final import fit_members
from weft.auto.search.trials import (
    MORE_FOLDS_SHARE,
    SearchData,
    Suggestions,
    TrialLimits,
    comparable,
    folds_in_common,
    may_shorten,
    next_family,
    run_trial,
)
from weft.auto.validation import Splits, loss_of, shown_score, some_places
from weft.errors import DataError
from weft.files import write_whole

Array = np.ndarray[Any, Any]

# Seconds of compiling that count: more are spent once on a machine, before the minutes begin.
COUNTED_COMPILING_S = 3.0
RESERVED_MEMBERS = 4  # final models that the search keeps time for
LEAST_WEIGHT = 0.04  # a model with less of the ensemble is left out
MOST_MEMBERS = 5
FIRST_MODEL_SHARE = 0.15  # of the budget, which the first model and the last ones may take however late it is
MOST_FAILURES = 10  # trials without a model that end a run
MOST_TOLD = 100  # models of the leaderboard in the file of the progress
NOT_SEEN = "the model has not seen the held-out rows: there was no time for a fit to all rows"


@dataclass(frozen=True)
class AutoProgress:
    """The progress of a run: what it does, the seconds used of those it has, and the leaderboard so far."""

    doing: str
    spent_s: float
    budget_s: float
    board: Leaderboard
    columns: tuple[ColumnRole, ...] = ()
    findings: tuple[TableFinding, ...] = ()
    metric: str = ""

    def data(self) -> dict[str, Any]:
        """Return the progress as JSON holds it, with the first models of the leaderboard."""
        return {
            "doing": self.doing,
            "spent_s": round(self.spent_s, 1),
            "budget_s": self.budget_s,
            "metric": self.metric,
            "models": len(self.board),
            "leaderboard": [asdict(row) for row in self.board[:MOST_TOLD]],
            "columns": [asdict(role) for role in self.columns],
            "findings": [finding.data() for finding in self.findings],
        }


def fit(
    source: Any,
    target: str,
    *,
    minutes: float = 10.0,
    out: str | Path | None = None,
    on_progress: Callable[[AutoProgress], None] | None = None,
    **settings: Any,
) -> AutoModel:
    """Return the best model of a table that `minutes` can find; see `AutoConfig` for the other settings.

    `source` is a path, a frame of pandas, polars, DuckDB or Dask, an Arrow table or a mapping of
    columns. With `out`, the run is kept
    in that folder: called again after a fault, finished trials are read and not run again.
    """
    for name in ("fairness", "drop", "models"):
        given = settings.get(name, ())
        settings[name] = (given,) if isinstance(given, str) else tuple(given)
    return run(source, AutoConfig(target=target, minutes=minutes, **settings), out, on_progress)


def run(
    source: Any,
    config: AutoConfig,
    out: str | Path | None = None,
    on_progress: Callable[[AutoProgress], None] | None = None,
) -> AutoModel:
    """Carry out a run with checked settings."""
    began = time.monotonic()
    families = chosen_families(config.models)
    table = read_table(source, target=config.target)
    prepared = prepare(table, config, families)
    began += max(0.0, prepared.compiling_s - COUNTED_COMPILING_S)
    with ExitStack() as stack:
        path = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = stack.enter_context(RunFolder(path).held(config, fingerprint(table)))
        kept = _finished(folder, config)
        if kept is not None:
            return kept
        return _AutoRun(
            prepared, config, families, folder, on_progress or (lambda _: None), began
        ).carry_out()


def _finished(folder: RunFolder, config: AutoConfig) -> AutoModel | None:
    """Return the model of a run that is over, unless more time or more trials are asked for."""
    told = folder.result()
    if (
        told is None
        or told.get("minutes", 0) < config.minutes
        or told.get("fairness") != list(config.fairness)
    ):
        return None
    more = told.get("trials") is not None and (config.trials is None or config.trials > told["trials"])
    return None if more else load(folder.path)


def _has_all_classes(splits: Splits, target: Array, task: Task) -> bool:
    """Return whether every fold has rows of every class to train on."""
    if task.classes is None:
        return True
    own = target[splits.search]
    return all(len(np.unique(own[fold.train])) == len(task.classes) for fold in splits.folds)


@dataclass
class _AutoRun:
    """The steps of one run."""

    prepared: PreparedTable
    config: AutoConfig
    families: list[ModelFamily]
    folder: RunFolder
    tell: Callable[[AutoProgress], None]
    began: float

    def __post_init__(self) -> None:
        self.trials = self.folder.trials()
        self.before_s = sum(trial.seconds for trial in self.trials)
        self.notes: list[str] = []
        one = self.prepared
        splits = self._search_splits()
        self.data = SearchData(
            one.table.take(splits.search),
            one.target[splits.search],
            one.roles,
            one.task,
            splits,
            self.config.seed,
        )

    def _search_splits(self) -> Splits:
        """Return the splits that the search looks at: of all its rows, or of as many as the budget can afford."""
        one = self.prepared
        whole, target = one.splits, one.target[one.splits.search]
        # Text becomes 16 topics for trees, and thousands of words for lines.
        columns = sum(20 if role.role == "text" else 1 for role in one.roles if role.used)
        outputs = 1 if one.task.outputs <= 2 else one.task.outputs
        count = self.folder.search_rows(search_rows(len(target), columns, outputs, self.budget_s))
        thinned = whole.thinned(some_places(target, one.task, count, self.config.seed))
        if len(thinned.search) == len(whole.search) or not _has_all_classes(thinned, one.target, one.task):
            return whole
        self.notes.append(f"models were chosen by {len(thinned.search):,} of {len(whole.search):,} rows")
        return thinned

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self.began + self.before_s

    @property
    def budget_s(self) -> float:
        return self.config.minutes * 60

    def carry_out(self) -> AutoModel:
        """Search, then finish."""
        self._say("a baseline")
        self._search()
        return self._finish()

    def _search(self) -> None:
        suggestions = Suggestions(self.trials, self.config.seed)
        while not self._over():
            chosen = next_family(self.trials, self.families, self._left_s())
            if chosen is None:
                break
            family, number = chosen.name, len(self.trials)
            params = suggestions.next(family, number)
            self._say(f"{family} {number}")
            limits = self._limits(family)
            trial = run_trial(
                self.data, number, family, params, best=self._best_losses(family), limits=limits
            )
            self.folder.keep(trial)
            self.trials.append(trial)
            suggestions.take(trial)
            if len(self.trials) >= MOST_FAILURES and not self._completed():
                break
        if not self._completed():
            why = self.trials[-1].why if self.trials else "no family of models is installed"
            raise DataError(f"some model must be fitted, got only failures: {why}; look at the table")

    def _limits(self, family: str) -> TrialLimits:
        """Return the limits of the next trial of a family; the very first one of all is carried through."""
        tried = {trial.family for trial in self.trials}
        folds = folds_in_common(self.trials, len(self.data.splits.folds))
        left_s = self._left_s()
        if family not in tried:
            left_s = first_trial_s(left_s, sum(one.name not in tried for one in self.families))
        more_s = time.monotonic() + MORE_FOLDS_SHARE * self._left_s()
        if not self._completed():
            left_s = max(left_s, FIRST_MODEL_SHARE * self.budget_s)
            return TrialLimits(time.monotonic() + left_s, folds, shorten=True, more_s=more_s)
        return TrialLimits(time.monotonic() + left_s, folds, may_shorten(self.trials), more_s)

    def _completed(self) -> list[ModelTrial]:
        return comparable(self.trials, self.data)

    def _best_losses(self, family: str) -> Sequence[float]:
        """Return the folds' losses of the best trial; none for the first of a family, which is judged by all."""
        if not any(trial.family == family for trial in self.trials) or not self._completed():
            return ()
        return min(self._completed(), key=lambda trial: trial.loss or 0.0).fold_losses

    @property
    def _growth(self) -> float:
        """How many times more rows a final model has than that of a fold on average: by time, folds grow."""
        return len(self.prepared.splits.search) / float(
            np.mean([len(fold.train) for fold in self.data.splits.folds])
        )

    def _left_s(self) -> float:
        """Return the seconds that are left for the search, after what the final models will need."""
        if not self.trials:
            return self.budget_s - self.spent_s - reserve_s((), 1.0, self.budget_s)
        done = sorted(self._completed(), key=lambda trial: trial.loss or 0.0)
        done = affordable(done, self._costs_s(), MEMBER_SHARE * self.budget_s / 2)
        reserve = reserve_s(done[:RESERVED_MEMBERS], self._growth, self.budget_s, core_count())
        return self.budget_s - self.spent_s - reserve

    def _over(self) -> bool:
        enough = self.config.trials is not None and len(self.trials) >= self.config.trials
        enough = enough or self.folder.asked_to_stop()
        return bool(self._completed()) and (enough or self._left_s() <= 0)

    @property
    def _judged_target(self) -> Array:
        """The target of the rows that all trials were judged by."""
        count = folds_in_common(self.trials, len(self.data.splits.folds))
        return self.data.target[self.data.splits.judged_by(count)]

    def _costs_s(self) -> dict[int, float]:
        """Return the seconds of a final model of each trial."""
        return {trial.number: fit_s(trial, self._growth) for trial in self.trials}

    def _weights(self, room_s: float = math.inf) -> dict[int, float]:
        """Return the weights of the ensemble, of models that can be fitted in some seconds."""
        chosen = affordable(self._completed(), self._costs_s(), room_s)
        done = {trial.number: trial.predicted for trial in chosen if trial.predicted is not None}
        target = self._judged_target
        found = greedy_weights(done, target, self.prepared.task.metric)
        most = sorted(found, key=lambda number: -found[number])[:MOST_MEMBERS]
        kept = {number: found[number] for number in most if found[number] >= LEAST_WEIGHT}
        return {number: weight / sum(kept.values()) for number, weight in kept.items()}

    def _say(self, doing: str) -> None:
        board = self._board({}, {})
        one = self.prepared
        columns, findings = tuple(one.roles), tuple(one.findings)
        told = AutoProgress(doing, self.spent_s, self.budget_s, board, columns, findings, one.task.metric)
        self.folder.tell(PROGRESS, told.data())
        self.tell(told)

    def _board(self, held: dict[str, float], weights: dict[int, float]) -> Leaderboard:
        """Return all models that were judged, the best first, with the ensemble and the baseline."""
        done = self._completed()
        weights = weights or (self._weights() if done else {})
        seconds = sum(trial.seconds for trial in self.trials)
        metric, target = self.prepared.task.metric, self._judged_target
        power = self._power(weights)
        return leaderboard_of(metric, target, done, weights, held, self._prior(len(target)), seconds, power)

    def _power(self, weights: Mapping[int, float]) -> float:
        """Return the power that probabilities of a blend are raised to, found on rows that no model was trained on."""
        if self.prepared.task.metric != "log_loss" or not weights:
            return 1.0
        predicted = {one.number: one.predicted for one in self._completed() if one.predicted is not None}
        return best_power(blended(predicted, weights), self._judged_target)

    def _prior(self, rows: int) -> Array:
        return prior_of(self.prepared.task, self.data.target, rows)

    def _finish(self) -> AutoModel:
        one, task = self.prepared, self.prepared.task
        plan = self._final_plan()
        self._say("models for the held-out rows")
        places = some_places(
            one.target[one.splits.search],
            task,
            int(plan.rows_share * len(one.splits.search)),
            self.config.seed,
        )
        rows = one.splits.search[places]
        began = time.monotonic()
        members = self._members(plan, rows, max(0.55 * self._remaining_s, FIRST_MODEL_SHARE * self.budget_s))
        first_s = time.monotonic() - began
        held_rows, truth = one.table.take(one.splits.held), one.target[one.splits.held]
        began = time.monotonic()
        judged = {member.name: member.predict(held_rows) for member in members}
        row_s = (time.monotonic() - began) / len(truth)
        power = self._power(plan.weights)
        whole = sharpened(sum(member.weight * judged[member.name] for member in members), power)
        held = {name: loss_of(task.metric, truth, predicted) for name, predicted in judged.items()}
        held["ensemble"] = loss_of(task.metric, truth, whole)
        held["baseline"] = loss_of(task.metric, truth, self._prior(len(truth)))
        held = {name: shown_score(task.metric, loss) for name, loss in held.items()}
        model = AutoModel(
            task,
            one.roles,
            members,
            self._board(held, plan.weights),
            one.findings,
            one.splits.how,
            len(one.target),
            notes=self.notes,
            power=power,
        )
        self._say("explanations")
        model.explanation = self._explained(model, held_rows, truth, whole, row_s)
        final = self._fitted_to_all(model, plan, first_s, len(rows))
        self._keep(final)
        return final

    @property
    def _remaining_s(self) -> float:
        return self.budget_s - self.spent_s

    def _final_plan(self) -> FinalPlan:
        """Return the members and rows of the final models, for which there is time."""
        costs = self._costs_s()
        left_s = self._remaining_s - EXPLAIN_SHARE * self.budget_s
        weights = self._weights(0.5 * left_s)
        least = min(1.0, FEWEST_SEARCH_ROWS / len(self.prepared.splits.search))
        plan = final_plan(weights, costs, left_s, least, cores=core_count())
        if len(plan.weights) < len(weights):
            self.notes.append(
                f"{len(plan.weights)} of {len(weights)} models are blended: there was no time for more"
            )
        if plan.rows_share < 1:
            self.notes.append(
                f"final models are of {plan.rows_share:.0%} of the rows: there was no time for more"
            )
        return plan

    def _explained(
        self, model: AutoModel, held: RawTable, truth: Array, whole: Array, row_s: float
    ) -> Explanation:
        began = time.monotonic()
        model.raw(held.take(np.arange(1)))
        call_s = time.monotonic() - began
        left_s = max(EXPLAIN_SHARE * self.budget_s, 0.3 * self._remaining_s)
        sizes = explain_sizes(min(len(model.kinds), MOST_EXPLAINED + 1), row_s, call_s, left_s)
        seen = self.prepared.table.take(self.prepared.splits.search)
        model.background = some_background(model, seen, np.random.default_rng(self.config.seed))
        return explain(model, seen, held, truth, self.config.fairness, self.config.seed, sizes, whole)

    def _fitted_to_all(self, model: AutoModel, plan: FinalPlan, first_s: float, rows: int) -> AutoModel:
        """Return the model fitted to all rows, or as it is where there is no time for that."""
        every = len(self.prepared.target)
        if not fits_again(first_s, every / rows, self._remaining_s):
            self.notes.append(NOT_SEEN)
            return model
        self._say("models of all rows")
        members = self._members(plan, np.arange(every), self._remaining_s)
        if any(member.model.cut for member in members):
            self.notes.append(NOT_SEEN)
            return model
        return replace(model, members=members)

    def _members(self, plan: FinalPlan, rows: Array, left_s: float) -> list[EnsembleMember]:
        return fit_members(self.prepared, self.trials, plan.weights, rows, left_s, self.config.seed)

    def _keep(self, model: AutoModel) -> None:
        write_whole(self.folder.path / FILE, pickle.dumps(model))
        told = {
            **model.data(),
            "minutes": self.config.minutes,
            "trials": self.config.trials,
            "fairness": list(self.config.fairness),
            "seconds": round(self.spent_s, 1),
        }
        if model.explanation is not None:
            self.folder.tell(EXPLANATION, model.explanation.data())
        write_whole(self.folder.path / RESULT, json.dumps(told, indent=2))
        self.folder.forget_stop()
