"""Optuna's samplers by ask and tell: TPE, Gaussian process, CMA-ES, NSGA-II.

Each suggestion is made by a sampler with a seed of its own, drawn from the study's seed and the trial's number, on a
view of our trials. So it does not matter which process asks, nor how often a study was interrupted.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from weft.tune.samplers.base import Suggestion
from weft.tune.samplers.quasi import sobol_point
from weft.tune.samplers.simple import random_point
from weft.tune.space.space import Params
from weft.tune.study.config import StudyError, named_options
from weft.tune.study.state import SearchState

try:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
except ModuleNotFoundError as error:
    raise StudyError(
        f"search by tpe, gp, cmaes or nsga2 must have Optuna, got no package {error.name}; "
        "install weft[tune], or write search: random"
    ) from None

from weft.tune.samplers.history import observed_rung, open_view
from weft.tune.space.optuna_domains import from_optuna

MIDDLE = 0.5  # of each range, by its logarithm where it has one: where the first points lie
MOST_TRIES = 20  # of a point that meets the constraints; then one is drawn at random


class OptunaSearcher:
    """The root of searchers by Optuna; a subclass makes the sampler of one suggestion."""

    several = True  # it can work on several metrics

    def __init__(self) -> None:
        self._study: Any = None
        self._storage: Any = None

    def sampler(self, state: SearchState, seed: int) -> BaseSampler:
        """Return the sampler of one suggestion."""
        raise NotImplementedError

    def suggest(self, state: SearchState, number: int) -> Suggestion:
        """Return the point that the sampler asks for."""
        if self._study is None:
            if len(state.goals) > 1 and not self.several:
                raise StudyError(
                    f"this search must have one metric, got {', '.join(state.goals)}; write search: nsga2 or tpe"
                )
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            self._study, self._storage = open_view(state)
        self._storage.show(state, self.rung(state))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental features, and fall-backs that are meant
            for attempt in range(MOST_TRIES if state.space.constraints else 1):
                seed = int(np.random.SeedSequence([state.config.seed, number, attempt]).generate_state(1)[0])
                self._study.sampler = self.sampler(state, seed)
                params, attrs = self._ask(state)
                if state.space.allows(params):
                    return Suggestion(params, attrs)
        return Suggestion(random_point(state.space, np.random.default_rng([state.config.seed, number])))

    def rung(self, state: SearchState) -> int | None:
        """Return the rung whose values the sampler sees, where trials are paused at rungs; None: final ones."""
        name, options = named_options(state.config.schedule, "schedule")
        resource = state.config.resource
        if resource is None or name not in ("asha", "hyperband"):
            return None
        from weft.tune.schedulers.halving import rungs

        levels = rungs(resource.first, resource.max, float(options.get("eta", 3.0)))
        return observed_rung(state, levels, len(state.space.searched) + 2)

    def _ask(self, state: SearchState) -> tuple[Params, dict[str, Any]]:
        trial = self._study.ask()
        params: Params = {}
        try:
            for name, domain in state.space.domains.items():
                if state.space.is_active(name, params):
                    value = trial._suggest(name, self._storage.distributions[name])
                    params[name] = from_optuna(domain, value)
            attrs = dict(self._storage.get_trial(trial.number).system_attrs)
        finally:
            self._storage.forget_last()
        return params, {name: value for name, value in attrs.items() if "relative_params" not in name}


class _KnownSpaceTpe(optuna.samplers.TPESampler):
    """TPE that is told its space, and need not infer it from all trials."""

    known: dict[str, BaseDistribution]

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, BaseDistribution]:
        return self.known


class TpeSearcher(OptunaSearcher):
    """The tree-structured Parzen estimator, after `startup` quasi-random points.

    The first half of these lie in the middle half of each range, for people put ranges around what they believe in.
    """

    def __init__(self, startup: int = 10, candidates: int = 24) -> None:
        super().__init__()
        self._startup, self._candidates = startup, candidates

    def suggest(self, state: SearchState, number: int) -> Suggestion:
        """Return a quasi-random point at first, and then what the sampler asks for."""
        index = state.suggested
        if index >= self._startup or state.space.open:
            return super().suggest(state, number)
        draw = np.random.default_rng([state.config.seed, number])
        width = MIDDLE if 2 * index < self._startup else 1.0
        found = sobol_point(state.space, state.config.seed, index, draw, width=width)
        return Suggestion(found if state.space.allows(found) else random_point(state.space, draw))

    def sampler(self, state: SearchState, seed: int) -> BaseSampler:
        options: dict[str, Any] = {
            "n_startup_trials": self._startup,
            "n_ei_candidates": self._candidates,
            "seed": seed,
            "multivariate": True,
        }
        if state.space.conditional or state.space.open:
            return optuna.samplers.TPESampler(**options, group=True)
        made = _KnownSpaceTpe(**options)
        made.known = {n: self._storage.distributions[n] for n in sorted(state.space.searched)}
        return made


class GaussianProcessSearcher(OptunaSearcher):
    """A Gaussian process; trials that still run count, so that parallel ones differ."""

    def __init__(self, startup: int = 10, noiseless: bool = False) -> None:
        super().__init__()
        self._startup, self._noiseless = startup, noiseless

    def sampler(self, state: SearchState, seed: int) -> BaseSampler:
        return optuna.samplers.GPSampler(
            seed=seed, n_startup_trials=self._startup, deterministic_objective=self._noiseless
        )


class CmaEsSearcher(OptunaSearcher):
    """CMA-ES, for numbers; choices are drawn at random beside it."""

    several = False

    def __init__(self, startup: int = 1, population: int | None = None) -> None:
        super().__init__()
        self._startup, self._population = startup, population

    def sampler(self, state: SearchState, seed: int) -> BaseSampler:
        return optuna.samplers.CmaEsSampler(
            n_startup_trials=self._startup,
            seed=seed,
            popsize=self._population,
            warn_independent_sampling=False,
        )


class Nsga2Searcher(OptunaSearcher):
    """NSGA-II: an evolution towards the Pareto front of several metrics."""

    def __init__(self, population: int = 20) -> None:
        super().__init__()
        self._population = population

    def sampler(self, state: SearchState, seed: int) -> BaseSampler:
        return optuna.samplers.NSGAIISampler(population_size=self._population, seed=seed)
