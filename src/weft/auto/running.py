"""A run from a table to a model: look, search within the time, blend, judge on held-out rows, fit again, keep."""

from __future__ import annotations

import json
import pickle
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.auto.columns import ColumnRole, Task, find_roles, find_task
from weft.auto.config import AutoConfig
from weft.auto.ensemble import blended, greedy_weights
from weft.auto.explaining import explain
from weft.auto.families import FAMILIES, ModelFamily, chosen_families, fit_model
from weft.auto.features.view import fit_view
from weft.auto.findings import TableFinding, column_findings, drift_findings, leak_findings
from weft.auto.folder import RESULT, ModelTrial, RunFolder, fingerprint
from weft.auto.frames import RawTable, read_table
from weft.auto.model import FILE, AutoModel, BoardRow, EnsembleMember, Leaderboard, load
from weft.auto.searching import SearchData, Suggestions, finishing_s, next_family, run_trial
from weft.auto.validation import Splits, as_targets, loss_of, shown_score, split_rows
from weft.errors import DataError
from weft.files import write_whole

Array = np.ndarray[Any, Any]

LEAST_WEIGHT = 0.04  # a model with less of the ensemble is left out
MOST_MEMBERS = 5


@dataclass(frozen=True)
class AutoProgress:
    """The progress of a run: what it does, the seconds used of those it has, and the leaderboard so far."""

    doing: str
    spent_s: float
    budget_s: float
    board: Leaderboard
    columns: tuple[ColumnRole, ...] = ()
    findings: tuple[TableFinding, ...] = ()


@dataclass(frozen=True)
class PreparedTable:
    """A table that has been looked at: its task, roles, rows and splits, and what was found."""

    task: Task
    roles: list[ColumnRole]
    table: RawTable  # of rows whose target is known
    target: Array
    splits: Splits
    findings: list[TableFinding]


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

    `source` is a path, a frame of pandas or polars, an Arrow table or a mapping of columns. With `out`, the run is kept
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
    table = read_table(source)
    prepared = prepare(table, config)
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


def prepare(table: RawTable, config: AutoConfig) -> PreparedTable:
    """Look at a table: its task, the roles of its columns, its splits; DataError says what is wrong with it."""
    if not len(table):
        raise DataError("the table must have rows, got none; check the file")
    roles = find_roles(table, config)
    task, rows, target = find_task(table, config)
    table = table.take(rows)
    splits = split_rows(
        target,
        task,
        time=None if config.time is None else _times(table, config.time),
        group=None if config.group is None else table.values(config.group).astype(str),
        seed=config.seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [
            *column_findings(roles),
            *leak_findings(table.take(splits.search), roles, target[splits.search], task, config.seed),
            *_drift(table, roles, splits, config),
        ]
    return PreparedTable(task, roles, table, target, splits, found)


def _times(table: RawTable, name: str) -> Array:
    if table[name].kind == "text":
        raise DataError(
            f"--time must be a column of dates or numbers, got text in {name!r}; write dates as 2024-12-31"
        )
    return table.values(name)


def _drift(
    table: RawTable, roles: list[ColumnRole], splits: Splits, config: AutoConfig
) -> list[TableFinding]:
    others = [role for role in roles if role.name != config.time]
    if config.time is not None:
        return drift_findings(
            table.take(splits.search), table.take(splits.held), others, "the latest rows", config.seed
        )
    cut = int(0.8 * len(table))
    parts = table.take(np.arange(cut)), table.take(np.arange(cut, len(table)))
    return drift_findings(
        *parts, others, "the last fifth of the rows, in the order of the file,", config.seed
    )


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
        one = self.prepared
        rows = one.splits.search
        self.data = SearchData(
            one.table.take(rows), one.target[rows], one.roles, one.task, one.splits, self.config.seed
        )

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
            chosen = next_family(self.trials, self.families)
            if chosen is None:
                return
            family = chosen.name
            number = len(self.trials)
            params = suggestions.next(family, number)
            self._say(f"{family} {number}")
            over = (lambda: self._late()) if self._completed() else (lambda: False)
            trial = run_trial(self.data, number, family, params, best=self._best_losses(family), over=over)
            if trial is None:
                return
            self.folder.keep(trial)
            self.trials.append(trial)
            suggestions.take(trial)
            if len(self.trials) >= 10 and not self._completed():
                raise DataError(
                    f"some model must be fitted, got only failures: {trial.why}; look at the table"
                )

    def _completed(self) -> list[ModelTrial]:
        return [trial for trial in self.trials if trial.loss is not None]

    def _best_losses(self, family: str) -> Sequence[float]:
        """Return the folds' losses of the best trial; none for the first of a family, which is judged by all."""
        if not any(trial.family == family for trial in self.trials) or not self._completed():
            return ()
        return min(self._completed(), key=lambda trial: trial.loss or 0.0).fold_losses

    def _late(self) -> bool:
        return self.spent_s + finishing_s(self.trials, len(self.data.splits.folds)) > self.budget_s

    def _over(self) -> bool:
        enough = self.config.trials is not None and len(self.trials) >= self.config.trials
        return bool(self._completed()) and (enough or self._late())

    def _weights(self) -> dict[int, float]:
        done = {trial.number: trial.predicted for trial in self._completed() if trial.predicted is not None}
        target = self.data.target[self.data.splits.judged]
        found = greedy_weights(done, target, self.prepared.task.metric)
        most = sorted(found, key=lambda number: -found[number])[:MOST_MEMBERS]
        kept = {number: found[number] for number in most if found[number] >= LEAST_WEIGHT}
        return {number: weight / sum(kept.values()) for number, weight in kept.items()}

    def _say(self, doing: str) -> None:
        board = self._board({}, {})
        one = self.prepared
        self.tell(
            AutoProgress(doing, self.spent_s, self.budget_s, board, tuple(one.roles), tuple(one.findings))
        )

    def _board(self, held: dict[str, float], weights: dict[int, float]) -> Leaderboard:
        """Return all models that were judged, the best first, with the ensemble and the baseline."""
        metric = self.prepared.task.metric
        target = self.data.target[self.data.splits.judged]
        weights = weights or (self._weights() if self._completed() else {})
        rows = [
            (trial.loss or 0.0, trial.name, weights.get(trial.number, 0.0), trial.seconds, trial.params)
            for trial in self._completed()
        ]
        rows.append((loss_of(metric, target, self._prior(len(target))), "baseline", 0.0, 0.0, {}))
        if weights:
            done = {
                trial.number: trial.predicted for trial in self._completed() if trial.predicted is not None
            }
            loss = loss_of(metric, target, blended(done, weights))
            rows.append((loss, "ensemble", 1.0, sum(trial.seconds for trial in self.trials), {}))
        rows.sort(key=lambda row: (row[0], row[1] != "ensemble", row[1]))
        return Leaderboard(
            BoardRow(name, shown_score(metric, loss), held.get(name), weight, seconds, params)
            for loss, name, weight, seconds, params in rows
        )

    def _prior(self, rows: int) -> Array:
        """Return what a model that looks at no column says: the mean, or the shares of classes."""
        task, target = self.prepared.task, self.data.target
        if task.classes is None:
            return np.full((rows, 1), target.mean())
        shares = np.bincount(target, minlength=len(task.classes)) / len(target)
        return np.tile(shares, (rows, 1))

    def _finish(self) -> AutoModel:
        one, task = self.prepared, self.prepared.task
        weights = self._weights()
        self._say("models for the held-out rows")
        members = self._members(weights, one.splits.search)
        held_rows, truth = one.table.take(one.splits.held), one.target[one.splits.held]
        judged = {member.name: member.predict(held_rows) for member in members}
        whole = np.asarray(sum(member.weight * judged[member.name] for member in members))
        held = {name: loss_of(task.metric, truth, predicted) for name, predicted in judged.items()}
        held["ensemble"] = loss_of(task.metric, truth, whole)
        held["baseline"] = loss_of(task.metric, truth, self._prior(len(truth)))
        held = {name: shown_score(task.metric, loss) for name, loss in held.items()}
        model = AutoModel(
            task,
            one.roles,
            members,
            self._board(held, weights),
            one.findings,
            one.splits.how,
            len(one.target),
        )
        self._say("explanations")
        model.explanation = explain(
            model, one.table.take(one.splits.search), held_rows, truth, self.config.fairness, self.config.seed
        )
        self._say("models of all rows")
        final = replace(model, members=self._members(weights, np.arange(len(one.target))))
        self._keep(final)
        return final

    def _members(self, weights: dict[int, float], rows: Array) -> list[EnsembleMember]:
        """Return the models of an ensemble, fitted to some rows."""
        one = self.prepared
        table, target = one.table.take(rows), one.target[rows]
        found = []
        for number, weight in weights.items():
            trial = self.trials[number]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                view, features = fit_view(
                    FAMILIES[trial.family].view,
                    table,
                    one.roles,
                    as_targets(target, one.task),
                    pairs=bool(trial.params.get("pairs")),
                    seed=self.config.seed,
                )
                fitted, _ = fit_model(
                    trial.family,
                    trial.params,
                    features,
                    target,
                    one.task,
                    categorical=view.categorical,
                    rounds=trial.rounds,
                    seed=self.config.seed,
                )
            found.append(EnsembleMember(trial.name, weight, view, fitted))
        return found

    def _keep(self, model: AutoModel) -> None:
        write_whole(self.folder.path / FILE, pickle.dumps(model))
        told = {
            **model.data(),
            "minutes": self.config.minutes,
            "trials": self.config.trials,
            "fairness": list(self.config.fairness),
            "seconds": round(self.spent_s, 1),
        }
        write_whole(self.folder.path / RESULT, json.dumps(told, indent=2))
