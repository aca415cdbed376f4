"""Rules of a real API server that no schema tells: what its validation, its updates and PodSecurity refuse; pure.

Each function returns sentences, none for an object that a cluster takes. They are written after the documentation of
Kubernetes, for the fields that our manifests use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

Data = dict[str, Any]
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_STANDARD = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.+")
# The fields of a Job that may change once it is there; the pod template only while it is suspended.
_JOB_MAY_CHANGE = frozenset(
    {
        "parallelism",
        "completions",
        "suspend",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "backoffLimit",
    }
)
_RESTRICTED_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
LARGEST_DATA_BYTES = 1 << 20  # of a Secret or a ConfigMap


def problems(item: Data) -> list[str]:
    """Return why a new object would be refused."""
    match item["kind"]:
        case "Job":
            return list(_job_problems(item))
        case "Service":
            return (
                [] if _LABEL.fullmatch(item["metadata"]["name"]) else ["metadata.name: must be a DNS label"]
            )
        case "Secret" | "ConfigMap":
            return list(_size_problems(item))
    return []


def _size_problems(item: Data) -> Iterator[str]:
    texts = sum(len(text) for field in ("data", "stringData") for text in item.get(field, {}).values())
    binary = sum(len(text) * 3 // 4 for text in item.get("binaryData", {}).values())
    if texts + binary > LARGEST_DATA_BYTES:
        yield f"data: Too long: may not be more than {LARGEST_DATA_BYTES} bytes"


def _job_problems(job: Data) -> Iterator[str]:
    spec, name = job["spec"], job["metadata"]["name"]
    pods = spec["template"]["spec"]
    host = f"{name}-{spec.get('completions', 1) - 1}"
    if spec.get("completionMode") == "Indexed" and not _LABEL.fullmatch(host):
        yield f"metadata.name: will not able to create pod with invalid DNS label: {host}"
    if pods.get("restartPolicy") not in ("Never", "OnFailure"):
        yield "spec.template.spec.restartPolicy: Required value: valid values: OnFailure, Never"
    if "backoffLimitPerIndex" in spec and pods.get("restartPolicy") != "Never":
        yield "spec.template.spec.restartPolicy: only Never is supported with backoffLimitPerIndex"
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"
    if spec.get("maxFailedIndexes", 0) > spec["completions"]:
        yield "spec.maxFailedIndexes: must be less than or equal to completions"
    if "podFailurePolicy" in spec and spec.get("podReplacementPolicy", "Failed") != "Failed":
        yield "spec.podReplacementPolicy: only Failed with podFailurePolicy"
    for rule in spec.get("successPolicy", {}).get("rules", ()):
        if int(rule["succeededIndexes"]) >= spec["completions"]:
            yield "spec.successPolicy: indexes must be less than completions"
    labels = spec["template"].get("metadata", {}).get("labels", {})
    for label in ("job-name", "batch.kubernetes.io/job-name"):
        if labels.get(label, name) != name:
            yield f"spec.template.metadata.labels[{label}]: must be the name of the Job"
    for label in ("controller-uid", "batch.kubernetes.io/controller-uid"):
        if label in labels:
            yield f"spec.template.metadata.labels[{label}]: must be the identity of the Job"
    yield from pod_problems(pods)


def pod_problems(pods: Data) -> Iterator[str]:
    """Yield why the specification of a pod would be refused."""
    for toleration in pods.get("tolerations", ()):
        yield from _toleration_problems(toleration)
    volumes = [volume["name"] for volume in pods.get("volumes", ())]
    yield from _doubles("volumes", volumes)
    for container in pods["containers"]:
        mounts = container.get("volumeMounts", ())
        yield from _doubles("mountPath", [mount["mountPath"] for mount in mounts])
        yield from _doubles("env", [variable["name"] for variable in container.get("env", ())])
        for mount in mounts:
            if mount["name"] not in volumes:
                yield f"volumeMounts: Not found: {mount['name']}"
            path = mount.get("subPath", "")
            if path.startswith("/") or ".." in path.split("/"):
                yield f"subPath: must be a relative path without '..': {path}"
        yield from _resource_problems(container.get("resources", {}))


def _toleration_problems(toleration: Data) -> Iterator[str]:
    if not toleration.get("key") and toleration.get("operator") != "Exists":
        yield "tolerations: operator must be Exists when `key` is empty"
    if toleration.get("operator") == "Exists" and toleration.get("value"):
        yield "tolerations: value must be empty when `operator` is 'Exists'"
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        yield "tolerations: effect must be 'NoExecute' when `tolerationSeconds` is set"


def _resource_problems(resources: Data) -> Iterator[str]:
    names = {*resources.get("limits", {}), *resources.get("requests", {})}
    for name in sorted(names):
        if "/" not in name and not _STANDARD.fullmatch(name):
            yield f"resources: must be a standard resource for containers: {name}"
    if any(name.startswith("hugepages-") for name in names) and not names & {"cpu", "memory"}:
        yield "resources: HugePages require cpu or memory"
    for name in resources.get("requests", {}):
        if name not in resources.get("limits", {}) and ("/" in name or name.startswith("hugepages-")):
            yield f"resources: Limit must be set for non overcommitable resources: {name}"


def _doubles(what: str, names: list[str]) -> Iterator[str]:
    yield from (
        f"{what}: Duplicate value: {name}" for name in sorted({n for n in names if names.count(n) > 1})
    )


def update_problems(before: Data, after: Data) -> list[str]:
    """Return why a change of an object would be refused."""
    found = []
    for field in ("name", "namespace", "uid"):
        if before["metadata"].get(field) != after["metadata"].get(field):
            found.append(f"metadata.{field}: field is immutable")
    if before["kind"] == "Job":
        found += _job_update_problems(before["spec"], after["spec"])
    return found + problems(after)


def _job_update_problems(before: Data, after: Data) -> Iterable[str]:
    for field in sorted({*before, *after}):
        if before.get(field) == after.get(field) or field in _JOB_MAY_CHANGE:
            continue
        if not (field == "template" and before.get("suspend")):
            yield f"spec.{field}: Invalid value: field is immutable"
    together = after.get("completionMode") == "Indexed" and after.get("completions") == after.get(
        "parallelism"
    )
    if before.get("completions") != after.get("completions") and not together:
        yield "spec.completions: Invalid value: can only be modified in tandem with spec.parallelism"


def restricted_problems(pods: Data) -> list[str]:
    """Return why PodSecurity's profile `restricted` refuses a pod."""
    found = []
    if any(pods.get(field) for field in ("hostNetwork", "hostPID", "hostIPC")):
        found.append("host namespaces")
    of_pod = pods.get("securityContext", {})
    for volume in pods.get("volumes", ()):
        found += [f"volume type {kind}" for kind in volume if kind not in {"name", *_RESTRICTED_VOLUMES}]
    for container in pods["containers"]:
        found += _restricted_container({**of_pod, **container.get("securityContext", {})}, container)
    return found


def _restricted_container(security: Data, container: Data) -> Iterator[str]:
    if security.get("allowPrivilegeEscalation") is not False or security.get("privileged"):
        yield "allowPrivilegeEscalation != false"
    capabilities = security.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()) or set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "unrestricted capabilities"
    if security.get("runAsNonRoot") is not True or security.get("runAsUser") == 0:
        yield "runAsNonRoot != true"
    if security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "hostPort"
