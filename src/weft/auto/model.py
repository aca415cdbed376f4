"""The model of a run: an ensemble of pipelines that takes raw rows, with what is known about it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.auto.columns import ColumnRole, Task
from weft.auto.families.fitting import FittedModel
from weft.auto.features.view import FeatureView
from weft.auto.findings import TableFinding
from weft.auto.frames import RawTable, read_table
from weft.auto.search.ensemble import sharpened
from weft.auto.validation import shown_score
from weft.errors import ModelError
from weft.text import format_table

if TYPE_CHECKING:
    from weft.auto.explaining import ColumnImportance, ExplainedRow, Explanation

Array = np.ndarray[Any, Any]

FILE = "model.pkl"


@dataclass(frozen=True)
class BoardRow:
    """One model of the leaderboard; scores are the metric as people know it."""

    name: str
    score: float  # cross-validated
    held_score: (
        float | None
    )  # on held-out rows, which no choice was made by; None where it was not fitted for them
    weight: float  # in the ensemble
    seconds: float
    params: dict[str, Any]


class Leaderboard(list[BoardRow]):
    """Models, the best first: `print` shows a table, and `pandas.DataFrame` takes the list."""

    def __str__(self) -> str:
        return "\n".join(format_table(board_table(self), left=("model", "parameters")))


def board_table(rows: Sequence[BoardRow], most: int | None = None) -> list[list[str]]:
    """Return the cells of a leaderboard, of which the first row holds the heads."""
    cells = [["model", "score", "held out", "weight", "seconds", "parameters"]]
    for row in rows[:most]:
        params = " ".join(f"{name}={_short(value)}" for name, value in row.params.items())
        held = "" if row.held_score is None else f"{row.held_score:.5g}"
        weight = f"{row.weight:.2f}" if row.weight else ""
        cells.append([row.name, f"{row.score:.5g}", held, weight, f"{row.seconds:.1f}", params])
    return cells


def _short(value: Any) -> str:
    return (
        f"{value:.3g}"
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


@dataclass(frozen=True)
class EnsembleMember:
    """One pipeline of an ensemble: its weight, its features and its fitted model."""

    name: str
    weight: float
    view: FeatureView
    model: FittedModel

    def predict(self, table: RawTable) -> Array:
        return self.model.predict(self.view.transform(table))


@dataclass
class AutoModel:
    """An ensemble that predicts from raw rows: `predict`, `predict_proba`, `leaderboard`, `findings`, `columns`."""

    task: Task
    columns: list[ColumnRole]
    members: list[EnsembleMember]
    leaderboard: Leaderboard
    findings: list[TableFinding]
    validation: str
    rows: int
    explanation: Explanation | None = None
    notes: list[str] = field(default_factory=list)
    background: RawTable | None = None  # the rows that effects of columns are relative to
    power: float = 1.0  # that the blended probabilities are raised to

    @property
    def classes_(self) -> Array:
        if self.task.classes is None:
            raise AttributeError(f"a model of numbers has no classes; {self.task.target} is a number")
        return np.array(self.task.classes)

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of the raw columns that the model reads, by name."""
        return {role.name: role.kind for role in self.columns if role.used}

    def read(self, rows: Any) -> RawTable:
        """Return the raw columns that the model reads of a frame, a mapping of columns or a path."""
        formats = {role.name: role.format for role in self.columns}
        return read_table(rows, self.kinds, formats)

    @property
    def score(self) -> float:
        """The metric of the ensemble on held-out rows, by models that were not trained on them."""
        held = next(row.held_score for row in self.leaderboard if row.name == "ensemble")
        assert held is not None
        return held

    @property
    def importance(self) -> list[ColumnImportance]:
        """The columns by their mean absolute effect on predictions of held-out rows, the largest first."""
        return [] if self.explanation is None else self.explanation.importance

    def raw(self, table: RawTable) -> Array:
        """Return (rows, outputs) for raw columns: probabilities of all classes, or one number."""
        return sharpened(sum(member.weight * member.predict(table) for member in self.members), self.power)

    def predict_proba(self, rows: Any) -> Array:
        """Return the probabilities of `classes_` for a frame, a mapping of columns or a path."""
        if self.task.classes is None:
            raise ModelError(
                f"probabilities must be of classes, got a model of numbers ({self.task.target}); call predict"
            )
        return self.raw(self.read(rows))

    def predict(self, rows: Any) -> Array:
        """Return classes or numbers for a frame, a mapping of columns or a path."""
        return self.labelled(self.raw(self.read(rows)))

    def labelled(self, raw: Array) -> Array:
        """Return classes or numbers for the answers of `raw`."""
        if self.task.classes is None:
            return raw[:, 0]
        labels: Array = self.classes_[raw.argmax(axis=1)]
        return labels

    def reasons(self, rows: Any, seed: int = 0) -> list[ExplainedRow]:
        """Return the predictions of rows taken apart: a base and the effects of columns, which add up to each."""
        from weft.auto.explaining import reasons_of

        if self.background is None:
            raise ModelError(
                "reasons must come from a run's model, got one without rows to compare with; fit again"
            )
        names = [one.name for one in self.importance] or list(self.kinds)
        return reasons_of(self, self.read(rows), self.background, names, seed)

    def data(self) -> dict[str, Any]:
        """Return what is known of the model, as JSON holds it."""
        return {
            "target": self.task.target,
            "metric": self.task.metric,
            "classes": None if self.task.classes is None else list(self.task.classes),
            "rows": self.rows,
            "validation": self.validation,
            "held_score": self.score,
            "columns": [asdict(role) for role in self.columns],
            "findings": [finding.data() for finding in self.findings],
            "leaderboard": [asdict(row) for row in self.leaderboard],
            "notes": list(self.notes),
        }


def board_score(task: Task, loss: float) -> float:
    return shown_score(task.metric, loss)


def load(folder: str | Path) -> AutoModel:
    """Return the model of a run's folder. A pickle is a program: open only folders that you trust."""
    path = Path(folder) / FILE
    try:
        with path.open("rb") as file:
            model = pickle.load(file)
    except FileNotFoundError:
        raise ModelError(
            f"{folder} must hold a finished run of weft auto, got no {FILE}; run it first"
        ) from None
    except Exception as error:  # the file may hold anything
        raise ModelError(
            f"{path} must be a model of weft auto, got {type(error).__name__}; run it again"
        ) from error
    if not isinstance(model, AutoModel):
        raise ModelError(f"{path} must be a model of weft auto, got {type(model).__name__}; run it again")
    return model
