"""The place of a pod among those of its run, as its environment tells it; pure.

Pods of our own manifests have `WEFT_POD_*`. Those of Kubeflow's TrainJobs and PyTorchJobs have torchrun's `PET_*`,
which say the same, so that `weft run` is a command for them as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weft.errors import UsageError

DOOR_PORT = 29499
SECRET_VARIABLE = "WEFT_DOOR_SECRET"


@dataclass(frozen=True, kw_only=True)
class PodPlace:
    """One pod of a run, and how to reach the first one."""

    index: int
    count: int  # of the pods with which the run begins
    prefix: str  # of the pods' names
    leader: str  # the address of the first pod
    port: int  # on which each pod listens
    address: str  # of this pod; empty: all that it has
    secret: str
    least: int | None = None  # pods with which the run may begin; None: all of them
    mirrors: bool = False  # whether the first pod prints its files for whoever follows its log

    @property
    def is_leader(self) -> bool:
        """Return whether this pod launches the run."""
        return self.index == 0

    @property
    def name(self) -> str:
        """The name of this pod as a host of the run."""
        return self.host(self.index)

    def host(self, index: int) -> str:
        """Return the name of a pod as a host of the run."""
        return f"{self.prefix}-{index}"


def is_among_pods(environ: Mapping[str, str]) -> bool:
    """Return whether another system has started this process on each of several hosts, and said so in torchrun's words.

    Workers have these variables too, which are no pods of their own.
    """
    return "PET_NNODES" in environ and bool(_pod_index(environ)) and "WEFT_HOST" not in environ


def _pod_index(environ: Mapping[str, str]) -> str:
    """Return the index of a pod in torchrun's words, of its Job, or by its name: the first one's with another number.

    An elastic PyTorchJob tells its pods of none: they are called JOB-worker-0 and so on.
    """
    if index := environ.get("PET_NODE_RANK") or environ.get("JOB_COMPLETION_INDEX"):
        return index
    prefix, _, number = environ.get("HOSTNAME", "").rpartition("-")
    return number if prefix and _leader_address(environ).split(".")[0] == f"{prefix}-0" else ""


def _leader_address(environ: Mapping[str, str]) -> str:
    """Return the address of the first pod in torchrun's words."""
    named = environ.get("PET_MASTER_ADDR") or environ.get("MASTER_ADDR")
    return named or environ.get("PET_RDZV_ENDPOINT", "").rpartition(":")[0].strip("[]")


def place_from(environ: Mapping[str, str]) -> PodPlace:
    """Return the place of this pod; raise `UsageError` where nothing tells it."""
    if "WEFT_POD_LEADER" in environ:
        return _ours(environ)
    if "PET_NNODES" in environ and _pod_index(environ):
        return _torchruns(environ)
    raise UsageError(
        "--engine pods must run inside a pod of a run, got no WEFT_POD_LEADER or PET_NNODES; "
        "use --engine kubernetes from outside"
    )


def _ours(environ: Mapping[str, str]) -> PodPlace:
    index = environ.get("WEFT_POD_INDEX") or environ.get("JOB_COMPLETION_INDEX", "")
    return PodPlace(
        index=_whole("WEFT_POD_INDEX", index, 0),
        count=_whole("WEFT_PODS", environ.get("WEFT_PODS", ""), 1),
        prefix=environ.get("WEFT_POD_PREFIX", "pod"),
        leader=environ["WEFT_POD_LEADER"],
        port=_whole("WEFT_POD_PORT", environ.get("WEFT_POD_PORT", str(DOOR_PORT)), 1),
        address=environ.get("WEFT_POD_IP", ""),
        secret=environ.get(SECRET_VARIABLE, ""),
        mirrors=environ.get("WEFT_POD_MIRROR") == "1",
    )


def _torchruns(environ: Mapping[str, str]) -> PodPlace:
    least, _, count = environ["PET_NNODES"].rpartition(":")
    leader = _leader_address(environ)
    if not leader:
        raise UsageError("PET_MASTER_ADDR must name the first pod, got none; set it beside PET_NNODES")
    return PodPlace(
        index=_whole("PET_NODE_RANK", _pod_index(environ), 0),
        count=_whole("PET_NNODES", count, 1),
        least=_whole("PET_NNODES", least, 1) if least else None,
        prefix="pod",
        leader=leader,
        port=_whole("WEFT_POD_PORT", environ.get("WEFT_POD_PORT", str(DOOR_PORT)), 1),
        address=environ.get("WEFT_POD_BIND", ""),
        # Where there is none, any pod that reaches these could join them: torchrun does not ask either.
        secret=environ.get(SECRET_VARIABLE, f"open to all that reach {leader}"),
    )


def _whole(name: str, text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise UsageError(f"{name} must be a whole number of at least {least}, got {text!r}; mend the pod")
    return int(text)
