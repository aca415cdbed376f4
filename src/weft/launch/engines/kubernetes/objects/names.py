"""The names of a run's objects and pods in a cluster, and their limits; pure.

A pod of an Indexed Job is known as `NAME-INDEX`, which must be a DNS label of at most 63 characters, and the Service
gives it the address `NAME-INDEX.NAME`. JobSet and Trainer put the name of the replicated job, and its number, between.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from weft.errors import UsageError
from weft.launch.pod_settings import Kind
from weft.text import plural

LONGEST_LABEL = 63
_MIDDLES: dict[Kind, str] = {"job": "", "jobset": "-worker-0", "trainjob": "-node-0"}
_HASH = "-abcde"  # that a Job controller puts behind the name of a pod


@dataclass(frozen=True)
class PodNames:
    """The names of the pods of one run."""

    name: str
    kind: Kind

    @property
    def prefix(self) -> str:
        """The names of the pods up to their index."""
        return f"{self.name}{_MIDDLES[self.kind]}"

    @property
    def job(self) -> str:
        """The name of the Job that makes the pods."""
        return self.prefix

    def host(self, index: int) -> str:
        """Return the host name of a pod."""
        return f"{self.prefix}-{index}"

    @property
    def leader(self) -> str:
        """The address at which the other pods find the first one."""
        return f"{self.host(0)}.{self.name}"


def pod_names(wanted: str | None, script: str, kind: Kind, pods: int) -> PodNames:
    """Return the names of a run that was named, or is called after its script."""
    room = LONGEST_LABEL - len(_MIDDLES[kind]) - len(f"-{max(pods - 1, 0)}")
    if kind != "job":  # JobSet wants whole names of pods to be labels; for a Job their host names are enough
        room -= len(_HASH)
    name = wanted or name_for(script)[:room].rstrip("-")
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(name) > room:
        raise UsageError(
            f"a run's name must begin with a small letter, hold small letters, digits and hyphens, and be at most "
            f"{room} characters long for {plural(pods, 'pod')} of a {kind}, got {name!r}; use --name"
        )
    return PodNames(name, kind)


def name_for(script: str) -> str:
    """Return a name that Kubernetes takes, made from the name of a script."""
    name = re.sub(r"[^a-z0-9]+", "-", script.lower()).strip("-")
    return name if name[:1].isalpha() else f"weft-{name}".rstrip("-")
