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
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_QUALIFIED = re.compile(
    r"((?=[^/]{1,253}/)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_DATA_KEY = re.compile(r"(?!\.\.?$)(?!\.\.)[-._a-zA-Z0-9]{1,253}")
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_STANDARD = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.+")
# The fields of a Job that may change once it is there.
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
# What may change of the pod template of a Job that is suspended and has never begun: where its pods may go.
_TEMPLATE_MAY_CHANGE = frozenset({"nodeSelector", "tolerations", "affinity", "schedulingGates"})
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
MOST_PARALLEL = 100_000  # of an Indexed Job
LARGEST_DATA_BYTES = 1 << 20  # of a Secret or a ConfigMap


def problems(item: Data) -> list[str]:
    """Return why a new object would be refused."""
    found = list(_metadata_problems(item["metadata"], "metadata"))
    if not _SUBDOMAIN.fullmatch(item["metadata"]["name"]):
        found.append("metadata.name: must be a lowercase RFC 1123 subdomain")
    match item["kind"]:
        case "Job":
            found += _job_problems(item)
        case "Service":
            found += _service_problems(item)
        case "Secret" | "ConfigMap":
            found += _size_problems(item)
    return found


def _size_problems(item: Data) -> Iterator[str]:
    texts = sum(len(text) for field in ("data", "stringData") for text in item.get(field, {}).values())
    binary = sum(len(text) * 3 // 4 for text in item.get("binaryData", {}).values())
    for key in (*item.get("data", {}), *item.get("stringData", {}), *item.get("binaryData", {})):
        if not _DATA_KEY.fullmatch(key):
            yield f"data: Invalid value: {key}: a valid config key must be alphanumeric, '-', '_' or '.'"
    if texts + binary > LARGEST_DATA_BYTES:
        yield f"data: Too long: may not be more than {LARGEST_DATA_BYTES} bytes"


def _metadata_problems(metadata: Data, where: str) -> Iterator[str]:
    for key, value in metadata.get("labels", {}).items():
        if not _QUALIFIED.fullmatch(key):
            yield f"{where}.labels: Invalid value: {key}"
        if not _LABEL_VALUE.fullmatch(value):
            yield f"{where}.labels: Invalid value: {value}"
    for key in metadata.get("annotations", {}):
        if not _QUALIFIED.fullmatch(key.lower()):
            yield f"{where}.annotations: Invalid value: {key}"
    for owner in metadata.get("ownerReferences", ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield f"{where}.ownerReferences.{field}: must not be empty"


def _service_problems(service: Data) -> Iterator[str]:
    if not _SERVICE_NAME.fullmatch(service["metadata"]["name"]):
        yield "metadata.name: must be a DNS label that begins with a letter"
    for port in service["spec"].get("ports", ()):
        if not 0 < port["port"] < 1 << 16:
            yield f"spec.ports.port: must be between 1 and 65535: {port['port']}"
    yield from _doubles(
        "spec.ports.name", [port.get("name", "") for port in service["spec"].get("ports", ())]
    )


def _job_problems(job: Data) -> Iterator[str]:
    spec, name = job["spec"], job["metadata"]["name"]
    yield from _metadata_problems(spec["template"].get("metadata", {}), "spec.template.metadata")
    pods = spec["template"]["spec"]
    host = f"{name}-{spec.get('completions', 1) - 1}"
    if spec.get("completionMode") == "Indexed" and not _LABEL.fullmatch(host):
        yield f"metadata.name: will not able to create pod with invalid DNS label: {host}"
    if pods.get("restartPolicy") not in ("Never", "OnFailure"):
        yield "spec.template.spec.restartPolicy: Required value: valid values: OnFailure, Never"
    if "backoffLimitPerIndex" in spec and pods.get("restartPolicy") != "Never":
        yield "spec.template.spec.restartPolicy: only Never is supported with backoffLimitPerIndex"
    if spec.get("completionMode") != "Indexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if field in spec:
                yield f"spec.{field}: requires indexed completion mode"
    elif "completions" not in spec:
        yield "spec.completions: Required value: when completion mode is Indexed"
    if spec.get("parallelism", 1) > MOST_PARALLEL:
        yield f"spec.parallelism: must be less than or equal to {MOST_PARALLEL}"
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"
    if spec.get("maxFailedIndexes", 0) > spec.get("completions", 1):
        yield "spec.maxFailedIndexes: must be less than or equal to completions"
    if "podFailurePolicy" in spec and spec.get("podReplacementPolicy", "Failed") != "Failed":
        yield "spec.podReplacementPolicy: only Failed with podFailurePolicy"
    for rule in spec.get("successPolicy", {}).get("rules", ()):
        if int(rule["succeededIndexes"]) >= spec.get("completions", 1):
            yield "spec.successPolicy: indexes must be less than completions"
    labels = spec["template"].get("metadata", {}).get("labels", {})
    for label in ("job-name", "batch.kubernetes.io/job-name"):
        if labels.get(label, name) != name:
            yield f"spec.template.metadata.labels[{label}]: must be the name of the Job"
    for label in ("controller-uid", "batch.kubernetes.io/controller-uid"):
        if label in labels and labels[label] != job["metadata"].get("uid"):
            yield f"spec.template.metadata.labels[{label}]: must be the identity of the Job"
    yield from pod_problems(pods)


def pod_problems(pods: Data) -> Iterator[str]:
    """Yield why the specification of a pod would be refused."""
    for toleration in pods.get("tolerations", ()):
        yield from _toleration_problems(toleration)
    volumes = [volume["name"] for volume in pods.get("volumes", ())]
    yield from _doubles("volumes", volumes)
    if "hostname" in pods and not _LABEL.fullmatch(pods["hostname"]):
        yield f"hostname: must be a DNS label: {pods['hostname']}"
    if "subdomain" in pods and not _LABEL.fullmatch(pods["subdomain"]):
        yield f"subdomain: must be a DNS label: {pods['subdomain']}"
    every = [*pods.get("initContainers", ()), *pods["containers"]]
    yield from _doubles("containers", [container["name"] for container in every])
    for container in every:
        yield from _container_problems(container, volumes)


def _container_problems(container: Data, volumes: list[str]) -> Iterator[str]:
    if not _LABEL.fullmatch(container["name"]):
        yield f"containers.name: must be a DNS label: {container['name']}"
    if not container.get("image", "").strip() or container["image"] != container["image"].strip():
        yield f"containers.image: must be a name without spaces: {container.get('image')!r}"
    for port in container.get("ports", ()):
        if "name" in port and not _PORT_NAME.fullmatch(port["name"]):
            yield f"ports.name: must be a name of at most 15 characters: {port['name']}"
    for variable in container.get("env", ()):
        if not _ENV_NAME.fullmatch(variable["name"]):
            yield f"env.name: Invalid value: {variable['name']}"
        if variable.get("value") and "valueFrom" in variable:
            yield f"env.valueFrom: may not be specified when `value` is not empty: {variable['name']}"
    mounts = container.get("volumeMounts", ())
    yield from _mount_problems(mounts, volumes)
    yield from _doubles("env", [variable["name"] for variable in container.get("env", ())])
    yield from _resource_problems(container.get("resources", {}))


def _mount_problems(mounts: Iterable[Data], volumes: list[str]) -> Iterator[str]:
    yield from _doubles("mountPath", [mount["mountPath"] for mount in mounts])
    for mount in mounts:
        if mount["name"] not in volumes:
            yield f"volumeMounts: Not found: {mount['name']}"
        path = mount.get("subPath", "")
        if path.startswith("/") or ".." in path.split("/"):
            yield f"subPath: must be a relative path without '..': {path}"
        if ":" in mount["mountPath"]:
            yield f"mountPath: must not contain ':': {mount['mountPath']}"


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
        has_begun = not before["spec"].get("suspend") or "startTime" in before.get("status", {})
        found += _job_update_problems(before["spec"], after["spec"], has_begun=has_begun)
    return found + problems(after)


def _job_update_problems(before: Data, after: Data, *, has_begun: bool) -> Iterable[str]:
    for field in sorted({*before, *after}):
        if before.get(field) == after.get(field) or field in _JOB_MAY_CHANGE:
            continue
        if has_begun or field != "template" or _lasting(before["template"]) != _lasting(after["template"]):
            yield f"spec.{field}: Invalid value: field is immutable"
    together = after.get("completionMode") == "Indexed" and after.get("completions") == after.get(
        "parallelism"
    )
    if before.get("completions") != after.get("completions") and not together:
        yield "spec.completions: Invalid value: can only be modified in tandem with spec.parallelism"


def _lasting(template: Data) -> Data:
    """Return what may not change of a pod template, whoever lets its Job in."""
    return {field: value for field, value in template["spec"].items() if field not in _TEMPLATE_MAY_CHANGE}


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
