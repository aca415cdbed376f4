"""The requests of MLflow's tracking REST as typed data, and the words of its answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.jobs.doors.access import DoorError
from weft.jobs.lifecycle import JobState

MOST_METRICS = 1000  # of a batch
MOST_PARAMS = 100
MOST_TAGS = 100
MOST_BATCH_BYTES = 1_000_000
LONGEST_KEY = 250
LONGEST_PARAM = 6000
LONGEST_TAG = 8000
LONGEST_EXPERIMENT = 100  # characters of a project's name

# MLflow's word for each refusal, and its HTTP status.
ERRORS: Mapping[str, tuple[str, int]] = {
    "unauthenticated": ("UNAUTHENTICATED", 401),
    "forbidden": ("PERMISSION_DENIED", 403),
    "not-found": ("RESOURCE_DOES_NOT_EXIST", 404),
    "exists": ("RESOURCE_ALREADY_EXISTS", 400),
    "conflict": ("INVALID_STATE", 400),
    "too-large": ("INVALID_PARAMETER_VALUE", 413),
    "bad": ("INVALID_PARAMETER_VALUE", 400),
}
STATUS_OF: Mapping[JobState, str] = {
    "held": "SCHEDULED",
    "queued": "SCHEDULED",
    "staging": "SCHEDULED",
    "starting": "SCHEDULED",
    "paused": "SCHEDULED",
    "running": "RUNNING",
    "storing": "RUNNING",
    "completed": "FINISHED",
    "failed": "FAILED",
    "stopped": "KILLED",
}
STATE_OF: Mapping[str, JobState] = {
    "RUNNING": "running",
    "SCHEDULED": "queued",
    "FINISHED": "completed",
    "FAILED": "failed",
    "KILLED": "stopped",
}


class KeyValue(msgspec.Struct, frozen=True):
    """A tag or a parameter."""

    key: str
    value: str = ""


class MetricPoint(msgspec.Struct, frozen=True):
    """One point of a metric; NaN and infinities come as text."""

    key: str
    value: float | str
    timestamp: int | str
    step: int | str = 0


class LogBatch(msgspec.Struct, frozen=True):
    """Metrics, parameters and tags of a run."""

    run_id: str
    metrics: tuple[MetricPoint, ...] = ()
    params: tuple[KeyValue, ...] = ()
    tags: tuple[KeyValue, ...] = ()


class LogMetric(MetricPoint, frozen=True, kw_only=True):
    """One point of a run."""

    run_id: str


class RunKeyValue(KeyValue, frozen=True, kw_only=True):
    """A tag or a parameter of a run."""

    run_id: str


class RunKey(msgspec.Struct, frozen=True):
    """The name of a run's tag."""

    run_id: str
    key: str


class RunReference(msgspec.Struct, frozen=True):
    """A run."""

    run_id: str


class CreateRun(msgspec.Struct, frozen=True):
    """A run that begins."""

    experiment_id: str = "0"
    user_id: str = ""
    run_name: str = ""
    start_time: int | str | None = None
    tags: tuple[KeyValue, ...] = ()


class UpdateRun(msgspec.Struct, frozen=True):
    """A run that ends, begins again, or is renamed."""

    run_id: str
    status: str | None = None
    end_time: int | str | None = None
    run_name: str | None = None


class SearchRuns(msgspec.Struct, frozen=True):
    """A question for runs."""

    experiment_ids: tuple[str, ...] = ()
    filter: str = ""
    run_view_type: str = "ACTIVE_ONLY"
    max_results: int | str = 1000
    order_by: tuple[str, ...] = ()
    page_token: str = ""


class SearchExperiments(msgspec.Struct, frozen=True):
    """A question for experiments."""

    filter: str = ""
    view_type: str = "ACTIVE_ONLY"
    max_results: int | str = 1000
    order_by: tuple[str, ...] = ()
    page_token: str = ""


class CreateExperiment(msgspec.Struct, frozen=True):
    """A new experiment."""

    name: str
    artifact_location: str | None = None
    tags: tuple[KeyValue, ...] = ()


class ExperimentReference(msgspec.Struct, frozen=True):
    """An experiment."""

    experiment_id: str


class UpdateExperiment(ExperimentReference, frozen=True, kw_only=True):
    """An experiment with another name."""

    new_name: str = ""


class ExperimentTag(ExperimentReference, frozen=True, kw_only=True):
    """A tag of an experiment."""

    key: str
    value: str = ""


class InputDataset(msgspec.Struct, frozen=True):
    """A data set that a run has read, in the client's words."""

    name: str
    digest: str
    source_type: str = ""
    source: str = ""
    schema: str | None = None
    profile: str | None = None


class DatasetInput(msgspec.Struct, frozen=True):
    """A data set and the tags of its use."""

    dataset: InputDataset
    tags: tuple[KeyValue, ...] = ()


class LogInputs(msgspec.Struct, frozen=True):
    """The data sets of a run."""

    run_id: str
    datasets: tuple[DatasetInput, ...] = ()


def whole(value: int | str | float, what: str) -> int:
    """Return a whole number of 64 bits, which some clients send as text."""
    try:
        number = int(value)
    except (ValueError, OverflowError):
        raise DoorError("bad", f"{what} must be a whole number, got {str(value)[:80]!r}; send one") from None
    if not -(2**63) <= number < 2**63:
        raise DoorError(
            "bad", f"{what} must have at most 64 bits, got {str(number)[:80]}; send a smaller one"
        )
    return number


def number(value: float | str, what: str) -> float:
    """Return a number; "NaN", "Infinity" and "-Infinity" are numbers, too."""
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise DoorError("bad", f"{what} must be a number, got {str(value)[:80]!r}; send one") from None


def shown(value: float) -> float | str:
    """Return a number as JSON can hold it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def check_key(key: str, what: str) -> str:
    """Refuse names that no page could show."""
    if not key or len(key) > LONGEST_KEY or not key.isprintable():
        raise DoorError(
            "bad",
            f"the name of a {what} must be 1 to {LONGEST_KEY} printable characters, got {key[:80]!r}; rename it",
        )
    return key


def check_value(value: str, most: int, key: str) -> str:
    """Refuse a value that is too long, or that PostgreSQL cannot keep."""
    if len(value) > most or "\0" in value:
        raise DoorError(
            "bad", f"{key} must have at most {most} characters and no NUL, got {len(value)}; shorten it"
        )
    return value


def pairs(values: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return names and values as MLflow lists them."""
    return [{"key": key, "value": value} for key, value in values.items()]
