"""Objects of Kubernetes as our own cluster keeps them: names of labels, phases, conditions, times, selectors; pure."""

from __future__ import annotations

import base64
import calendar
import time
from typing import Any

Data = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
TRACKING = "batch.kubernetes.io/job-tracking"
KINDS = {
    "jobs": ("batch/v1", "Job"),
    "jobsets": ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    "appwrappers": ("workload.codeflare.dev/v1beta2", "AppWrapper"),
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "secrets": ("v1", "Secret"),
    "configmaps": ("v1", "ConfigMap"),
    "events": ("v1", "Event"),
}
# Under what name a Job ends by each of the conditions that announce it.
TERMINAL = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}
_FIELDS = {
    "pods": ("metadata.name", "spec.nodeName", "status.phase"),
    "events": ("involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"),
}


# What a real server calls its refusals.
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
}


class ApiRefusalError(Exception):
    """A request that is refused."""

    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason or _REASONS.get(code, "")

    @property
    def status(self) -> Data:
        """The object by which a server tells it."""
        told = {"status": "Failure", "message": str(self), "reason": self.reason, "code": self.code}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **told}


def phase_of(pod: Data) -> str:
    """Return the phase of a pod."""
    return str(pod["status"]["phase"])


def has_ended(pod: Data) -> bool:
    """Return whether the processes of a pod are gone for good."""
    return phase_of(pod) in ("Succeeded", "Failed")


def index_of(pod: Data) -> int:
    """Return the index of a pod in its Job."""
    return int(pod["metadata"]["annotations"][INDEX])


def conditions_of(job: Data) -> list[Data]:
    """Return the conditions of an object."""
    return list(job.get("status", {}).get("conditions", ()))


def is_finished(job: Data) -> bool:
    """Return whether a Job is over, its pods included."""
    return any(condition["type"] in TERMINAL.values() for condition in conditions_of(job))


def container_state(container: Data, state: Data) -> Data:
    """Return the status of a container."""
    return {"name": container["name"], "state": state}


def now() -> str:
    """Return this time as objects tell it."""
    return time_text(time.time())


def time_text(seconds: float) -> str:
    """Return a time as objects tell it: whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def seconds_of(text: str) -> float:
    """Return the time that an object tells."""
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))


def texts_of(data: dict[str, str]) -> dict[str, str]:
    """Return the values of a Secret as they were before they were stored."""
    return {name: base64.b64decode(text).decode() for name, text in data.items()}


def has_fields(kind: str, item: Data, selector: str) -> bool:
    """Return whether a field selector takes an object; refuse one of fields that servers do not select by."""
    for part in filter(None, selector.split(",")):
        path, _, value = part.partition("=")
        if path not in _FIELDS.get(kind, ("metadata.name",)):
            raise ApiRefusalError(400, f'field label not supported: "{path}"')
        place: Any = item
        for name in path.split("."):
            place = place.get(name, {}) if isinstance(place, dict) else {}
        if place != value:
            return False
    return True


def is_selected(item: Data, selector: str) -> bool:
    """Return whether a label selector takes an object."""
    labels = item["metadata"].get("labels", {})
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    return all(labels.get(name) == value for name, value in wanted.items())


def merge(item: Data, change: Data) -> None:
    """Merge a change into an object, as a merge patch does."""
    for name, value in change.items():
        if value is None:
            item.pop(name, None)
        elif isinstance(value, dict) and isinstance(item.get(name), dict):
            merge(item[name], value)
        else:
            item[name] = value
