"""The prediction of a step: `predict(step, cluster, way)`. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.prediction.memory import fits, peak_bytes, swapped_bytes
from weft.parallel.prediction.simulation import play
from weft.parallel.prediction.step import RecordedStep
from weft.parallel.prediction.timeline import COMPUTE, NETWORK, WorkerTimeline
from weft.parallel.prediction.way import Change, Way

PLAYED_PASSES = 4  # of a step with many: the others take as long as the last of the middle ones


@dataclass(frozen=True, kw_only=True)
class StepPrediction:
    """The predicted time, traffic and memory of a step in one way."""

    way: Way
    step_s: float
    compute_s: float  # of it, that the processor computes
    network_s: float  # that the network is busy, hidden or not
    card_bytes: int  # each way, over the card of each host, in a step
    uplink_bytes: int = 0  # over the uplink of each rack
    copy_bytes: int = 0  # between device and main memory, of each worker
    peak_bytes: int = 0  # of each worker
    fits: bool = True

    @property
    def computing_share(self) -> float:
        return self.compute_s / self.step_s if self.step_s else 1.0

    @property
    def waiting_s(self) -> float:
        """The part of the step in which the processor waits."""
        return max(0.0, self.step_s - self.compute_s)

    @property
    def changes(self) -> Change:
        return self.way.changes


def predict(step: RecordedStep, cluster: ClusterFacts, way: Way) -> StepPrediction:
    """Predict a step of training in one way, for workers that are all alike."""
    divided = step.in_passes(way.passes or step.passes)
    short = _played(divided, cluster, way, min(divided.passes, PLAYED_PASSES))
    figures = short
    if divided.passes > PLAYED_PASSES:
        shorter = _played(divided, cluster, way, PLAYED_PASSES - 1)
        more = divided.passes - PLAYED_PASSES
        figures = tuple(a + more * (a - b) for a, b in zip(short, shorter, strict=True))
    step_s, compute_s, network_s, card, uplink = figures
    # The slowest of N workers whose times scatter by s is about s sqrt(2 ln N) behind their mean.
    step_s += (
        cluster.jitter * compute_s * math.sqrt(2 * math.log(cluster.world)) if cluster.world > 1 else 0.0
    )
    copied = 0
    peak = peak_bytes(divided, cluster, way)
    if way.kind == "lms":
        state, activations = swapped_bytes(divided, cluster)
        copied = 2 * (state + activations * divided.passes)
        peak = min(peak, cluster.device_bytes or peak)
    return StepPrediction(
        way=way,
        step_s=step_s,
        compute_s=compute_s,
        network_s=network_s,
        card_bytes=round(card),
        uplink_bytes=round(uplink),
        copy_bytes=copied,
        peak_bytes=peak,
        fits=fits(divided, cluster, way),
    )


def _played(step: RecordedStep, cluster: ClusterFacts, way: Way, passes: int) -> tuple[float, ...]:
    time: WorkerTimeline = play(replace(step, passes=passes), cluster, way)
    return (time.now, time.busy_s(COMPUTE), time.busy_s(NETWORK), time.card_bytes, time.uplink_bytes)
