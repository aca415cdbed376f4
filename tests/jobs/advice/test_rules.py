"""Each rule on curves on which it should fire, and on curves on which it should not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.jobs.advice.model import Curve, Evidence, Thresholds
from weft.jobs.advice.rules import RULES, advise

RNG = np.random.default_rng(0)
STEPS = np.arange(400)
GOOD = 2.0 * np.exp(-STEPS / 100) + 0.2 + 0.05 * RNG.normal(size=400)
GOOD_VALID = 2.1 * np.exp(-np.arange(40) / 10) + 0.25
NORMS = np.exp(0.5 * RNG.normal(size=400))


def curves(**named: Any) -> Evidence:
    """Curves of equal length in steps, as a validation loss has fewer points than a training loss."""
    longest = max((len(values) for values in named.values()), default=0)
    return Evidence(
        curves={
            name: Curve.of(values, np.linspace(0, longest - 1, len(values)).astype(int))
            for name, values in named.items()
        }
    )


def spikes(values: np.ndarray[Any, Any], height: float, *places: int) -> np.ndarray[Any, Any]:
    result = values.copy()
    result[list(places)] = height
    return result


FIRES = [
    ("not-a-number", curves(loss=[1.0, 0.5, np.nan, np.nan])),
    ("not-a-number", curves(grad_norm=[1.0, np.inf])),
    ("divergence", curves(loss=np.concatenate([GOOD, np.full(100, 4.0)]))),
    ("plateau", curves(val_loss=np.concatenate([GOOD_VALID, np.full(12, GOOD_VALID.min() * 0.999)]))),
    ("overfitting", curves(loss=np.linspace(1, 0.1, 100), val_loss=[0.9, 0.5, 0.4, 0.45, 0.5, 0.6])),
    ("exploding-gradients", curves(grad_norm=spikes(NORMS, 1e4, 310, 350, 390))),
    ("vanishing-gradients", curves(grad_norm=np.concatenate([NORMS, np.full(100, 1e-9)]))),
    ("slow-loader", Evidence(loader_share=np.full(50, 0.4))),
    ("busy-processors", Evidence(cpu_use=np.full(600, 0.99), gpu_use=np.full(600, 0.02))),
    ("idle-accelerator", Evidence(gpu_use=RNG.uniform(0.0, 0.5, 600))),
    ("straggler", Evidence(step_s={0: np.full(20, 0.1), 1: np.full(20, 0.1), 2: np.full(20, 0.2)})),
    ("exposed-communication", Evidence(exposed_share=np.full(50, 0.5))),
    ("tight-memory", Evidence(device_peak=0.97)),
    ("spare-memory", Evidence(device_peak=0.2)),
    ("leaking-memory", Evidence(memory_use=np.linspace(0.3, 0.6, 300))),
    ("stall", Evidence(idle_s=3600.0)),
]
QUIET = [
    curves(),
    curves(loss=[]),
    curves(loss=[1.0]),
    curves(loss=GOOD, val_loss=GOOD_VALID[:25], grad_norm=NORMS),
    curves(loss=spikes(GOOD, 50.0, 100, 390)),  # a spike is no divergence
    curves(loss=GOOD - 1.0),  # a loss below zero has no ratio
    curves(grad_norm=spikes(NORMS, 1e4, 10, 20, 30)),  # long ago
    curves(loss=np.linspace(1, 0.1, 100), val_loss=[0.9, 0.5, 0.4, 0.45, 0.38, 0.37]),
    Evidence(loader_share=np.full(50, 0.1), exposed_share=np.full(50, 0.1)),
    Evidence(gpu_use=RNG.uniform(0.8, 1.0, 600), cpu_use=RNG.uniform(0.2, 0.5, 600)),
    Evidence(gpu_use=np.zeros(10), cpu_use=np.ones(10)),  # too few samples
    Evidence(step_s={0: np.full(20, 0.1), 1: np.full(20, 0.12)}),
    Evidence(step_s={0: np.full(20, 0.1)}),
    Evidence(device_peak=0.8, memory_use=0.5 + 0.1 * np.sin(np.arange(300)), idle_s=60.0),
]


@pytest.mark.parametrize(("rule", "evidence"), FIRES, ids=[name for name, _ in FIRES])
def test_a_rule_fires(rule: str, evidence: Evidence) -> None:
    found = {finding.rule: finding for finding in advise(evidence)}
    assert rule in found
    assert found.keys() <= {rule, "idle-accelerator"}  # busy processors leave the accelerator idle
    assert "tell" in found[rule].actions
    assert all(np.isfinite(value) for value in found[rule].evidence.values())


@pytest.mark.parametrize("evidence", QUIET)
def test_no_rule_fires_on_what_is_well(evidence: Evidence) -> None:
    assert advise(evidence) == ()


def test_every_rule_has_a_case() -> None:
    assert {rule.__name__.replace("_", "-") for rule in RULES} == {name for name, _ in FIRES}


def test_the_gravest_finding_is_first() -> None:
    evidence = Evidence(curves={"loss": Curve.of([np.nan])}, device_peak=0.2, loader_share=np.full(50, 0.4))
    assert [finding.severity for finding in advise(evidence)] == ["problem", "warning", "info"]


def test_thresholds_may_be_given() -> None:
    evidence = Evidence(loader_share=np.full(50, 0.4))
    assert advise(evidence, Thresholds(loader_share=0.5)) == ()
