"""Scaling: the best way for every number of hosts, and where one takes over from another. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.errors import UsageError
from weft.parallel.planning.choice import choose
from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.prediction.predict import StepPrediction
from weft.parallel.prediction.step import RecordedStep
from weft.parallel.prediction.way import KINDS, Change
from weft.text import format_seconds, format_table

HOSTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class ScalingPoint:
    """One number of hosts: the best way, and the best of each kind that fits."""

    hosts: int
    best: StepPrediction | None  # None: nothing fits
    by_kind: tuple[tuple[str, StepPrediction], ...]

    def of(self, kind: str) -> StepPrediction | None:
        return dict(self.by_kind).get(kind)


def scaling(
    step: RecordedStep, cluster: ClusterFacts, *, hosts: Sequence[int] = HOSTS, allow: Change = "rounding"
) -> tuple[ScalingPoint, ...]:
    """Plan for each number of hosts that are all like those of the cluster."""
    return tuple(_point(step, _resized(cluster, count), allow) for count in hosts)


def _resized(cluster: ClusterFacts, count: int) -> ClusterFacts:
    names = tuple(f"host{number}" for number in range(count))
    return replace(cluster, hosts=names, racks=cluster.racks if count % cluster.racks == 0 else 1)


def _point(step: RecordedStep, cluster: ClusterFacts, allow: Change) -> ScalingPoint:
    try:
        choice = choose(step, cluster, allow=allow)
    except UsageError:
        return ScalingPoint(cluster.host_count, None, ())
    kinds = {
        each.way.kind: each for each in reversed(choice.predictions) if each.fits and each.changes != "more"
    }
    found = tuple((kind, kinds[kind]) for kind in KINDS if kind in kinds)
    return ScalingPoint(cluster.host_count, choice.best, found)


def takeovers(points: Sequence[ScalingPoint]) -> list[tuple[int, str, str]]:
    """Return (hosts, from, to) wherever another kind becomes the best."""
    found: list[tuple[int, str, str]] = []
    before: str | None = None
    for point in points:
        kind = point.best.way.kind if point.best is not None else None
        if before is not None and kind is not None and kind != before:
            found.append((point.hosts, before, kind))
        before = kind or before
    return found


def render_scaling(points: Sequence[ScalingPoint]) -> str:
    """Return the table of scaling, and where ways take over."""
    rows = [("hosts", "best way", "step", "computing")]
    for point in points:
        best = point.best
        rows.append(
            (str(point.hosts), "nothing fits", "-", "-")
            if best is None
            else (
                str(point.hosts),
                str(best.way),
                format_seconds(best.step_s, padded=True),
                f"{best.computing_share:.0%}",
            )
        )
    lines = format_table(rows, {"best way"})
    lines += [
        f"from {hosts} hosts on, {kind} takes over from {before}" for hosts, before, kind in takeovers(points)
    ]
    return "\n".join(lines)
