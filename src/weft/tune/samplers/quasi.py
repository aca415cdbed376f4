"""Quasi-random search: points that fill the space more evenly than random ones."""

from __future__ import annotations

import warnings

import numpy as np

from weft.tune.samplers.base import Suggestion
from weft.tune.samplers.simple import random_point
from weft.tune.space.domains import Choices, FloatRange, IntRange, LogRange, OrderedChoices
from weft.tune.space.space import Params
from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState


class QuasiRandomSearcher:
    """Points that fill the space evenly: a scrambled Sobol sequence; choices are drawn at random."""

    def suggest(self, state: SearchState, number: int) -> Suggestion:
        try:
            from scipy.stats import qmc
        except ModuleNotFoundError:
            raise StudyError("search by qmc must have SciPy, got none; install weft[tune]") from None
        names = [
            n
            for n, d in state.space.domains.items()
            if not isinstance(d, Choices) or isinstance(d, OrderedChoices)
        ]
        index = state.suggested
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a number of points that is no power of two
            engine = qmc.Sobol(max(1, len(names)), scramble=True, seed=state.config.seed % 2**32)
            if index:
                engine.fast_forward(index)
            place = dict(zip(names, engine.random(1)[0].tolist(), strict=False))
        draw = np.random.default_rng([state.config.seed, number])
        found: Params = {}
        for name, domain in state.space.domains.items():
            if not state.space.is_active(name, found):
                continue
            share = place.get(name, 0.0)
            match domain:
                case FloatRange(low=low, high=high, step=None):
                    found[name] = min(high, low + share * (high - low))
                case LogRange(low=low, high=high):
                    found[name] = min(high, max(low, low * (high / low) ** share))
                case IntRange(low=low, high=high, log=True):
                    found[name] = min(high, max(low, round(low * (high / low) ** share)))
                case IntRange() | FloatRange() | OrderedChoices():
                    values = domain.grid(2)
                    found[name] = values[min(len(values) - 1, int(share * len(values)))]
                case _:
                    values = domain.grid(2)
                    found[name] = values[int(draw.integers(len(values)))]
        return Suggestion(found if state.space.allows(found) else random_point(state.space, draw))
