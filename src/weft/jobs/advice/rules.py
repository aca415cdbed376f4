"""The rules of advice: each is a pure function from evidence and thresholds to a finding, or None."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from weft.jobs.advice.model import ACTIONS, Curve, Evidence, Finding, Thresholds

Rule = Callable[[Evidence, Thresholds], Finding | None]
SMOOTHING = 0.9  # weight of the past in the running mean of a loss


def advise(evidence: Evidence, thresholds: Thresholds | None = None) -> tuple[Finding, ...]:
    """Return the findings of all rules, the gravest first."""
    limits = thresholds or Thresholds()
    found = [finding for rule in RULES for finding in [rule(evidence, limits)] if finding is not None]
    order = {"problem": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))


def not_a_number(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """The loss or a gradient's norm is NaN or infinite."""
    for name in (evidence.loss, evidence.gradient_norm):
        curve = evidence.curves.get(name)
        if curve is None or np.isfinite(curve.values).all():
            continue
        step = int(curve.steps[np.flatnonzero(~np.isfinite(curve.values))[0]])
        text = f"{name} is not a number since step {step}; lower the learning rate, or look at the data of that step"
        return Finding(
            "not-a-number", "problem", text, {"step": float(step)}, (*ACTIONS["not-a-number"], "tell")
        )
    return None


def divergence(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """The smoothed loss has stayed far above its best."""
    curve = _finite(evidence.curves.get(evidence.loss))
    if curve is None or len(curve) <= limits.divergence_reports:
        return None
    smooth = smoothed(curve.values)
    before = smooth[: -limits.divergence_reports]
    best = float(before.min())
    if best <= 0 or float(smooth[-limits.divergence_reports :].min()) <= limits.divergence_ratio * best:
        return None
    ratio = float(smooth[-1]) / best
    text = f"the loss is {ratio:.1f} times its best ({best:.3g}); go back to the best checkpoint with half the rate"
    return Finding(
        "divergence", "problem", text, {"ratio": ratio, "best": best}, (*ACTIONS["divergence"], "tell")
    )


def plateau(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """The best validation loss has hardly improved in the last reports."""
    curve = _finite(evidence.curves.get(evidence.validation_loss))
    if curve is None or len(curve) <= limits.plateau_reports:
        return None
    before = float(curve.values[: -limits.plateau_reports].min())
    now = float(curve.values[-limits.plateau_reports :].min())
    gain = (before - now) / abs(before) if before else 0.0
    if gain >= limits.plateau_gain:
        return None
    text = (
        f"the validation loss improved by {100 * max(gain, 0.0):.2g} % in the last {limits.plateau_reports} reports; "
        "lower the rate, or stop"
    )
    return Finding("plateau", "info", text, {"gain": gain}, (*ACTIONS["plateau"], "tell"))


def overfitting(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """The validation loss rises away from the training loss."""
    train = _finite(evidence.curves.get(evidence.loss))
    valid = _finite(evidence.curves.get(evidence.validation_loss))
    if train is None or valid is None or len(valid) <= limits.overfitting_reports:
        return None
    last = valid.values[-limits.overfitting_reports - 1 :]
    level = float(np.interp(valid.steps[-1], train.steps, smoothed(train.values)))
    gap = (float(last[-1]) - level) / level if level > 0 else 0.0
    if gap <= limits.overfitting_gap or not (np.diff(last) > 0).all():
        return None
    text = (
        f"the validation loss rose {limits.overfitting_reports} times in a row and is {100 * gap:.0f} % above the "
        "training loss; stop, and keep the best checkpoint"
    )
    return Finding("overfitting", "warning", text, {"gap": gap}, (*ACTIONS["overfitting"], "tell"))


def exploding_gradients(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """Gradients were several times far above their median lately."""
    curve = _finite(evidence.curves.get(evidence.gradient_norm))
    if curve is None or len(curve) < limits.explosion_steps:
        return None
    recent = curve.values[-limits.explosion_steps :]
    median = float(np.median(curve.values))
    count = int((recent > limits.explosion_ratio * median).sum())
    if median <= 0 or count < limits.explosion_count:
        return None
    text = f"the gradient's norm was {count} times over {limits.explosion_ratio:g} times its median; clip it"
    evidence_found = {"count": float(count), "median": median}
    return Finding(
        "exploding-gradients", "warning", text, evidence_found, (*ACTIONS["exploding-gradients"], "tell")
    )


def vanishing_gradients(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """Gradients have been next to nothing for many steps."""
    curve = _finite(evidence.curves.get(evidence.gradient_norm))
    if curve is None or len(curve) < limits.vanishing_steps:
        return None
    largest = float(curve.values[-limits.vanishing_steps :].max())
    if largest >= limits.vanishing_norm:
        return None
    text = f"the gradient's norm has been below {limits.vanishing_norm:g} for {limits.vanishing_steps} steps"
    return Finding("vanishing-gradients", "warning", text, {"norm": largest})


def slow_loader(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """Steps wait for data."""
    share = _median(evidence.loader_share)
    if share is None or share <= limits.loader_share:
        return None
    text = f"{100 * share:.0f} % of a step waits for data; give the loader more workers, or cache what it decodes"
    return Finding("slow-loader", "warning", text, {"share": share}, (*ACTIONS["slow-loader"], "tell"))


def busy_processors(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """Processors are busy while the accelerator idles, for half of the time."""
    count = min(len(evidence.cpu_use), len(evidence.gpu_use))
    if count < limits.gpu_samples:
        return None
    both = (evidence.cpu_use[-count:] > 0.9) & (evidence.gpu_use[-count:] < 0.1)
    share = float(both.mean())
    if share <= 0.5:
        return None
    text = f"processors were busy and the accelerator idle {100 * share:.0f} % of the time; let them do less"
    return Finding(
        "busy-processors", "warning", text, {"share": share}, (*ACTIONS["busy-processors"], "tell")
    )


def idle_accelerator(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """The accelerator is hardly used, even at its best."""
    if len(evidence.gpu_use) < limits.gpu_samples:
        return None
    low, high = np.percentile(evidence.gpu_use[-limits.gpu_samples :], [5, 95])
    if high >= limits.gpu_idle_p95 or low >= limits.gpu_idle_p5:
        return None
    text = f"the accelerator's use is below {100 * high:.0f} % in 19 of 20 samples; use a larger batch or fewer workers"
    return Finding(
        "idle-accelerator",
        "info",
        text,
        {"p95": float(high), "p5": float(low)},
        (*ACTIONS["idle-accelerator"], "tell"),
    )


def straggler(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """One rank computes longer than the others."""
    medians = {rank: float(np.median(times)) for rank, times in evidence.step_s.items() if len(times) >= 10}
    if len(medians) < 2:
        return None
    slowest = max(medians, key=lambda rank: medians[rank])
    others = float(np.median([value for rank, value in medians.items() if rank != slowest]))
    ratio = medians[slowest] / others if others > 0 else 1.0
    if ratio < limits.straggler_ratio:
        return None
    text = f"rank {slowest} takes {ratio:.1f} times as long as the others; check its host, or rebalance"
    return Finding("straggler", "warning", text, {"rank": float(slowest), "ratio": ratio})


def exposed_communication(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """Steps wait for reductions."""
    share = _median(evidence.exposed_share)
    if share is None or share <= limits.exposed_share:
        return None
    text = f"{100 * share:.0f} % of a step waits for other workers; try --mode explore, or --wire bf16"
    return Finding("exposed-communication", "warning", text, {"share": share})


def tight_memory(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """The accelerator's memory is nearly full."""
    peak = evidence.device_peak
    if peak is None or peak <= limits.memory_high:
        return None
    text = f"the accelerator's memory was {100 * peak:.0f} % full; give a budget (resources.lms) before a batch fails"
    return Finding("tight-memory", "warning", text, {"peak": peak})


def spare_memory(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """Half of the accelerator's memory is never used."""
    peak = evidence.device_peak
    if peak is None or not 0 < peak < limits.device_low:
        return None
    text = f"the accelerator's memory was {100 * peak:.0f} % full at most; a larger batch would use it better"
    return Finding("spare-memory", "info", text, {"peak": peak})


def leaking_memory(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """The host's memory grows and grows."""
    use = evidence.memory_use
    if len(use) < 100:
        return None
    parts = np.array([part.mean() for part in np.array_split(use[len(use) // 10 :], 9)])
    growth = float(parts[-1] / parts[0] - 1) if parts[0] > 0 else 0.0
    if growth <= limits.leak_growth or not (np.diff(parts) > 0).all():
        return None
    text = f"the host's memory has grown by {100 * growth:.0f} % without a pause; look for lists that keep tensors"
    return Finding("leaking-memory", "warning", text, {"growth": growth})


def stall(evidence: Evidence, limits: Thresholds) -> Finding | None:
    """There was no step for a long time."""
    if evidence.idle_s < limits.stall_s:
        return None
    text = f"there was no step for {evidence.idle_s / 60:.0f} minutes; weft logs shows what the workers last said"
    return Finding("stall", "problem", text, {"idle_s": evidence.idle_s}, (*ACTIONS["stall"], "tell"))


RULES: tuple[Rule, ...] = (
    not_a_number,
    divergence,
    plateau,
    overfitting,
    exploding_gradients,
    vanishing_gradients,
    slow_loader,
    busy_processors,
    idle_accelerator,
    straggler,
    exposed_communication,
    tight_memory,
    spare_memory,
    leaking_memory,
    stall,
)


def smoothed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return running means that forget exponentially, without a bias towards the first value."""
    result = np.empty_like(values)
    mean, weight = 0.0, 0.0
    for index, value in enumerate(values):
        mean = SMOOTHING * mean + (1 - SMOOTHING) * value
        weight = SMOOTHING * weight + (1 - SMOOTHING)
        result[index] = mean / weight
    return result


def _finite(curve: Curve | None) -> Curve | None:
    if curve is None:
        return None
    keep = np.isfinite(curve.values)
    return curve if keep.all() else Curve(curve.steps[keep], curve.values[keep])


def _median(shares: NDArray[np.float64]) -> float | None:
    return float(np.median(shares)) if len(shares) >= 20 else None
