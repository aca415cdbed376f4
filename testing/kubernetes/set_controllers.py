"""The controllers of JobSets and AppWrappers of our own cluster, which make Jobs, and end as these do."""

from __future__ import annotations

import copy

from testing.kubernetes.admission import ClusterAdmission
from testing.kubernetes.objects import TERMINAL, Data, conditions_of
from testing.kubernetes.rules.app_wrappers import components_of, phase_of
from testing.kubernetes.rules.job_sets import end_of, jobs_of
from testing.kubernetes.store import ObjectStore

_ENDS = ("Complete", "Completed", "Failed")


def control_app_wrapper(store: ObjectStore, admission: ClusterAdmission, wrapper: Data) -> None:
    """Make what a wrapper holds, and give it the phase that follows from how that ended."""
    namespace, phase = wrapper["metadata"]["namespace"], wrapper.get("status", {}).get("phase")
    if phase is None:
        wrapper = _with_phase(store, wrapper, "Resuming")  # before what is made comes back here
        for item in components_of(wrapper):
            admission.create(f"{item['kind'].lower()}s", namespace, item)
        return
    makes = [item["template"] for item in wrapper["spec"]["components"]]
    known = [
        store.find(f"{item['kind'].lower()}s", namespace, item["metadata"]["name"])
        for item in makes
        if item["kind"] != "Service"
    ]
    told = [
        next((one["type"] for one in conditions_of(item or {}) if one["type"] in _ENDS), None)
        for item in known
    ]
    if phase_of(told) != phase and phase not in ("Succeeded", "Failed"):
        _with_phase(store, wrapper, phase_of(told))


def _with_phase(store: ObjectStore, wrapper: Data, phase: str) -> Data:
    wrapper = copy.deepcopy(wrapper)
    wrapper["status"] = {"phase": phase}
    store.put("MODIFIED", "appwrappers", wrapper)
    return wrapper


def control_job_set(store: ObjectStore, admission: ClusterAdmission, job_set: Data) -> None:
    """Make the Jobs of a set, and end it as they have ended."""
    namespace, ends = job_set["metadata"]["namespace"], dict[str, str | None]()
    for job in jobs_of(job_set):
        name = job["metadata"]["name"]
        known = store.find("jobs", namespace, name)
        if known is None:
            admission.create("jobs", namespace, job)
            return  # which has come back here, to make the next
        ended = [one["type"] for one in conditions_of(known) if one["type"] in TERMINAL.values()]
        ends[name] = ended[-1] if ended else None
    if (end := end_of(job_set, ends)) is not None:
        told = {"type": end, "status": "True", "reason": "AllJobsCompleted", "message": ""}
        job_set = copy.deepcopy(job_set)
        job_set["status"] = {"conditions": [told]}
        store.put("MODIFIED", "jobsets", job_set)
