"""Samplers and pruners of Optuna's as objects: they see our study as one of Optuna's, and do here what they do there.

An objective draws each parameter when it asks for it, as Optuna's trials do, so a sampler with a seed suggests the same
points. What these objects note about trials is told to the study, which keeps it.
"""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import optuna
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from weft.tune.samplers.base import Suggestion
from weft.tune.samplers.history import (
    CONSTRAINT,
    HistoryStorage,
    directions_of,
    frozen,
)
from weft.tune.space.domains import Domain
from weft.tune.space.optuna_domains import distribution_of, from_optuna
from weft.tune.space.space import Params
from weft.tune.study.state import SearchState, TrialRecord

OVER = {"completed": OptunaState.COMPLETE, "failed": OptunaState.FAIL, "stopped": OptunaState.PRUNED}


class RecordStorage(HistoryStorage):
    """Our trials as Optuna would have kept them: every report and final value, and what its objects noted."""

    def __init__(self, state: SearchState) -> None:
        super().__init__(directions_of(state))
        self.noted: dict[int, dict[str, Any]] = {}  # what the study has not been told yet, by trial

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        changed = copy.copy(self._trials[trial_id])  # whoever looked before sees what there was
        changed.system_attrs = {**changed.system_attrs, key: value}
        self._trials[trial_id] = changed
        self.noted.setdefault(trial_id, {})[key] = value

    def seen(self, state: SearchState, trial: TrialRecord, rung: int | None) -> FrozenTrial:
        made = frozen(state, trial, self.distributions, *_outcome(trial))
        made.system_attrs.update(self.noted.get(trial.number, {}))
        return made


class RecordStudy(optuna.study.Study):
    """A study of Optuna's on our trials; an object that has nothing left to suggest stops it."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


class OptunaObjects:
    """The search by a sampler's object, the rule of a pruner's object, or both on one view of the study."""

    def __init__(self, sampler: BaseSampler | None = None, pruner: BasePruner | None = None) -> None:
        self.given_sampler, self.given_pruner = sampler, pruner
        self._state: SearchState | None = None
        self._study: RecordStudy
        self._storage: RecordStorage
        self._trials: dict[int, optuna.Trial] = {}  # those that may still draw
        self._judged: dict[int, int] = {}  # reports that the pruner has seen, by trial

    def _look(self, state: SearchState) -> None:
        """Bring the view to a state."""
        if self._state is not state:
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            self._state, self._storage = state, RecordStorage(state)
            sampler = self.given_sampler or optuna.samplers.RandomSampler(seed=state.config.seed)
            self._study = RecordStudy("weft", self._storage, sampler, self.given_pruner or NopPruner())
        self._storage.show(state, None)

    @property
    def finite(self) -> bool:
        """Whether the sampler stops the study when it has suggested all that there is."""
        return isinstance(
            self.given_sampler, (optuna.samplers.GridSampler, optuna.samplers.BruteForceSampler)
        )

    # -- as a search -----------------------------------------------------------------------------------

    def suggest(self, state: SearchState, number: int) -> Suggestion | None:
        """Return a new trial's point; where an objective asks for parameters one by one, they come by `draw`."""
        self._look(state)
        if self._study.stopped:
            return None
        params: Params = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._trials[number] = self._study.ask()
            if not state.space.open:
                for name, domain in state.space.domains.items():
                    if state.space.is_active(name, params):
                        params[name] = from_optuna(
                            domain, trial._suggest(name, self._storage.distributions[name])
                        )
        return Suggestion(params, self._storage.noted.pop(number, {}))

    def draw(self, state: SearchState, number: int, name: str, domain: Domain) -> Any:
        """Return the value of a parameter that a running function asks for."""
        if number not in self._trials:  # it began in another process, or somebody gave its point
            self._look(state)
            self._trials[number] = optuna.Trial(self._study, number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return from_optuna(domain, self._trials[number]._suggest(name, distribution_of(domain)))

    def ended(self, state: SearchState, trial: TrialRecord) -> None:
        """Hear of a trial that has ended."""
        self._look(state)
        self._trials.pop(trial.number, None)
        found = self._storage.get_trial(trial.number)
        self._study.sampler.after_trial(self._study, found, found.state, found.values)

    # -- as a stopping rule ----------------------------------------------------------------------------

    def reason(self, state: SearchState, trial: TrialRecord) -> str | None:
        """Return why a running trial should end now: the pruner says so."""
        if self.given_pruner is None or not trial.steps or len(state.goals) > 1:
            return None
        if self._judged.get(trial.number) == len(trial.steps):
            return None
        self._judged[trial.number] = len(trial.steps)
        self._look(state)
        if not self.given_pruner.prune(self._study, self._storage.get_trial(trial.number)):
            return None
        return f"{type(self.given_pruner).__name__} ended it at {trial.step}"

    # -- what the study keeps --------------------------------------------------------------------------

    def take_noted(self) -> dict[int, tuple[dict[str, Any], dict[str, float]]]:
        """Return what was noted about trials since it was last taken: attributes, and constraints."""
        found: dict[int, tuple[dict[str, Any], dict[str, float]]] = {}
        if self._state is None:
            return found
        for number in [number for number in self._storage.noted if number in self._state.trials]:
            attrs = self._storage.noted.pop(number)
            values = attrs.pop(CONSTRAINT, None) or ()
            found[number] = attrs, {str(place): float(value) for place, value in enumerate(values)}
        return found


def _outcome(trial: TrialRecord) -> tuple[OptunaState, list[float] | None, dict[int, float]]:
    """Return the state, values and intermediate values of a trial as Optuna keeps them."""
    between = {step: value for step, value in trial.intermediate_values.items() if math.isfinite(value)}
    if trial.state == "completed" and trial.values is not None:
        return OptunaState.COMPLETE, list(trial.values), between
    paused = OptunaState.PRUNED if trial.state == "paused" and between else OptunaState.RUNNING
    kind = OVER.get(trial.state, paused)
    last = (
        [between[max(between)]] if kind is OptunaState.PRUNED and between and len(trial.small) == 1 else None
    )
    return kind, last, between
