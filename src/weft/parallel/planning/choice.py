"""The choice: the quickest way that fits and is allowed, and the reason why it wins. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.errors import UsageError
from weft.parallel.planning.candidates import PLAIN_DDP, PLAIN_FSDP, candidates
from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.prediction.predict import StepPrediction, predict
from weft.parallel.prediction.step import RecordedStep
from weft.parallel.prediction.way import KINDS, Change, Kind, Way
from weft.text import format_seconds, format_size

CHANGES: tuple[Change, ...] = ("nothing", "rounding", "more")
NOTHING = 0.005  # shares of a time below this are not worth telling
SAME = 1.02  # a way is as quick as the best if it takes at most so many times as long
_SIMPLEST: tuple[Kind, ...] = ("ddp", "hsdp", "fsdp-keep", "zero2", "fsdp", "zero1", "lms")


@dataclass(frozen=True)
class WayChoice:
    """The best way, all that were played, and why it was chosen."""

    best: StepPrediction
    predictions: tuple[StepPrediction, ...]  # quickest first; those that do not fit last
    reason: str

    def of(self, way: Way) -> StepPrediction | None:
        return next((each for each in self.predictions if each.way == way), None)


def choose(
    step: RecordedStep,
    cluster: ClusterFacts,
    *,
    allow: Change = "rounding",
    kinds: Iterable[str] = tuple(KINDS),
    ways: Sequence[Way] | None = None,
) -> WayChoice:
    """Predict every way, and choose the quickest that fits, is of these kinds and changes no more than allowed."""
    wanted = set(kinds)
    if unknown := wanted - set(KINDS):
        raise UsageError(
            f"kinds must be among {', '.join(KINDS)}, got {', '.join(sorted(unknown))}; mend the name"
        )
    played = [predict(step, cluster, way) for way in ways or candidates(step, cluster)]
    played.sort(key=lambda each: (not each.fits, each.step_s))
    open_to = [
        each
        for each in played
        if each.fits and each.way.kind in wanted and CHANGES.index(each.changes) <= CHANGES.index(allow)
    ]
    if not open_to:
        raise UsageError(_nothing_fits(played, wanted, cluster))
    quickest = open_to[0].step_s
    best = min((each for each in open_to if each.step_s <= SAME * quickest), key=_complexity)
    return WayChoice(best, tuple(played), _reason(best, played, step, cluster))


def _complexity(each: StepPrediction) -> tuple[int, int, int, float, float]:
    """Order ways that are equally quick: what changes less comes first, then what is simpler, then what is quicker."""
    way = each.way
    return (
        CHANGES.index(each.changes),
        _SIMPLEST.index(way.kind),
        int(way.racks) + bool(way.passes),
        abs(way.bucket_bytes - PLAIN_DDP.bucket_bytes) + way.prefetch,
        each.step_s,
    )


def _nothing_fits(played: Sequence[StepPrediction], wanted: set[str], cluster: ClusterFacts) -> str:
    least = min((each for each in played if each.way.kind in wanted), key=lambda each: each.peak_bytes)
    return (
        f"a way must fit into {format_size(cluster.device_bytes)} of each worker, got {least.way} as the smallest "
        f"with {format_size(least.peak_bytes)}; use more hosts, smaller passes or --lms"
    )


def _reason(
    best: StepPrediction, played: Sequence[StepPrediction], step: RecordedStep, cluster: ClusterFacts
) -> str:
    """Tell what the best way waits for, and what the usual ones would have."""
    parts = [_bound(best, cluster)]
    for name, way in (("plain DDP", PLAIN_DDP), ("FSDP2 over all workers", PLAIN_FSDP)):
        if way == best.way or cluster.world == 1:
            continue
        other = next((each for each in played if each.way == way), None) or predict(step, cluster, way)
        if not other.fits:
            parts.append(
                f"{name} does not fit: it needs {format_size(other.peak_bytes)} of "
                f"{format_size(cluster.device_bytes)}"
            )
        elif other.step_s > SAME * best.step_s:
            parts.append(
                f"{name} takes {other.step_s / best.step_s:.2f}x as long{_bytes_beside(other, best)}, "
                f"and computes {other.computing_share:.0%} of the time"
            )
        else:
            parts.append(f"{name} is as quick")
    return "; ".join(parts)


def _bound(best: StepPrediction, cluster: ClusterFacts) -> str:
    if cluster.world == 1:
        return "there is one worker, so nothing is sent"
    if best.waiting_s <= 0.02 * best.step_s:
        return f"{best.way} computes {best.computing_share:.0%} of the time: what it sends is hidden behind compute"
    hidden_s = best.network_s - best.waiting_s
    hidden = f"{format_seconds(hidden_s)} of it" if hidden_s > NOTHING * best.network_s else "nothing of it"
    return (
        f"{best.way} waits {format_seconds(best.waiting_s)} of {format_seconds(best.step_s)}: the network works for "
        f"{format_seconds(best.network_s)}, {hidden} hidden behind compute"
    )


def _bytes_beside(other: StepPrediction, best: StepPrediction) -> str:
    if not best.card_bytes:
        return f", sends {format_size(other.card_bytes)}" if other.card_bytes else ""
    ratio = other.card_bytes / best.card_bytes
    return f", sends {ratio:.2g}x the bytes" if abs(ratio - 1) > 0.05 else ", sends as much"
