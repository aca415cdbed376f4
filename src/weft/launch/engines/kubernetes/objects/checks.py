"""The rules for what a run on Kubernetes can be asked for together; pure. Each refusal says what to do instead."""

from __future__ import annotations

import re

from weft.errors import UsageError
from weft.launch.config import LaunchConfig
from weft.launch.engines.kubernetes.objects.quantities import amount_of, is_extended
from weft.launch.pod_settings import KubernetesConfig, PodVolume

_STANDARD = re.compile(r"cpu|memory|ephemeral-storage|hugepages-\S+")
# Labels that the Job controller gives the pods itself.
_TAKEN = re.compile(r"(batch\.kubernetes\.io/.*|job-name|controller-uid)")
_SOURCES = ("claim", "config_map", "secret", "nfs", "host_path", "empty")
_OURS = re.compile(r"(WEFT_POD|WEFT_DOOR|PET_)|(JOB_COMPLETION_INDEX|WEFT_CODE|WEFT_WORKDIR)$")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(
    r"([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?"
)


def check_request(config: LaunchConfig, pods: KubernetesConfig) -> None:
    """Raise `UsageError` for a run that no cluster could carry out as it was asked for."""
    _check_launch(config)
    if not pods.image:
        raise UsageError(
            "--engine kubernetes must have an image for its pods, got none; use --image NAME:TAG"
        )
    _check_names(pods)
    _check_resources(pods)
    _check_tolerations(pods)
    _check_volumes(pods)
    _check_security(pods)
    _check_network(pods)
    _check_queue(pods)
    _check_kind(pods)


def _check_launch(config: LaunchConfig) -> None:
    wrong = {
        "-H": bool(config.hosts),
        "--rankfile": config.rankfile is not None,
        "--mpiarg": bool(config.mpi_args),
        "--min-hosts": config.min_hosts is not None,
    }
    for flag, given in wrong.items():
        if given:
            raise UsageError(
                f"--engine kubernetes lets the cluster choose the hosts, got {flag}; drop it and use --pods"
            )


def _check_names(pods: KubernetesConfig) -> None:
    for name in (*pods.env, *pods.secrets):
        if _OURS.match(name):
            raise UsageError(
                f"a variable of a run on Kubernetes must not be one that its pods get from us, got {name}; drop it"
            )
    both = sorted(set(pods.env) & set(pods.secrets))
    if both:
        raise UsageError(f"a variable must come from env or from secrets, got {both[0]} in both; drop one")
    for what, labels in (("labels", pods.labels), ("node_selector", pods.node_selector)):
        for key, value in labels.items():
            if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
                raise UsageError(
                    f"{what} must be keys and values that Kubernetes takes (letters, digits, - _ . and at most 63 "
                    f"characters), got {key}={value}; mend it"
                )
    for key in pods.labels:
        if _TAKEN.fullmatch(key):
            raise UsageError(
                f"labels must not be those that Kubernetes itself gives pods, got {key}; drop it"
            )
    for key in pods.annotations:
        if not _LABEL_KEY.fullmatch(key):
            raise UsageError(f"annotations must have keys that Kubernetes takes, got {key!r}; mend it")


def _check_resources(pods: KubernetesConfig) -> None:
    for name, quantity in {**pods.resources, **pods.requests}.items():
        if not _LABEL_KEY.fullmatch(name):
            raise UsageError(f"a resource must be named like cpu or nvidia.com/gpu, got {name!r}; mend it")
        if is_extended(name) and amount_of(quantity) % 1:
            raise UsageError(
                f"{name} must be a whole number, got {quantity}; extended resources are not shared"
            )
        if "/" not in name and not _STANDARD.fullmatch(name):
            raise UsageError(
                f"a resource of a vendor must be named with its domain, such as nvidia.com/gpu, got {name}; mend it"
            )
    _check_requests(pods)
    names = {*pods.resources, *pods.requests}
    if any(name.startswith("hugepages-") for name in names) and not names & {"cpu", "memory"}:
        raise UsageError("huge pages must come with cpu or memory, got them alone; add memory: 1Gi, say")
    memory = pods.resources.get("memory")
    if pods.shm is not None and memory is not None and amount_of(pods.shm) > amount_of(memory):
        raise UsageError(
            f"/dev/shm must fit into the memory of a pod, of which it is a part, got {pods.shm} of {memory}; "
            "lower shm or raise the memory"
        )


def _check_requests(pods: KubernetesConfig) -> None:
    for name, quantity in pods.requests.items():
        if name not in pods.resources:
            if is_extended(name) or name.startswith("hugepages-"):
                raise UsageError(
                    f"{name} is not shared, so it must be among resources, got it among requests alone; move it"
                )
            continue
        if is_extended(name) and amount_of(quantity) != amount_of(pods.resources[name]):
            raise UsageError(
                f"requests of {name} must equal its limit, got {quantity} and {pods.resources[name]}; drop the request"
            )
        if amount_of(quantity) > amount_of(pods.resources[name]):
            raise UsageError(
                f"requests must not exceed limits, got {name} {quantity} over {pods.resources[name]}; lower it"
            )


def _check_tolerations(pods: KubernetesConfig) -> None:
    for taint in pods.tolerations:
        if taint.key is None and taint.operator != "Exists":
            raise UsageError("a toleration of operator Equal must name a key, got none; add key: NAME")
        if taint.operator == "Exists" and taint.value is not None:
            raise UsageError(
                f"a toleration with a value must have operator: Equal, got Exists and {taint.value}; mend it"
            )
        if taint.seconds is not None and taint.effect != "NoExecute":
            raise UsageError(
                f"a toleration for some seconds must have effect: NoExecute, got {taint.effect}; mend it"
            )


def _check_volumes(pods: KubernetesConfig) -> None:
    taken = {"/dev/shm": "shared memory"} if pods.shm is not None else {}
    if pods.code == "snapshot":
        taken[pods.workdir.rstrip("/")] = "the snapshot of the code"
    for volume in pods.volumes:
        source_of(volume)
        at = volume.at.rstrip("/") or "/"
        if at in taken:
            raise UsageError(
                f"two volumes must not share a folder, got {at} for {taken[at]} as well; move one"
            )
        taken[at] = "another volume"
        if volume.sub_path is not None and (
            volume.sub_path.startswith("/") or ".." in volume.sub_path.split("/")
        ):
            raise UsageError(
                f"sub_path must be a folder below the volume's own, got {volume.sub_path}; mend it"
            )
        if volume.nfs is not None and not re.fullmatch(r"[^/:\s]+:/\S*", volume.nfs):
            raise UsageError(f"nfs must look like server:/path, got {volume.nfs!r}; mend it")
        if volume.host_path is not None and not pods.root:
            raise UsageError(
                f"a folder of the node (host_path {volume.host_path}) must come with root: true, got a run without; "
                "use a claim, which a cluster's own rules allow"
            )


def source_of(volume: PodVolume) -> str:
    """Return the one source that a volume names."""
    given = [name for name in _SOURCES if getattr(volume, name) is not None]
    if len(given) != 1:
        raise UsageError(
            f"a volume must have one source ({', '.join(_SOURCES)}), got {', '.join(given) or 'none'} at {volume.at}; "
            "mend it"
        )
    return given[0]


def _check_security(pods: KubernetesConfig) -> None:
    if pods.run_as_user == 0 and not pods.root:
        raise UsageError("run_as_user must not be 0 (root), got 0; write root: true if the image needs it")
    for name in pods.capabilities:
        if name.startswith("CAP_"):
            raise UsageError(
                f"capabilities must be named without CAP_, as Kubernetes does, got {name}; "
                f"write {name.removeprefix('CAP_')}"
            )


def _check_network(pods: KubernetesConfig) -> None:
    if pods.host_network and pods.networks:
        raise UsageError(
            f"networks are attached to pods that have a network of their own, got {', '.join(pods.networks)} with "
            "host_network; drop one"
        )


def _check_queue(pods: KubernetesConfig) -> None:
    for name, given in (
        ("queue_priority", pods.queue_priority),
        ("topology", pods.topology),
    ):
        if given is not None and pods.queue is None:
            raise UsageError(
                f"{name} is a wish to Kueue and must come with a queue, got none; name it: --queue NAME"
            )
    if "kueue.x-k8s.io/job-min-parallelism" in pods.annotations:
        raise UsageError(
            "all pods of a run start together, so Kueue must admit it as a whole, got the annotation "
            "kueue.x-k8s.io/job-min-parallelism; drop it, and use --elastic MIN:MAX to begin with fewer"
        )
    if pods.topology is None:
        return
    if (pods.topology.required is None) == (pods.topology.preferred is None):
        raise UsageError("topology must be required or preferred, got both or neither; keep one of the two")
    level = pods.topology.required or pods.topology.preferred or ""
    if not _LABEL_KEY.fullmatch(level):
        raise UsageError(
            f"a level of the topology must be a label of nodes, such as example.org/rack, got {level!r}; mend it"
        )


def _check_kind(pods: KubernetesConfig) -> None:
    if pods.elastic and pods.kind == "job" and pods.topology is not None:
        raise UsageError(
            "Kueue takes no wish for a topology from a run that grows while it runs, got an elastic run with topology; "
            "drop topology, or use --as jobset for a run of a fixed number of pods"
        )
    if pods.elastic and pods.app_wrapper and pods.queue is not None:
        raise UsageError(
            "an elastic run in a queue grows through the Job, which Kueue must see itself, got app_wrapper; drop it"
        )
    if pods.kind != "trainjob":
        return
    if pods.app_wrapper:
        raise UsageError(
            "an AppWrapper must hold the pods' own specification, which a TrainJob makes out of its runtime, got "
            "kind: trainjob; drop app_wrapper, for Kueue knows TrainJobs, or use kind: jobset"
        )
    for name, given in (
        ("host_network", pods.host_network),
        ("priority_class", pods.priority_class is not None),
        ("scheduler", pods.scheduler is not None),
        ("pull_policy", pods.pull_policy is not None),
        ("retries", pods.retries is not None),
        ("keep_s", pods.keep_s not in (None, 86_400)),
    ):
        if given:
            raise UsageError(
                f"a TrainJob takes {name} from its runtime and cannot set it, got it; write it into the "
                f"ClusterTrainingRuntime {pods.runtime}, or use kind: jobset"
            )
