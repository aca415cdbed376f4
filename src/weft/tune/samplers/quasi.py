"""Quasi-random search: points that fill the space more evenly than random ones."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from weft.tune.samplers.base import Suggestion
from weft.tune.samplers.simple import random_point
from weft.tune.space.domains import Choices, Domain, FloatRange, IntRange, LogRange, OrderedChoices
from weft.tune.space.space import Params, SearchSpace
from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState


class QuasiRandomSearcher:
    """Points that fill the space evenly: a scrambled Sobol sequence; choices are drawn at random."""

    def suggest(self, state: SearchState, number: int) -> Suggestion:
        draw = np.random.default_rng([state.config.seed, number])
        found = sobol_point(state.space, state.config.seed, state.suggested, draw)
        return Suggestion(found if state.space.allows(found) else random_point(state.space, draw))


def sobol_point(
    space: SearchSpace, seed: int, index: int, draw: np.random.Generator, *, width: float = 1.0
) -> Params:
    """Return the point of an index in the sequence of a seed; it may break constraints.

    With a `width` below 1 ranges are narrowed to so much around their middles, by the logarithm where they have one.
    """
    try:
        from scipy.stats import qmc
    except ModuleNotFoundError:
        raise StudyError("search by qmc must have SciPy, got none; install weft[tune]") from None
    names = [
        n for n, d in space.domains.items() if not isinstance(d, Choices) or isinstance(d, OrderedChoices)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a number of points that is no power of two
        engine = qmc.Sobol(max(1, len(names)), scramble=True, seed=seed % 2**32)
        if index:
            engine.fast_forward(index)
        place = dict(zip(names, engine.random(1)[0].tolist(), strict=False))
    found: Params = {}
    for name, domain in space.domains.items():
        if space.is_active(name, found):
            share = 0.5 + (place.get(name, 0.5) - 0.5) * width
            found[name] = _value(domain, share, draw)
    return found


def _value(domain: Domain, share: float, draw: np.random.Generator) -> Any:
    """Return the value at a share of a domain; choices without an order are drawn."""
    match domain:
        case FloatRange(low=low, high=high, step=None):
            return min(high, low + share * (high - low))
        case LogRange(low=low, high=high):
            return min(high, max(low, low * (high / low) ** share))
        case IntRange(low=low, high=high, log=True):
            return min(high, max(low, round(low * (high / low) ** share)))
        case IntRange() | FloatRange() | OrderedChoices():
            values = domain.grid(2)
            return values[min(len(values) - 1, int(share * len(values)))]
    values = domain.grid(2)
    return values[int(draw.integers(len(values)))]
