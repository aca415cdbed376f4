"""Faults and limits of our own cluster, which tests set: what a real one does now and then."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.launch.engines.kubernetes.permissions import rules_for


@dataclass(eq=False)
class ClusterFaults:
    """Everything that a test may have a cluster do wrong, or strictly."""

    busy: int = 0  # so many requests are turned away with 429
    conflicts: int = 0  # so many changes collide with somebody else's
    anonymous: bool = False  # anybody is let in: kubectl sends no token where there is no TLS
    forbidden: set[str] = field(default_factory=set)  # kinds that nobody may touch
    unschedulable: set[int] = field(default_factory=set)  # indexes of pods that find no node
    quota: int | None = None  # pods that a namespace may have
    drop_answers: int = 0  # to so many creations, which are carried out
    silent_kind: str = ""  # whose creations are carried out and not answered until this is another one
    drop_refusals: int = 0  # so many answers that refuse are lost
    rules: dict[tuple[str, str], tuple[str, ...]] = field(  # no more than the Role that we print
        default_factory=lambda: dict(rules_for("jobset", app_wrapper=True))
    )
    collects: bool = True  # what belongs to an object that goes
    suspends: bool = False  # as Kueue does with new Jobs
    break_logs_every: int | None = None  # lines after which the first log stream breaks
    unreachable_kubelets: bool = False  # so that no log can be read
