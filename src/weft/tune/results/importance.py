"""Importances of parameters, with confidence: PED-ANOVA on the trials, and again on resamples of them."""

from __future__ import annotations

import warnings

import msgspec
import numpy as np

from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState

RESAMPLES = 30
LEAST_TRIALS = 8


class ParameterImportance(msgspec.Struct, frozen=True, kw_only=True):
    """The share of one parameter in the difference between trials, and the middle 90 % of its resamples."""

    name: str
    share: float
    low: float
    high: float


def importances(state: SearchState, *, resamples: int = RESAMPLES) -> list[ParameterImportance]:
    """Return the importance of each parameter that all trials have, the largest first."""
    try:
        import optuna
        from optuna.importance import PedAnovaImportanceEvaluator

        from weft.tune.samplers.history import frozen, open_view
    except ModuleNotFoundError as error:
        raise StudyError(
            f"importances must have {error.name}, got no such package; install weft[tune]"
        ) from None

    done = [t for t in state.in_state("completed") if np.isfinite(t.last_score)]
    if len(done) < LEAST_TRIALS:
        raise StudyError(
            f"importances must have at least {LEAST_TRIALS} completed trials, got {len(done)}; run more"
        )
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study, storage = open_view(state)
    storage.show(state, None)
    whole = [frozen(state, trial, None, storage.distributions) for trial in done]
    draw = np.random.default_rng(state.config.seed)
    shares: dict[str, list[float]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for turn in range(resamples + 1):
            chosen = whole if turn == 0 else [whole[i] for i in draw.integers(len(whole), size=len(whole))]
            storage.set_trials(chosen)
            found = PedAnovaImportanceEvaluator().evaluate(study, target=(lambda t: t.values[0]))
            total = sum(found.values()) or 1.0
            for name, value in found.items():
                shares.setdefault(name, []).append(value / total)
    made = [
        ParameterImportance(
            name=name,
            share=round(values[0], 6),
            low=round(float(np.quantile(values[1:] or values, 0.05)), 6),
            high=round(float(np.quantile(values[1:] or values, 0.95)), 6),
        )
        for name, values in shares.items()
    ]
    return sorted(made, key=lambda one: (-one.share, one.name))
