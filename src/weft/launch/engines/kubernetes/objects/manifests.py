"""The objects of a run, as Kubernetes takes them: a pure function from a request to data.

By default one Indexed Job, whose pods a headless Service gives names, and one Secret by which they know each other: any
cluster has these. JobSet, TrainJob and AppWrapper are for clusters that have those.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.launch.engines.kubernetes.objects.names import PodNames
from weft.launch.engines.kubernetes.objects.pod_spec import (
    DOOR_KEY,
    SECRET_VARIABLE_KEY,
    Data,
    PodRequest,
    code_part,
    container_security,
    environment,
    literal_words,
    pod_annotations,
    pod_labels,
    pod_spec,
    resources,
    run_labels,
    shared_pod_fields,
    volume_mounts,
)
from weft.launch.engines.kubernetes.objects.snapshot import parts_of
from weft.launch.pod_settings import KubernetesConfig

# Of a pod of an elastic run. A pod that is evicted counts as failed, and a long run sees many of them.
ELASTIC_RETRIES = 100
TRAINER_API = "trainer.kubeflow.org/v1alpha1"
DEFAULT_GRACE_S = 30  # of Kubernetes
TRAINER_WORDS = 128  # that one list of a TrainJob may have


@dataclass(frozen=True, kw_only=True)
class ManifestRequest:
    """One run, decided: its names, its command, and the values that were drawn for it."""

    settings: KubernetesConfig
    names: PodNames
    command: tuple[str, ...]  # of each pod
    env: Mapping[str, str]
    secret_env: Mapping[str, str]  # variables whose values only the pods may read
    door_secret: str  # by which the pods know each other
    code: bytes | None = None  # a snapshot of the working tree

    @property
    def code_parts(self) -> tuple[bytes, ...]:
        """The snapshot, in parts of which each fits into a ConfigMap; none where there is no snapshot."""
        return () if self.code is None else parts_of(self.code)

    @property
    def pods(self) -> PodRequest:
        """The part that the pods depend on."""
        return PodRequest(
            settings=self.settings,
            names=self.names,
            command=self.command,
            env=self.env,
            secret_env=tuple(self.secret_env),
            code_parts=len(self.code_parts),
        )


def manifests(request: ManifestRequest) -> tuple[Data, ...]:
    """Return all objects of a run, in the order in which they are created: what starts the pods comes last."""
    settings = request.settings
    needed = [_secret(request)]
    needed += [_code_map(request, number, part) for number, part in enumerate(request.code_parts)]
    services = [_service(request)] if settings.kind == "job" else []
    main = {"job": _job, "jobset": _jobset, "trainjob": _trainjob}[settings.kind](request)
    if settings.app_wrapper:  # its controller may make services and what has pods, but no Secret or ConfigMap
        return (*needed, _app_wrapper(request, [*services, main]))
    main["metadata"] |= _queue_metadata(settings, main["metadata"])
    return (*needed, *services, main)


def _metadata(request: ManifestRequest, name: str | None = None) -> Data:
    found: Data = {"name": name or request.names.name}
    if request.settings.namespace is not None:
        found["namespace"] = request.settings.namespace
    found["labels"] = {**run_labels(request.names.name), **request.settings.labels}
    return found


def _queue_metadata(settings: KubernetesConfig, metadata: Data) -> Data:
    """Return the labels and annotations by which Kueue takes a workload into a queue."""
    if settings.queue is None:
        return {}
    labels = {**metadata["labels"], "kueue.x-k8s.io/queue-name": settings.queue}
    if settings.queue_priority is not None:
        labels["kueue.x-k8s.io/priority-class"] = settings.queue_priority
    found: Data = {"labels": labels}
    if settings.elastic and settings.kind == "job":
        annotations = metadata.get("annotations", {})
        found["annotations"] = {**annotations, "kueue.x-k8s.io/elastic-job": "true"}
    return found


def _secret(request: ManifestRequest) -> Data:
    values = {DOOR_KEY: request.door_secret}
    values |= {SECRET_VARIABLE_KEY + name: value for name, value in request.secret_env.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(request),
        "type": "Opaque",
        "stringData": values,
    }


def _code_map(request: ManifestRequest, number: int, part: bytes) -> Data:
    name, file = code_part(request.names.name, number, len(request.code_parts))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(request, name),
        "binaryData": {file: base64.b64encode(part).decode()},
    }


def _service(request: ManifestRequest) -> Data:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(request),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": request.names.job},
            "ports": [{"name": "door", "port": request.settings.port, "protocol": "TCP"}],
        },
    }


def _pod_template(request: ManifestRequest) -> Data:
    metadata: Data = {"labels": pod_labels(request.pods)}
    if annotations := pod_annotations(request.settings):
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": pod_spec(request.pods)}


def _job_spec(request: ManifestRequest) -> Data:
    settings = request.settings
    spec: Data = {
        "completionMode": "Indexed",
        "completions": settings.pods,
        "parallelism": settings.pods,
    }
    retries = settings.retries if settings.retries is not None else ELASTIC_RETRIES * settings.elastic
    if settings.elastic:
        # The first pod ends with the run. A pod on a dead node never ends: its replacement must not wait for it.
        spec |= {
            "backoffLimitPerIndex": retries,
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
            "podReplacementPolicy": "TerminatingOrFailed",
        }
    elif retries:
        spec |= {"backoffLimitPerIndex": retries, "maxFailedIndexes": 0, "podReplacementPolicy": "Failed"}
    else:
        spec["backoffLimit"] = 0
    if settings.deadline_s is not None:
        spec["activeDeadlineSeconds"] = settings.deadline_s
    if settings.keep_s is not None and settings.kind == "job":
        spec["ttlSecondsAfterFinished"] = settings.keep_s
    return spec


def _job(request: ManifestRequest) -> Data:
    metadata = _metadata(request)
    if request.settings.annotations:
        metadata["annotations"] = dict(request.settings.annotations)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {**_job_spec(request), "template": _pod_template(request)},
    }


def _jobset(request: ManifestRequest) -> Data:
    settings = request.settings
    spec: Data = {
        "network": {
            "enableDNSHostnames": True,
            "subdomain": request.names.name,
            "publishNotReadyAddresses": True,
        },
        # The pods see to failures themselves; whatever is left over ends the set.
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [
            {
                "name": "worker",
                "replicas": 1,
                "template": {
                    "metadata": {"labels": run_labels(request.names.name)},
                    "spec": {**_job_spec(request), "template": _pod_template(request)},
                },
            }
        ],
    }
    if settings.keep_s is not None:
        spec["ttlSecondsAfterFinished"] = settings.keep_s
    metadata = _metadata(request)
    if settings.annotations:
        metadata["annotations"] = dict(settings.annotations)
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": spec,
    }


def _trainjob(request: ManifestRequest) -> Data:
    """Return a TrainJob of Kubeflow Trainer 2.2 or later, which takes the rest from its runtime."""
    settings = request.settings
    words = literal_words(request.command)
    trainer: Data = {
        "image": settings.image,
        "command": words[:TRAINER_WORDS],
        "numNodes": settings.pods,
        "env": environment(request.pods),
    }
    if more := words[TRAINER_WORDS:]:
        trainer["args"] = more
    if wanted := resources(settings):
        trainer["resourcesPerNode"] = wanted
    node: Data = {"name": "node", "securityContext": container_security(settings)}
    if mounts := volume_mounts(settings):
        node["volumeMounts"] = mounts
    metadata: Data = {"labels": pod_labels(request.pods)}
    if annotations := pod_annotations(settings):
        metadata["annotations"] = annotations
    pod = {**shared_pod_fields(request.pods), "containers": [node]}
    if settings.grace_s != DEFAULT_GRACE_S:  # for Trainer 2.2 has no field for it
        pod["terminationGracePeriodSeconds"] = settings.grace_s
    patch = {"name": "node", "template": {"spec": {"template": {"metadata": metadata, "spec": pod}}}}
    spec: Data = {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "ClusterTrainingRuntime",
            "name": settings.runtime,
        },
        "trainer": trainer,
        "runtimePatches": [
            {
                "manager": "weft.launch/run",
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [patch]}}},
            }
        ],
    }
    if settings.deadline_s is not None:
        spec["activeDeadlineSeconds"] = settings.deadline_s
    own = _metadata(request)
    if settings.annotations:
        own["annotations"] = dict(settings.annotations)
    return {"apiVersion": TRAINER_API, "kind": "TrainJob", "metadata": own, "spec": spec}


def training_runtime(name: str = "weft", *, image: str = "weft:latest") -> Data:
    """Return the ClusterTrainingRuntime that our TrainJobs name; whoever runs the cluster applies it once."""
    job: Data = {
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                # A Service called weft would give the pods variables of our names.
                "enableServiceLinks": False,
                "containers": [
                    {"name": "node", "image": image, "terminationMessagePolicy": "FallbackToLogsOnError"}
                ],
            }
        },
    }
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    return {
        "apiVersion": TRAINER_API,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {
                "spec": {
                    "network": {"publishNotReadyAddresses": True},
                    "replicatedJobs": [
                        {"name": "node", "template": {"metadata": {"labels": step}, "spec": job}}
                    ],
                }
            },
        },
    }


_POD_PATHS = {
    "Job": "template.spec.template",
    "JobSet": "template.spec.replicatedJobs[0].template.spec.template",
}


def _app_wrapper(request: ManifestRequest, objects: Sequence[Data]) -> Data:
    """Return an AppWrapper that creates some objects, and counts as one workload."""
    components: list[Data] = []
    for item in objects:
        component: Data = {"template": item}
        if item["kind"] in _POD_PATHS:
            component = {
                "podSets": [{"replicas": request.settings.pods, "path": _POD_PATHS[item["kind"]]}],
                **component,
            }
        components.append(component)
    metadata = _metadata(request)
    metadata |= _queue_metadata(request.settings, metadata)
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": metadata,
        "spec": {"components": components},
    }
