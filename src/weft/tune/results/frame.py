"""All trials as a frame of pandas, in the columns that Optuna's `study.trials_dataframe()` has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState, TrialRecord

if TYPE_CHECKING:
    import pandas as pd

STATE_OF: Mapping[str, str] = {
    "completed": "COMPLETE",
    "stopped": "PRUNED",
    "failed": "FAIL",
    "waiting": "WAITING",
    "running": "RUNNING",
    "paused": "RUNNING",  # it may go on
}
DEFAULT = ("number", "value", "datetime_start", "datetime_complete", "duration", "params", "user_attrs",
           "system_attrs", "state")  # fmt: skip
Column = tuple[str, str]  # ("params", "lr"), or ("number", "")


def _values(trial: TrialRecord) -> dict[str, float | None]:
    return {str(index): trial.values[index] if trial.values else None for index in range(len(trial.small))}


_CELLS: Mapping[str, Callable[[TrialRecord], Any]] = {
    "number": lambda trial: trial.number,
    "value": lambda trial: trial.value,
    "values": _values,
    "datetime_start": lambda trial: trial.datetime_start,
    "datetime_complete": lambda trial: trial.datetime_complete,
    "duration": lambda trial: trial.duration,
    "params": lambda trial: trial.params,
    "user_attrs": lambda trial: trial.user_attrs,
    "system_attrs": lambda trial: {},
    "intermediate_values": lambda trial: trial.intermediate_values,
    "state": lambda trial: STATE_OF[trial.state],
}


def trials_frame(
    state: SearchState, attrs: Sequence[str] = DEFAULT, *, multi_index: bool = False
) -> pd.DataFrame:
    """Return a row for each trial; a mapping has a column for each of its keys: `params_lr`."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise StudyError(
            "trials_dataframe must have pandas, got none; pip install pandas, or write study.export('trials.csv')"
        ) from None
    strange = next((name for name in attrs if name not in _CELLS), None)
    if strange is not None:
        raise StudyError(f"attrs must be of {', '.join(_CELLS)}, got {strange!r}; leave it out")
    if len(state.goals) > 1 or state.metric_names:
        attrs = ["values" if name == "value" else name for name in attrs]
    rows = [_row(trial, attrs, state.metric_names) for trial in state]
    columns = [
        column for name in attrs for column in sorted({c for row in rows for c in row if c[0] == name})
    ]
    if not rows or not columns:
        return pd.DataFrame()
    frame = pd.DataFrame(rows, columns=pd.MultiIndex.from_tuples(columns))
    if not multi_index:
        frame.columns = ["_".join(filter(None, column)) for column in columns]
    return frame


def _row(trial: TrialRecord, attrs: Sequence[str], metrics: Sequence[str] = ()) -> dict[Column, Any]:
    row: dict[Column, Any] = {}
    for name in attrs:
        cell = _CELLS[name](trial)
        if name == "values" and metrics:
            cell = dict(zip(metrics, cell.values(), strict=True))
        row |= (
            {(name, str(key)): one for key, one in cell.items()}
            if isinstance(cell, dict)
            else {(name, ""): cell}
        )
    return row
