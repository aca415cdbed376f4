"""Jobs as FfDL's trainings: ids, states, error codes, and the JSON of a model. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from weft.jobs.doors.access import DoorError
from weft.jobs.doors.ffdl.translate import TRAINING
from weft.jobs.lifecycle import JobState
from weft.jobs.store.jobs import StoredJob

STATUS_OF: Mapping[JobState, str] = {
    "held": "NOT_STARTED",
    "queued": "QUEUED",
    "paused": "PENDING",
    "staging": "DOWNLOADING",
    "starting": "DEPLOY",
    "running": "PROCESSING",
    "storing": "STORING",
    "completed": "COMPLETED",
    "failed": "FAILED",
    "stopped": "HALTED",
}
# FfDL's code of each cause of a failure.
CODE_OF: Mapping[str | None, str] = {
    None: "000",
    "error": "C201",
    "out-of-memory": "C201",
    "time-out": "C201",
    "host-lost": "S100",
}
# FfDL's words for a refusal, and the HTTP status.
ERRORS: Mapping[str, tuple[str, int]] = {
    "unauthenticated": ("Unauthorized", 401),
    "forbidden": ("Forbidden", 403),
    "not-found": ("Not Found", 404),
    "gone": ("Gone", 410),
    "bad": ("Bad Request", 400),
    "conflict": ("Bad Request", 400),
    "too-large": ("Payload Too Large", 413),
}


def training_id(job_id: int) -> str:
    return f"{TRAINING}{job_id}"


def job_id_of(model_id: str) -> int:
    """Return the job of a training."""
    number = model_id.removeprefix(TRAINING)
    if not number.isdecimal() or len(number) > 18 or number == model_id:
        raise DoorError(
            "not-found", f"a training must exist, got {model_id[:80]!r}; list them with GET /v1/models"
        )
    return int(number)


def model_json(
    job: StoredJob, manifest: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return a training as FfDL shows it."""
    framework = manifest.get("framework", {})
    memory, _, unit = str(manifest.get("memory") or "").partition(" ")
    number = "".join(sign for sign in memory if sign.isdigit())
    stores = [_store_json(store) for store in manifest.get("data_stores", ())]
    name = stores[0]["data_store_id"] if stores else ""
    return {
        "model_id": training_id(job.id),
        "location": f"/v1/models/{training_id(job.id)}",
        "name": manifest.get("name", job.name),
        "description": manifest.get("description", ""),
        "framework": {"name": framework.get("name", ""), "version": str(framework.get("version", ""))},
        "training": {
            "command": framework.get("command", ""),
            "cpus": manifest.get("cpus") or 0.0,
            "gpus": manifest.get("gpus", 0.0),
            "memory": float(number or 0),
            "memory_unit": unit or memory[len(number) :],
            "learners": manifest.get("learners", 1),
            "input_data": [f"{name}-input"] if stores else [],
            "output_data": [f"{name}-output"] if stores else [],
            "training_status": _status(job),
        },
        "data_stores": stores,
        "metrics": list(metrics),
    }


def _status(job: StoredJob) -> dict[str, Any]:
    return {
        "status": STATUS_OF[job.state],
        "status_description": STATUS_OF[job.state],
        "status_message": job.message or "",
        "error_code": CODE_OF.get(job.cause, "C201") if job.state == "failed" else "",
        "submitted": str(job.created_ms),
        "completed": str(job.ended_ms) if job.ended_ms is not None else "",
    }


def _store_json(store: Mapping[str, Any]) -> dict[str, Any]:
    data = store.get("training_data") or {}
    connection = {**store.get("connection", {}), "bucket": data.get("container", "")}
    return {"data_store_id": store.get("id", ""), "type": store.get("type", ""), "connection": connection}


def records_of(
    series: Mapping[str, Sequence[tuple[int, int, float]]], job: StoredJob
) -> list[dict[str, Any]]:
    """Return points as FfDL's emetrics: the values of one step and one label together, in the order of their steps."""
    together: dict[tuple[int, str], dict[str, Any]] = {}
    for name, points in series.items():
        label, _, short = name.rpartition("/")
        for step, time_ms, value in points:
            one = together.setdefault((step, label), {"time": time_ms, "values": {}})
            one["time"] = max(one["time"], time_ms)
            one["values"][short] = {"type": "FLOAT", "value": repr(value)}
    return [
        {
            "meta": _meta(job, one["time"], index + 1),
            "grouplabel": label,
            "etimes": {"iteration": {"type": "INT", "value": str(step)}},
            "values": one["values"],
        }
        for index, ((step, label), one) in enumerate(sorted(together.items(), key=lambda item: item[0]))
    ]


def line_json(job: StoredJob, line: str, time_ms: int, index: int) -> dict[str, Any]:
    """Return one line of output."""
    return {"meta": _meta(job, time_ms, index), "line": line}


def _meta(job: StoredJob, time_ms: int, index: int) -> dict[str, Any]:
    return {"training_id": training_id(job.id), "user_id": job.user_name, "time": time_ms, "rindex": index}


def parse_since(text: str) -> tuple[int | None, int | None]:
    """Return `since_time` as (time in ms, None) or (None, so many lines from the end)."""
    if not text:
        return None, None
    try:
        number = int(text)
        return (None, -number) if number < 0 else (number, None)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise DoorError(
            "bad", f"since_time must be RFC 3339, ms since 1970 or -n lines, got {text[:40]!r}"
        ) from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000), None


def page_of(items: Sequence[dict[str, Any]], *, pos: int, size: int, since: str) -> list[dict[str, Any]]:
    """Return one page: from a position, or from the end if it is negative, of what is new enough."""
    since_ms, last = parse_since(since)
    found = list(items)
    if since_ms is not None:
        found = [item for item in found if item["meta"]["time"] >= since_ms]
    if last is not None:
        found = found[-last:]
    first = max(0, len(found) + pos) if pos < 0 else pos
    return found[first : first + size]
