"""What our own API server takes in: creations, merge patches and deletions, with the rules of a real one."""

from __future__ import annotations

import base64
import copy
import uuid
from collections.abc import Callable

from testing.kubernetes.faults import ClusterFaults
from testing.kubernetes.objects import JOB_NAME, ApiRefusalError, Data, has_ended, merge, now
from testing.kubernetes.rules.schemas import check
from testing.kubernetes.rules.validation import problems, restricted_problems, update_problems
from testing.kubernetes.store import ObjectStore


class ClusterAdmission:
    """Changes of objects as clients and controllers ask for them.

    `control` is called after each, and `stop_pod` with a pod that is to end, which is gone once its processes are.
    """

    def __init__(self, store: ObjectStore, faults: ClusterFaults, version: str) -> None:
        self._store, self._faults, self._version = store, faults, version
        self.control: Callable[[], None] = lambda: None
        self.stop_pod: Callable[[Data], bool] = lambda _: False

    def create(self, kind: str, namespace: str, item: Data, *, is_trial: bool = False) -> Data:
        """Take in a new object; of one on trial nothing stays."""
        with self._store.changed:
            name = item["metadata"]["name"]
            if self._store.find(kind, namespace, name) is not None:
                raise ApiRefusalError(409, f'{kind} "{name}" already exists', "AlreadyExists")
            self._collide('resourcequotas "compute"')
            if item["metadata"].get("namespace", namespace) != namespace:
                raise ApiRefusalError(400, "the namespace of the object does not match the request")
            if wrong := problems(item):
                raise ApiRefusalError(422, f'{item["kind"]} "{name}" is invalid: {"; ".join(wrong)}')
            item = copy.deepcopy(item)
            item["metadata"] |= {
                "namespace": namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": now(),
            }
            _fill_in(item)
            if kind == "jobs" and self._faults.suspends:
                item["spec"]["suspend"] = True
            if is_trial:
                return item
            self._store.put("ADDED", kind, item)
            self.control()
            return copy.deepcopy(item)

    def patch(self, kind: str, namespace: str, name: str, change: Data) -> Data:
        """Merge a change into an object, all but its status, which is changed by another path."""
        with self._store.changed:
            before = self._store.get(kind, namespace, name)
            self._collide(f'{kind} "{name}"')
            item = copy.deepcopy(before)
            merge(item, {field: part for field, part in change.items() if field != "status"})
            if item["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
                raise ApiRefusalError(409, f'{kind} "{name}": the object has been modified', "Conflict")
            if wrong := update_problems(before, item):
                raise ApiRefusalError(422, f'{before["kind"]} "{name}" is invalid: {"; ".join(wrong)}')
            self.check(item)
            if item == before:
                return copy.deepcopy(item)  # an empty change makes no new version
            self._store.put("MODIFIED", kind, item)
            self.control()
            return copy.deepcopy(item)

    def delete(self, kind: str, namespace: str, name: str, policy: str) -> Data:
        """Delete an object, and what belongs to it; a Job's pods stay where nobody says that they are to go."""
        with self._store.changed:
            item = self._store.get(kind, namespace, name)
            self.remove(kind, item, with_owned=kind != "jobs" or policy in ("Background", "Foreground"))
            return copy.deepcopy(item)

    def remove(self, kind: str, item: Data, *, with_owned: bool = True) -> None:
        """Have an object go: a pod once its processes are gone, and what belongs to it where garbage is collected."""
        metadata = item["metadata"]
        if kind == "pods" and not has_ended(item):
            if "deletionTimestamp" not in metadata:
                item = copy.deepcopy(item)
                item["metadata"]["deletionTimestamp"] = now()
                self._store.put("MODIFIED", kind, item)
                if not self.stop_pod(item):
                    self._store.forget(kind, item)
                self.control()
            return
        self._store.forget(kind, item)
        if not (self._faults.collects and with_owned):
            return
        for other, owned in self._store.all():
            owners = owned["metadata"].get("ownerReferences", ())
            if any(owner["uid"] == metadata["uid"] for owner in owners):
                self.remove(other, owned)

    def check(self, item: Data, *, code: int = 422) -> None:
        """Refuse an object that the schemas of this version do not know."""
        try:
            check(item, self._version)
        except Exception as error:
            raise ApiRefusalError(code, f"strict decoding error: {str(error).splitlines()[0]}") from None

    def _collide(self, what: str) -> None:
        """Refuse a change as a server does whose own store was changed meanwhile."""
        if self._faults.conflicts > 0:
            self._faults.conflicts -= 1
            told = f"Operation cannot be fulfilled on {what}: the object has been modified"
            raise ApiRefusalError(409, told, "Conflict")


def warnings_about(item: Data) -> list[str]:
    """Return what a real server says about an object that it takes: that its pods will be refused."""
    wrong = restricted_problems(item["spec"]["template"]["spec"]) if item["kind"] == "Job" else []
    return [f'would violate PodSecurity "restricted:latest": {", ".join(wrong)}'] if wrong else []


def _fill_in(item: Data) -> None:
    """Fill in what an API server does: fields that were left out, and secrets in their stored form."""
    if item["kind"] == "Secret" and "stringData" in item:
        texts = {
            name: base64.b64encode(text.encode()).decode() for name, text in item.pop("stringData").items()
        }
        item["data"] = {**item.get("data", {}), **texts}
    if item["kind"] == "Job":
        _fill_in_job(item)
    if item["kind"] == "Service":
        item["spec"] = {"type": "ClusterIP", "sessionAffinity": "None", **item["spec"]}


def _fill_in_job(item: Data) -> None:
    identity = {"batch.kubernetes.io/controller-uid": item["metadata"]["uid"]}
    defaults = {
        "suspend": False,
        "manualSelector": False,
        "selector": {"matchLabels": identity},
        "backoffLimit": (1 << 31) - 1 if "backoffLimitPerIndex" in item["spec"] else 6,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    item["spec"] = {**defaults, **item["spec"]}
    template = item["spec"]["template"].setdefault("metadata", {})
    known = {
        **identity,
        JOB_NAME: item["metadata"]["name"],
        "controller-uid": item["metadata"]["uid"],
        "job-name": item["metadata"]["name"],
    }
    template["labels"] = {**template.get("labels", {}), **known}
    item["spec"]["template"]["spec"] = {
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        **item["spec"]["template"]["spec"],
    }
