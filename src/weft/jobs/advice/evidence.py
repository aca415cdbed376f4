"""Evidence about a running job, from the metrics in the store."""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from weft.jobs.advice.model import Curve, Evidence
from weft.jobs.metrics.columns import Columns
from weft.jobs.store.metrics import MetricSummary, history, summaries

MOST_POINTS = 2000  # of a curve, its newest
SYSTEM = "system/"
# Names under which metrics that rules look at are known, the first that is there counts.
LOSS = ("loss", "train_loss", "train/loss", "training_loss", "loss/train")
VALIDATION_LOSS = (
    "val_loss", "val/loss", "valid_loss", "valid/loss", "validation_loss", "eval_loss", "eval/loss", "test_loss",
    "test/loss", "loss/val",
)  # fmt: skip
GRADIENT_NORM = ("grad_norm", "gradient_norm", "train/grad_norm", "gradients/norm")
LOADER_SHARE = ("loader_share", "weft/loader_share")
EXPOSED_SHARE = ("exposed_share", "weft/exposed_share")
STEP_S = "step_s"  # and step_s@3 of rank 3


def gather_evidence(
    connection: sa.Connection, job_id: int, *, since_ms: int, now_ms: int, restarted: bool = False
) -> Evidence:
    """Return what is known of a job that has been running since a time; of one that was restarted, since then."""
    found = {one.name: one for one in summaries(connection, job_id)}

    def newest(name: str | None) -> Columns | None:
        if name is None or name not in found:
            return None
        return history(connection, job_id, name, max(0, found[name].points - MOST_POINTS), MOST_POINTS)

    def values(*names: str) -> NDArray[np.float64]:
        columns = newest(_known(names, found))
        return columns.values if columns is not None else np.zeros(0)

    chosen = {"loss": LOSS, "validation_loss": VALIDATION_LOSS, "gradient_norm": GRADIENT_NORM}
    names = {role: _known(known, found) or known[0] for role, known in chosen.items()}
    curves = {
        name: Curve(columns.steps, columns.values) for name in names.values() if (columns := newest(name))
    }
    if restarted:
        curves = {name: newest_pass(curve) for name, curve in curves.items()}
    return Evidence(
        curves=curves,
        **names,
        loader_share=values(*LOADER_SHARE),
        exposed_share=values(*EXPOSED_SHARE),
        gpu_use=values("system/gpu"),
        cpu_use=values("system/cpu"),
        memory_use=values("system/memory"),
        device_peak=found["system/gpu_memory"].highest if "system/gpu_memory" in found else None,
        step_s={rank: values(name) for name, rank in _ranks(found)},
        idle_s=_idle_s(found, since_ms, now_ms),
    )


def newest_pass(curve: Curve) -> Curve:
    """Return the part of a curve since its steps last went back, as they do when a job begins again."""
    back = np.flatnonzero(np.diff(curve.steps) < 0)
    first = int(back[-1]) + 1 if len(back) else 0
    return Curve(curve.steps[first:], curve.values[first:])


def _known(names: tuple[str, ...], found: dict[str, MetricSummary]) -> str | None:
    return next((name for name in names if name in found), None)


def _ranks(found: dict[str, MetricSummary]) -> list[tuple[str, int]]:
    ranks = [(STEP_S, 0)] if STEP_S in found else []
    for name in found:
        rank = name.removeprefix(f"{STEP_S}@")
        if rank != name and rank.isdigit():
            ranks.append((name, int(rank)))
    return ranks


def _idle_s(found: dict[str, MetricSummary], since_ms: int, now_ms: int) -> float:
    """Return the seconds since the job's last report; 0 for one that reports nothing, which may well be at work."""
    reported = [one.last_ms for one in found.values() if one.last_ms and not one.name.startswith(SYSTEM)]
    return max(0.0, (now_ms - max(*reported, since_ms)) / 1000) if reported else 0.0
