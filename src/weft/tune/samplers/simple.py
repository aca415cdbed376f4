"""Searchers that need no other library: random points, a grid, and a list of experiments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.text import shorten
from weft.tune.samplers.base import Suggestion
from weft.tune.schedulers.population import draw_value
from weft.tune.space.domains import SpaceError
from weft.tune.space.space import Params, SearchSpace
from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState

MOST_DRAWS = 10_000  # of a point that meets the constraints
MOST_GRID_POINTS = 1_000_000


def random_point(space: SearchSpace, draw: np.random.Generator) -> Params:
    """Return a point that meets all conditions and constraints."""
    for _ in range(MOST_DRAWS):
        found: Params = {}
        for name, domain in space.domains.items():
            if space.is_active(name, found):
                found[name] = draw_value(domain, draw)
        if space.allows(found):
            return found
    raise SpaceError(
        f"constraints must leave points to try, got none in {MOST_DRAWS} draws with "
        f"{shorten(', '.join(space.constraints))}; loosen one"
    )


class RandomSearcher:
    """Points drawn at random, each from the seed and its number."""

    def suggest(self, state: SearchState, number: int) -> Suggestion:
        draw = np.random.default_rng([state.config.seed, number])
        return Suggestion(random_point(state.space, draw))


class GridSearcher:
    """Every point of a grid, once; `points` of each range that has no steps."""

    def __init__(self, points: int = 5, shuffle: bool = False) -> None:
        if not (isinstance(points, int) and 1 <= points <= 10_000):
            raise StudyError(f"points must be a whole number from 1 to 10000, got {points!r}; write 5")
        self._points, self._shuffle = points, shuffle
        self._grid: list[Params] | None = None

    def suggest(self, state: SearchState, number: int) -> Suggestion | None:
        if self._grid is None:
            self._grid = list(itertools.islice(grid_points(state.space, self._points), MOST_GRID_POINTS))
            if not self._grid:
                raise SpaceError("constraints must leave points of the grid, got none; loosen one")
            if self._shuffle:
                np.random.default_rng(state.config.seed).shuffle(self._grid)
        index = state.suggested
        return Suggestion(dict(self._grid[index])) if index < len(self._grid) else None


def grid_points(space: SearchSpace, points: int) -> Iterator[Params]:
    """Yield all points of a grid that meet conditions and constraints, the last parameter changing first."""
    names = list(space.domains)

    def below(index: int, found: dict[str, Any]) -> Iterator[Params]:
        if index == len(names):
            if space.allows(found):
                yield dict(found)
            return
        name = names[index]
        if not space.is_active(name, found):
            yield from below(index + 1, found)
            return
        for value in space.domains[name].grid(points):
            yield from below(index + 1, {**found, name: value})

    yield from below(0, {})


class ListSearcher:
    """A list of experiments: the points that were given, and no other."""

    def suggest(self, state: SearchState, number: int) -> Suggestion | None:
        return None
