"""The history of a study as Optuna's samplers see it: a storage that shows our trials, and keeps nothing of its own.

A sampler ranks trials by their final values. Trials that were paused at a rung have none, so the view is BOHB's: the
values at the highest rung that enough trials have reached. What has not come so far counts as running or pruned, and
what diverged as worst.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any, NoReturn

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from weft.tune.space.optuna_domains import distribution_of, to_optuna
from weft.tune.space.space import SearchSpace
from weft.tune.study.state import SearchState, TrialRecord

STUDY = 0
CONSTRAINT = "constraints"  # begins what Optuna's samplers look for


def observed_rung(state: SearchState, levels: Sequence[int], enough: int) -> int | None:
    """Return the highest rung that enough trials have reached; None: only final values count."""
    for level in sorted(levels, reverse=True):
        if sum(1 for trial in state if trial.score_at(level) is not None) >= enough:
            return level
    return min(levels) if levels else None


class HistoryStorage(BaseStorage):
    """Our trials, for one study of Optuna's; `show` brings the view to a state."""

    def __init__(self, directions: Sequence[StudyDirection]) -> None:
        self._directions = list(directions)
        self._space: SearchSpace | None = None
        self.distributions: Mapping[str, BaseDistribution] = {}
        self._trials: list[FrozenTrial] = []
        self._versions: list[tuple[int, int | None]] = []
        self._attrs: dict[str, Any] = {}

    def show(self, state: SearchState, rung: int | None) -> None:
        """Bring the view to a state; only what has changed is made anew."""
        if state.space is not self._space:
            self._space = state.space
            self._trials.clear()
            self._versions.clear()
            self.distributions = {name: distribution_of(d) for name, d in state.space.domains.items()}
        del self._trials[len(state.trials) :], self._versions[len(state.trials) :]
        for trial in state:
            key = (trial.version, rung)
            if trial.number == len(self._trials):
                self._trials.append(self.seen(state, trial, rung))
                self._versions.append(key)
            elif self._versions[trial.number] != key:
                self._trials[trial.number] = self.seen(state, trial, rung)
                self._versions[trial.number] = key

    def seen(self, state: SearchState, trial: TrialRecord, rung: int | None) -> FrozenTrial:
        """Return a trial of ours as samplers are to see it."""
        return frozen(state, trial, self.distributions, *_outcome(trial, rung))

    def forget_last(self) -> None:
        """Remove a trial that was asked for and not used."""
        self._trials.pop()
        self._versions.pop()

    # -- what samplers call ------------------------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        number = len(self._trials)
        self._versions.append((-1, None))  # not a trial of ours yet
        self._trials.append(
            FrozenTrial(
                number=number,
                state=OptunaState.RUNNING,
                value=None,
                datetime_start=None,
                datetime_complete=None,
                params={},
                distributions={},
                user_attrs={},
                system_attrs={},
                intermediate_values={},
                trial_id=number,
            )
        )
        return number

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        trial = self._trials[trial_id]
        trial.params = {**trial.params, param_name: distribution.to_external_repr(param_value_internal)}
        trial.distributions = {**trial.distributions, param_name: distribution}

    def set_trial_state_values(
        self, trial_id: int, state: OptunaState, values: Sequence[float] | None = None
    ) -> bool:
        return True

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        self._trials[trial_id].intermediate_values[step] = intermediate_value

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._trials[trial_id].user_attrs[key] = value

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._trials[trial_id].system_attrs[key] = value

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._trials[trial_id]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[OptunaState] | None = None
    ) -> list[FrozenTrial]:
        return list(self._trials) if states is None else [t for t in self._trials if t.state in states]

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._directions

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._attrs

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._attrs[key] = value

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return {}

    def get_study_id_from_name(self, study_name: str) -> int:
        return STUDY

    def get_study_name_from_id(self, study_id: int) -> str:
        return "weft"

    # -- what they do not ------------------------------------------------------------------------------

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        return STUDY

    def delete_study(self, study_id: int) -> NoReturn:
        raise NotImplementedError

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> NoReturn:
        raise NotImplementedError

    def get_all_studies(self) -> list[FrozenStudy]:
        raise NotImplementedError


def frozen(
    state: SearchState,
    trial: TrialRecord,
    known: Mapping[str, BaseDistribution],
    kind: OptunaState,
    values: list[float] | None,
    between: dict[int, float],
) -> FrozenTrial:
    """Return a trial of ours as Optuna's, with an outcome."""
    distributions = {name: known[name] for name in trial.params}
    params = {name: to_optuna(state.space.domains[name], value) for name, value in trial.params.items()}
    told = {f"{CONSTRAINT}:{name}": value for name, value in trial.constraints.items()}
    return FrozenTrial(
        number=trial.number, state=kind, value=None, values=values, datetime_start=None, datetime_complete=None,
        params=params, distributions=distributions, user_attrs=dict(trial.user_attrs),
        system_attrs={**trial.attrs, **told}, intermediate_values=between, trial_id=trial.number,
    )  # fmt: skip


def _outcome(
    trial: TrialRecord, rung: int | None
) -> tuple[OptunaState, list[float] | None, dict[int, float]]:
    """Return the state, values and intermediate values that a sampler sees."""
    if trial.state == "failed":
        return OptunaState.FAIL, None, {}
    if rung is not None:
        score = trial.score_at(rung)
        if score is not None:
            if not math.isfinite(score):
                return OptunaState.PRUNED, None, {}
            return OptunaState.COMPLETE, [score if trial.small[0] else -score], {}
    elif trial.state == "completed" and trial.values is not None:
        if not all(map(math.isfinite, trial.values)):
            return OptunaState.PRUNED, None, {}
        return OptunaState.COMPLETE, list(trial.values), {}
    if trial.state in ("running", "waiting") or (trial.state == "paused" and not trial.steps):
        return OptunaState.RUNNING, None, {}
    last = {trial.step: trial.curve[-1]} if trial.curve and math.isfinite(trial.curve[-1]) else {}
    return OptunaState.PRUNED, None, last


def directions_of(state: SearchState) -> list[StudyDirection]:
    """Return the directions of all metrics in Optuna's words."""
    small = state.config.goals.values()
    return [StudyDirection.MINIMIZE if one else StudyDirection.MAXIMIZE for one in small]


def open_view(state: SearchState) -> tuple[optuna.study.Study, HistoryStorage]:
    """Return a study of Optuna's on a storage of ours."""
    storage = HistoryStorage(directions_of(state))
    return optuna.study.Study("weft", storage), storage
