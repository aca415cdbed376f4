"""Evidence that rules look at, findings that they return, and the thresholds by which they judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Severity = Literal["info", "warning", "problem"]
ActionName = Literal["pause", "stop", "halve-rate", "clip", "add-loader-workers", "shrink", "retry", "tell"]
SCRIPT_ACTIONS: frozenset[ActionName] = frozenset(
    {"halve-rate", "clip", "add-loader-workers"}
)  # the script takes
# The actions that a rule may take, the one that it proposes first.
ACTIONS: Mapping[str, tuple[ActionName, ...]] = {
    "not-a-number": ("pause",),
    "divergence": ("halve-rate", "pause"),
    "plateau": ("halve-rate", "stop"),
    "overfitting": ("stop",),
    "exploding-gradients": ("clip",),
    "slow-loader": ("add-loader-workers",),
    "busy-processors": ("add-loader-workers",),
    "idle-accelerator": ("shrink",),
    "stall": ("retry",),
}


@dataclass(frozen=True)
class Curve:
    """One metric of a job: its steps and values, oldest first."""

    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, values: object, steps: object = None) -> Curve:
        array = np.asarray(values, dtype=np.float64)
        return cls(np.arange(len(array)) if steps is None else np.asarray(steps, dtype=np.int64), array)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The facts known of one job; a rule that needs more than there is finds nothing."""

    curves: Mapping[str, Curve] = field(default_factory=dict)
    loss: str = "loss"  # names of metrics that rules look at
    validation_loss: str = "val_loss"
    gradient_norm: str = "grad_norm"
    loader_share: NDArray[np.float64] = field(
        default_factory=lambda: np.zeros(0)
    )  # of each step, waiting for data
    exposed_share: NDArray[np.float64] = field(
        default_factory=lambda: np.zeros(0)
    )  # of each step, waiting for peers
    gpu_use: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # 0 to 1, sampled
    cpu_use: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # 0 to 1, at the same times
    memory_use: NDArray[np.float64] = field(
        default_factory=lambda: np.zeros(0)
    )  # of the limit, 0 to 1, sampled
    device_peak: float | None = None  # of the accelerator's memory, 0 to 1
    step_s: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)  # by rank
    idle_s: float = 0.0  # since the last step


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Numbers by which rules judge; a job's specification may give others."""

    divergence_ratio: float = 3.0  # of the smoothed loss to its best
    divergence_reports: int = 50  # for which the ratio must hold
    plateau_gain: float = 0.01  # of the best; less in `plateau_reports` is a plateau
    plateau_reports: int = 10
    overfitting_gap: float = 0.1  # (validation - training) / training
    overfitting_reports: int = 3  # for which the gap must have grown
    explosion_ratio: float = 100.0  # of a gradient's norm to its running median
    explosion_count: int = 3  # in the last `explosion_steps`
    explosion_steps: int = 100
    vanishing_norm: float = 1e-7
    vanishing_steps: int = 100
    loader_share: float = 0.2  # of the time of a step
    exposed_share: float = 0.3  # of the time of a step
    gpu_idle_p95: float = 0.7  # use below which an accelerator is hardly used at its best
    gpu_idle_p5: float = 0.1
    gpu_samples: int = 500
    straggler_ratio: float = 1.4  # of a rank's median step to the others'
    memory_high: float = 0.95
    device_low: float = 0.5
    leak_growth: float = 0.05  # of memory, from the first to the last tenth, growing throughout
    stall_s: float = 1800.0


@dataclass(frozen=True)
class Finding:
    """One observation of a rule: what it saw, why it matters, and what may be done."""

    rule: str
    severity: Severity
    text: str
    evidence: Mapping[str, float]
    actions: tuple[ActionName, ...] = ("tell",)
