"""Studies as Optuna's: in its storages, or in memory for its plots and importances, and from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from weft.tune.space.domains import Choices, Domain, SpaceError, scalar_params
from weft.tune.space.space import OPEN, SearchSpace
from weft.tune.study.config import StudyError, convert_config
from weft.tune.study.core import StudyCore
from weft.tune.study.state import SearchState, TrialRecord
from weft.tune.study.warm_start import add_optunas

try:
    import optuna
    from optuna.trial import FrozenTrial, TrialState

    from weft.tune.space.optuna_domains import distribution_of, domain_of, to_optuna
except ModuleNotFoundError as missing:
    raise StudyError(
        f"studies of Optuna's must have {missing.name}, got no such package; install weft[tune]"
    ) from None

ENDED = {"completed": TrialState.COMPLETE, "failed": TrialState.FAIL}  # others count as pruned


def optuna_study(state: SearchState, url: str | None = None, name: str | None = None) -> optuna.Study:
    """Return a study as one of Optuna's, in memory or added to a storage: `sqlite:///studies.db`."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kind = optuna.study.StudyDirection
    directions = [kind.MINIMIZE if small else kind.MAXIMIZE for small in state.config.goals.values()]
    try:
        study = optuna.create_study(storage=url, study_name=name or state.config.name, directions=directions)
    except optuna.exceptions.DuplicatedStudyError:
        raise StudyError(
            f"the storage must not have a study {name or state.config.name} yet, got one; name another"
        ) from None
    if state.metric_names:
        study.set_metric_names(list(state.metric_names))
    for key, value in state.user_attrs.items():
        study.set_user_attr(key, value)
    study.add_trials([_frozen(state, trial, stored=url is not None) for trial in state])
    return study


def _frozen(state: SearchState, trial: TrialRecord, *, stored: bool) -> FrozenTrial:
    """Return a trial as one of Optuna's that is over; its storages cannot hold lists, which are text there."""
    domains = {name: state.space.domains[name] for name in trial.params}
    params = trial.params
    if stored:
        domains = {name: _without_lists(domain) for name, domain in domains.items()}
        params = scalar_params(params)
    made = optuna.trial.create_trial(
        state=ENDED.get(trial.state, TrialState.PRUNED),
        values=list(trial.values) if trial.state == "completed" and trial.values is not None else None,
        params={name: to_optuna(domains[name], value) for name, value in params.items()},
        distributions={name: distribution_of(domain) for name, domain in domains.items()},
        intermediate_values=trial.intermediate_values,
        user_attrs={**trial.user_attrs, "weft_state": str(trial.state), "weft_message": trial.message},
        constraints=trial.constraints or None,
    )
    made.datetime_start = trial.datetime_start or made.datetime_start
    made.datetime_complete = trial.datetime_complete or made.datetime_complete
    return made


def _without_lists(domain: Domain) -> Domain:
    if isinstance(domain, Choices) and any(isinstance(one, tuple) for one in domain.values):
        return replace(domain, values=tuple(scalar_params({"": one})[""] for one in domain.values))
    return domain


def from_optuna(url: str, name: str | None = None) -> StudyCore:
    """Return a study made of one in a storage of Optuna's; its ended trials are taken over."""
    try:
        study = optuna.load_study(study_name=name, storage=url)
    except (KeyError, ValueError) as error:
        raise StudyError(f"the storage must have a study {name or ''}, got {error}; name one") from None
    many = len(study.directions) > 1
    names = [f"value{i}" if many else "value" for i in range(len(study.directions))]
    goals: dict[str, list[str]] = {"minimize": [], "maximize": []}
    for goal, direction in zip(names, study.directions, strict=True):
        goals[direction.name.lower()].append(goal)
    kept = [
        t for t in study.get_trials(deepcopy=False) if t.state in (TrialState.COMPLETE, TrialState.PRUNED)
    ]
    space = _space_of(kept)
    settings = {"space": OPEN if space is None else space.data(), "name": study.study_name, **goals}
    core = StudyCore.begin(convert_config({**settings, "metrics": names if many else []}))
    for one in kept:
        add_optunas(core, one, study.study_name)
    return core


def _space_of(trials: Sequence[Any]) -> SearchSpace | None:
    """Return the space of Optuna's trials; None: they differ, as where some parameters are asked for at times."""
    domains = {name: domain_of(found) for one in trials for name, found in one.distributions.items()}
    if not domains:
        return None
    try:
        space = SearchSpace(domains)
    except SpaceError:  # its names are such as functions alone may use
        return None
    same = all(
        one.params.keys() == domains.keys()
        and all(domains[name].contains(value) for name, value in one.params.items())
        for one in trials
    )
    return space if same else None
