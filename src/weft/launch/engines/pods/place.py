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
    mirrors: bool = False  # whether the first pod prints its files for whoever follows its log

    @property
    def is_leader(self) -> bool:
        """Whether this pod launches the run."""
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
    return "PET_NNODES" in environ and "PET_NODE_RANK" in environ and "WEFT_HOST" not in environ


def place_from(environ: Mapping[str, str]) -> PodPlace:
    """Return the place of this pod; raise `UsageError` where nothing tells it."""
    if "WEFT_POD_LEADER" in environ:
        return _ours(environ)
    if "PET_NNODES" in environ and "PET_NODE_RANK" in environ:
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
    count = environ["PET_NNODES"].rpartition(":")[2]
    leader = environ.get("PET_MASTER_ADDR") or environ.get("MASTER_ADDR", "")
    if not leader:
        raise UsageError("PET_MASTER_ADDR must name the first pod, got none; set it beside PET_NNODES")
    return PodPlace(
        index=_whole("PET_NODE_RANK", environ["PET_NODE_RANK"], 0),
        count=_whole("PET_NNODES", count, 1),
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
