"""The settings of a run on Kubernetes: what its pods are made of, where they may run, and who queues them.

They are the fields of a YAML file (`weft run --engine kubernetes --kubernetes cluster.yaml`), the `kubernetes:` section
of a job's specification, and the arguments of `KubernetesConfig`:

    image: registry.example.org/team/train:2
    pods: 4
    resources: {cpu: "8", memory: 32Gi, nvidia.com/gpu: "4"}
    volumes:
      - {claim: data, at: /data, read_only: true}

What a single field cannot be is refused here; what cannot be combined, in `engines/kubernetes/objects/checks.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from weft.documents import Document

LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
QUANTITY = r"^\d{1,15}(\.\d{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
Label = Annotated[str, Meta(pattern=LABEL)]
ObjectName = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
QueueName = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]  # the value of a label
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,199}$")]
SecretKey = Annotated[str, Meta(pattern=r"^[a-z0-9][-a-z0-9.]{0,252}/[-._a-zA-Z0-9]{1,253}$")]
AbsolutePath = Annotated[str, Meta(pattern=r"^/[^:\x00-\x1f]*$")]
Quantity = Annotated[str, Meta(pattern=QUANTITY)]
Whole = Annotated[int, Meta(ge=0, le=1_000_000_000_000_000)]
Seconds = Annotated[int, Meta(ge=0, le=31_536_000)]
Identity = Annotated[int, Meta(ge=0, le=2_147_483_647)]
PodCount = Annotated[int, Meta(ge=1, le=65_536)]
Kind = Literal["job", "jobset", "trainjob"]


class PodVolume(Document, frozen=True, kw_only=True):
    """A folder of a pod, from exactly one source."""

    at: AbsolutePath  # where the container sees it
    claim: ObjectName | None = None  # a PersistentVolumeClaim
    config_map: ObjectName | None = None
    secret: ObjectName | None = None
    nfs: str | None = None  # server:/path
    host_path: AbsolutePath | None = None
    empty: Quantity | None = None  # a folder of the pod's own, up to this size
    sub_path: str | None = None
    read_only: bool = False


class PodToleration(Document, frozen=True, kw_only=True):
    """A taint of nodes that the pods put up with."""

    key: str | None = None  # None: any
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: Seconds | None = None  # for which NoExecute is put up with; None: for ever


class PodTopology(Document, frozen=True, kw_only=True):
    """The level of the machines' topology within which Kueue places all pods."""

    required: str | None = None
    preferred: str | None = None


class KubernetesConfig(Document, frozen=True, kw_only=True):
    """The settings of one run on Kubernetes."""

    image: Annotated[str, Meta(pattern=r"^[^\s]{0,500}$")] = ""
    kind: Kind = "job"
    app_wrapper: bool = False  # have an AppWrapper make what has pods
    name: Label | None = None  # of the objects; None: after the script
    namespace: Label | None = None  # None: that of the kubeconfig's context
    context: str | None = None  # of the kubeconfig; None: the current one
    kubeconfig: str | None = None  # None: $KUBECONFIG, ~/.kube/config, or the service account of this pod
    pods: PodCount = 1
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    pull_secrets: tuple[ObjectName, ...] = ()
    resources: dict[str, Quantity | Whole] = field(default_factory=dict)  # limits of a pod, and requests
    requests: dict[str, Quantity | Whole] = field(default_factory=dict)  # where they are less than the limits
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[PodToleration, ...] = ()
    lost_node_s: Seconds = 30  # after which the pods of a node that does not answer are replaced
    service_account: ObjectName | None = None  # None: the pods get no token of the cluster at all
    volumes: tuple[PodVolume, ...] = ()
    env: dict[VariableName, str] = field(default_factory=dict)
    secrets: dict[VariableName, SecretKey] = field(default_factory=dict)  # variable: secret/key
    shm: Quantity | None = "2Gi"  # of /dev/shm, in memory; None: what the node gives (64 MiB)
    run_as_user: Identity | None = 1000  # None: that of the image, or one that the cluster picks
    run_as_group: Identity | None = None
    fs_group: Identity | None = None
    root: bool = False  # whether the containers may run as root
    capabilities: tuple[Annotated[str, Meta(pattern=r"^[A-Z_]{1,40}$")], ...] = ()  # IPC_LOCK for RDMA
    host_network: bool = False
    networks: tuple[str, ...] = ()  # secondary networks, by Multus: name or namespace/name
    queue: QueueName | None = None  # Kueue's LocalQueue
    queue_priority: QueueName | None = None  # Kueue's WorkloadPriorityClass
    topology: PodTopology | None = None
    priority_class: ObjectName | None = None  # of the pods
    scheduler: ObjectName | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    retries: Annotated[int, Meta(ge=0, le=1000)] | None = (
        None  # of a pod; None: 0, or 100 where the run is elastic
    )
    deadline_s: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None
    keep_s: Seconds | None = 86_400  # after the end; None: until someone deletes it
    grace_s: Seconds = 30  # between SIGTERM and SIGKILL
    code: Literal["image", "snapshot"] | None = (
        None  # None: the image's, and a job's own; a volume counts as the image's
    )
    workdir: AbsolutePath = "/workspace"
    runtime: ObjectName = "weft"  # the ClusterTrainingRuntime of a TrainJob
    port: Annotated[int, Meta(ge=1024, le=65535)] = 29499  # where the pods meet
    checks: bool = False  # of the pods and the network between them, before the run
    detach: bool = False  # leave the run alone once it is applied
    client_s: Annotated[int, Meta(ge=30, le=31_536_000)] | None = (
        900  # without whoever follows a run, after which its Job ends; None: it goes on
    )
    extra_args: tuple[str, ...] = ()  # of `weft run` in the pods; those of an elastic run
    elastic: bool = False
