"""Studies as WMLA's REST shows searches: states, experiments, the best of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from weft.jobs.store.metrics import MetricSummary
from weft.tune.study.state import SearchState, TrialRecord

STATE_OF: Mapping[str, str] = {
    "running": "RUNNING",
    "paused": "STOPPED",
    "stopped": "STOPPED",
    "completed": "FINISHED",
    "failed": "FAILED",
}
EXPERIMENT_STATE_OF: Mapping[str, str] = {
    "waiting": "SUBMITTED",
    "running": "RUNNING",
    "paused": "FINISHED",  # as far as it was asked to go; a promotion makes it run again
    "completed": "FINISHED",
    "stopped": "STOPPED",
    "failed": "FAILED",
}


def search_json(
    state: SearchState,
    jobs: Mapping[int, int | None],
    metrics: Mapping[int, Sequence[MetricSummary]],
    *,
    creator: str,
    created_ms: int,
    now_s: float,
) -> dict[str, Any]:
    """Return a study as a search; `jobs` and `metrics` are by trial and by job."""
    experiments = [experiment_json(state, trial, jobs.get(trial.number), metrics) for trial in state]
    best = state.best()
    begun = any(trial.starts for trial in state)
    ended_s = state.ended_s if state.ended_s is not None else now_s
    return {
        "hpoName": state.config.name,
        "state": "SUBMITTED" if state.state == "running" and not begun else STATE_OF[state.state],
        "progress": progress(state),
        "duration": round(max(0.0, ended_s - (state.begun_s or ended_s)) / 60, 2),
        "creator": creator,
        "createtime": time_text(created_ms / 1000),
        "failmsg": state.message if state.state == "failed" else "",
        "best": None if best is None else experiments[best.number],
        "experiments": experiments,
    }


def progress(state: SearchState) -> int:
    """Return how many in a hundred of a search's trials have ended."""
    if state.state == "completed":
        return 100
    total = max(state.config.budget.trials or 1, 1)
    return min(99, 100 * sum(1 for trial in state if trial.over or trial.state == "paused") // total)


def experiment_json(
    state: SearchState,
    trial: TrialRecord,
    job_id: int | None,
    metrics: Mapping[int, Sequence[MetricSummary]],
) -> dict[str, Any]:
    """Return one trial as an experiment; experiments count from 1."""
    found = () if job_id is None else metrics.get(job_id, ())
    goal = state.goals[0]
    final = trial.values[0] if trial.values is not None else trial.latest.get(goal)
    app = "" if job_id is None else f"app-{job_id}"
    return {
        "id": trial.number + 1,
        "state": EXPERIMENT_STATE_OF[trial.state],
        "metricVal": final,
        "metrics": [
            {"name": one.name, "min": one.lowest, "max": one.highest, "latest": one.last} for one in found
        ],
        "maxiteration": trial.used,
        "hyperParams": [parameter_json(name, value) for name, value in trial.params.items()],
        "appId": app,
        "driverId": app,
        "startTime": time_text(trial.begun_s),
        "endTime": time_text(trial.ended_s),
    }


def parameter_json(name: str, value: Any) -> dict[str, Any]:
    kind = "int" if isinstance(value, int) else "double" if isinstance(value, float) else "str"
    return {"name": name, "dataType": kind, "fixedVal": str(value), "userDefined": False}


def time_text(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
