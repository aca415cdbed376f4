"""The pods of a run: their specification as Kubernetes takes it, from the settings; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.launch.engines.kubernetes.objects.checks import source_of
from weft.launch.engines.kubernetes.objects.names import PodNames
from weft.launch.pod_settings import KubernetesConfig, PodToleration, PodVolume

Data = dict[str, Any]
CODE_FOLDER = "/tmp/weft-code"  # where a snapshot of the code is mounted
CODE_FILE = "code.tar.gz"
DOOR_KEY = "door"  # of the run's Secret
SECRET_VARIABLE_KEY = "env."  # begins the keys of variables that look secret


@dataclass(frozen=True, kw_only=True)
class PodRequest:
    """Everything that the pods of a run depend on."""

    settings: KubernetesConfig
    names: PodNames
    command: tuple[str, ...]
    env: Mapping[str, str]  # of the run, beside those of the settings
    secret_env: Sequence[str]  # variables whose values are in the run's Secret
    code_parts: int = 1  # ConfigMaps that a snapshot of the code takes


def code_part(name: str, number: int, parts: int) -> tuple[str, str]:
    """Return the ConfigMap of one part of a run's code, and the file in it."""
    if parts == 1:
        return f"{name}-code", CODE_FILE
    return f"{name}-code-{number}", f"{CODE_FILE}.{number:03d}"


def pod_annotations(pods: KubernetesConfig) -> dict[str, str]:
    """Return what the pods' own metadata tells network and queue."""
    found = dict(pods.annotations)
    if pods.networks:
        found["k8s.v1.cni.cncf.io/networks"] = ",".join(pods.networks)
    if pods.topology is not None:
        if pods.topology.required is not None:
            found["kueue.x-k8s.io/podset-required-topology"] = pods.topology.required
        if pods.topology.preferred is not None:
            found["kueue.x-k8s.io/podset-preferred-topology"] = pods.topology.preferred
    return found


def pod_labels(request: PodRequest) -> dict[str, str]:
    """Return the labels by which the pods of a run are found."""
    return {**run_labels(request.names.name), **request.settings.labels}


def run_labels(name: str) -> dict[str, str]:
    """Return the labels of every object of a run."""
    return {
        "app.kubernetes.io/name": "weft",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": "training",
        "app.kubernetes.io/managed-by": "weft",
    }


def pod_spec(request: PodRequest) -> Data:
    """Return the specification of a pod of a Job or a JobSet."""
    pods = request.settings
    spec: Data = {
        "restartPolicy": "Never",
        "subdomain": request.names.name,
        "terminationGracePeriodSeconds": pods.grace_s,
        **shared_pod_fields(request),
        "containers": [container(request)],
    }
    if pods.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
        # Two pods of a run on one node would both listen on the same port of it.
        term = {
            "labelSelector": {"matchLabels": pod_labels(request)},
            "topologyKey": "kubernetes.io/hostname",
        }
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if pods.service_account is None:  # pods need nothing of the cluster
        spec["automountServiceAccountToken"] = False
    spec["enableServiceLinks"] = False  # a Service called weft would give the pods variables of our names
    if pods.priority_class is not None:
        spec["priorityClassName"] = pods.priority_class
    if pods.scheduler is not None:
        spec["schedulerName"] = pods.scheduler
    return spec


def shared_pod_fields(request: PodRequest) -> Data:
    """Return the fields of a pod that a TrainJob may set as well."""
    pods = request.settings
    spec: Data = {"tolerations": [*map(_toleration, pods.tolerations), *_lost_node_tolerations(pods)]}
    if pods.service_account is not None:
        spec["serviceAccountName"] = pods.service_account
    if pods.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pods.pull_secrets]
    if pods.node_selector:
        spec["nodeSelector"] = dict(pods.node_selector)
    if volumes := _volumes(request):
        spec["volumes"] = volumes
    spec["securityContext"] = pod_security(pods)
    return spec


def pod_security(pods: KubernetesConfig) -> Data:
    """Return the identity that all containers of a pod have."""
    security: Data = {"seccompProfile": {"type": "RuntimeDefault"}}
    if not pods.root:
        security["runAsNonRoot"] = True
        if pods.run_as_user is not None:
            security["runAsUser"] = pods.run_as_user
    if pods.run_as_group is not None:
        security["runAsGroup"] = pods.run_as_group
    if pods.fs_group is not None:
        security["fsGroup"] = pods.fs_group
    return security


def container_security(pods: KubernetesConfig) -> Data:
    """Return what a container may do beyond its pod's identity: nothing, but for what was named."""
    capabilities: Data = {"drop": ["ALL"]}
    if pods.capabilities:
        capabilities["add"] = list(pods.capabilities)
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}


def container(request: PodRequest) -> Data:
    """Return the one container of a pod."""
    pods = request.settings
    found: Data = {
        "name": "worker",
        "image": pods.image,
        "command": literal_words(request.command),
        "workingDir": pods.workdir,
        "env": environment(request),
        "ports": [{"name": "door", "containerPort": pods.port, "protocol": "TCP"}],
        "securityContext": container_security(pods),
        # The last words of a run: why it failed.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if pods.pull_policy is not None:
        found["imagePullPolicy"] = pods.pull_policy
    if wanted := resources(pods):
        found["resources"] = wanted
    if mounts := volume_mounts(pods):
        found["volumeMounts"] = mounts
    return found


def literal(text: str) -> str:
    """Return text that Kubernetes takes as it is: it puts variables in the place of `$(NAME)`, and `$` of `$$`."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def literal_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command, which Kubernetes must not change."""
    return list(map(literal, words))


def resources(pods: KubernetesConfig) -> Data:
    """Return the limits of a container, and its requests: the same where nothing else was asked for."""
    wanted: Data = {}
    if requests := {**pods.resources, **pods.requests}:
        wanted["requests"] = {name: str(quantity) for name, quantity in requests.items()}
    if pods.resources:
        wanted["limits"] = {name: str(quantity) for name, quantity in pods.resources.items()}
    return wanted


def environment(request: PodRequest) -> list[Data]:
    """Return the variables of a pod: where the pods meet, then the run's, then the user's."""
    pods, names = request.settings, request.names
    plain = {
        "WEFT_PODS": str(pods.pods),
        "WEFT_POD_PREFIX": names.prefix,
        "WEFT_POD_LEADER": names.leader,
        "WEFT_POD_PORT": str(pods.port),
        "WEFT_POD_MIRROR": "1",
        **({"WEFT_CODE": f"{CODE_FOLDER}/{CODE_FILE}"} if pods.code == "snapshot" else {}),
        **({"WEFT_WORKDIR": pods.workdir} if pods.kind == "trainjob" else {}),  # which has no field for it
        **{name: value for name, value in request.env.items() if name not in request.secret_env},
        **pods.env,
    }
    found: list[Data] = [{"name": name, "value": literal(value)} for name, value in plain.items()]
    found.append(
        {
            "name": "WEFT_POD_INDEX",
            "valueFrom": {
                "fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
            },
        }
    )
    found.append({"name": "WEFT_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    found.append(_from_secret("WEFT_DOOR_SECRET", names.name, DOOR_KEY))
    found += [_from_secret(name, names.name, SECRET_VARIABLE_KEY + name) for name in request.secret_env]
    found += [_from_secret(name, *place.split("/", 1)) for name, place in pods.secrets.items()]
    # Each name once: those of the settings count more than those of the run.
    return list({variable["name"]: variable for variable in found}.values())


def _from_secret(variable: str, secret: str, key: str) -> Data:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _toleration(toleration: PodToleration) -> Data:
    found: Data = {"operator": toleration.operator}
    if toleration.key is not None:
        found["key"] = toleration.key
    if toleration.value is not None:
        found["value"] = toleration.value
    if toleration.effect is not None:
        found["effect"] = toleration.effect
    if toleration.seconds is not None:
        found["tolerationSeconds"] = toleration.seconds
    return found


def _lost_node_tolerations(pods: KubernetesConfig) -> list[Data]:
    """Have the pods of a node that is lost replaced soon: Kubernetes would wait for five minutes."""
    own = {toleration.key for toleration in pods.tolerations}
    taints = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": pods.lost_node_s}
        for key in taints
        if key not in own and None not in own
    ]


def _volumes(request: PodRequest) -> list[Data]:
    pods = request.settings
    found: list[Data] = []
    if pods.shm is not None:
        found.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": pods.shm}})
    if pods.code == "snapshot":
        found.append({"name": "code", **_code_source(request)})
        found.append({"name": "workdir", "emptyDir": {}})
    found += [{"name": f"volume-{number}", **_source(volume)} for number, volume in enumerate(pods.volumes)]
    return found


def _code_source(request: PodRequest) -> Data:
    """Return the volume with the code: one ConfigMap, or several in one folder."""
    names = [
        code_part(request.names.name, number, request.code_parts)[0] for number in range(request.code_parts)
    ]
    if len(names) == 1:
        return {"configMap": {"name": names[0]}}
    return {"projected": {"sources": [{"configMap": {"name": name}} for name in names]}}


def _source(volume: PodVolume) -> Data:
    match source_of(volume):
        case "claim":
            return {"persistentVolumeClaim": {"claimName": volume.claim}}
        case "config_map":
            return {"configMap": {"name": volume.config_map}}
        case "secret":
            return {"secret": {"secretName": volume.secret}}
        case "nfs":
            assert volume.nfs is not None
            server, _, path = volume.nfs.partition(":")
            return {"nfs": {"server": server, "path": path}}
        case "host_path":
            return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
        case _:
            return {"emptyDir": {"sizeLimit": volume.empty}}


def volume_mounts(pods: KubernetesConfig) -> list[Data]:
    """Return where the container sees its volumes."""
    found: list[Data] = []
    if pods.shm is not None:
        found.append({"name": "shm", "mountPath": "/dev/shm"})
    if pods.code == "snapshot":
        found.append({"name": "code", "mountPath": CODE_FOLDER, "readOnly": True})
        found.append({"name": "workdir", "mountPath": pods.workdir})
    for number, volume in enumerate(pods.volumes):
        mount: Data = {"name": f"volume-{number}", "mountPath": volume.at}
        if volume.sub_path is not None:
            mount["subPath"] = volume.sub_path
        if volume.read_only:
            mount["readOnly"] = True
        found.append(mount)
    return found
