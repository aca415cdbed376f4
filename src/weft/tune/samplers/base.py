"""The interface of searchers: one class with one method, whose answer follows from the state and the seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from weft.errors import WeftError
from weft.text import shorten
from weft.tune.schedulers.registry import make_part
from weft.tune.space.space import Params
from weft.tune.study.config import StudyConfig, StudyError
from weft.tune.study.state import SearchState

SEARCHERS: Mapping[str, str] = {
    "tpe": "weft.tune.samplers.optuna:TpeSearcher",
    "gp": "weft.tune.samplers.optuna:GaussianProcessSearcher",
    "cmaes": "weft.tune.samplers.optuna:CmaEsSearcher",
    "nsga2": "weft.tune.samplers.optuna:Nsga2Searcher",
    "qmc": "weft.tune.samplers.quasi:QuasiRandomSearcher",
    "random": "weft.tune.samplers.simple:RandomSearcher",
    "grid": "weft.tune.samplers.simple:GridSearcher",
    "list": "weft.tune.samplers.simple:ListSearcher",
}


class SearcherFailed(StudyError):  # noqa: N818 (a plug-in's failure, which ends its study)
    """A searcher that somebody plugged in and that cannot suggest a point."""


@dataclass(frozen=True)
class Suggestion:
    """A point to try; `attrs` is what the searcher must find again with the trial."""

    params: Params
    attrs: dict[str, Any] = field(default_factory=dict)


class Searcher(Protocol):
    """Suggests points. A plug-in is one class of this shape, named by an entry point of weft.tune.searchers.

    It is made with the options of the study's file. `suggest` gets the whole state and the number of the new trial,
    and draws its random numbers from the study's seed and that number, so that a study that is started again goes on
    as it would have. None: there is nothing left to try.
    """

    def suggest(self, state: SearchState, number: int) -> Suggestion | None: ...


def make_searcher(config: StudyConfig) -> Searcher:
    """Return the searcher that a study names; points that were given come first."""
    return make_part(config.search, "search", SEARCHERS, "weft.tune.searchers")  # type: ignore[no-any-return]


def named_searcher(config: StudyConfig, name: Any) -> Searcher:
    """Return a searcher by its name, in place of the one that a study names."""
    return make_searcher(msgspec.structs.replace(config, search=name))


def next_suggestion(searcher: Searcher, state: SearchState) -> tuple[Suggestion, bool] | None:
    """Return what the next trial tries, and whether somebody gave that point; None if nothing is left."""
    number = state.next_number
    points = state.config.points
    if state.given < len(points):
        point = points[state.given]
        if state.space.open:
            return Suggestion({}, {"fixed": dict(point)}), True
        return Suggestion(state.space.check_point(point)), True
    if not state.space.domains and not hasattr(searcher, "draw"):
        return Suggestion({}), False  # the first function names what there is
    try:
        found = searcher.suggest(state, number)
    except WeftError:
        raise
    except Exception as error:
        name = type(searcher).__name__
        text = shorten(f"{type(error).__name__}: {error}")
        raise SearcherFailed(f"searcher {name} must suggest a point, got {text}; mend it") from error
    return None if found is None else (found, False)
