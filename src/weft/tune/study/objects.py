"""Parts of a study that Python gives as objects: a searcher, a scheduler, Optuna's samplers and pruners.

Settings, which files hold, keep only what kind of object there was; whoever goes on with the study gives it again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from weft.tune.samplers.base import Searcher
from weft.tune.schedulers.actions import TrialScheduler
from weft.tune.schedulers.registry import OBJECT
from weft.tune.schedulers.rules import StoppingRule
from weft.tune.study.config import StudyError

_EXAMPLES = {"search": "tpe", "schedule": "asha"}


@dataclass(frozen=True)
class StudyObjects:
    """The parts of a study that are objects; None: its settings name the part."""

    searcher: Searcher | None = None
    scheduler: TrialScheduler | None = None
    rule: StoppingRule | None = None

    def parts(self) -> dict[str, Any]:
        """Return them as the core of a study takes them."""
        return {"searcher": self.searcher, "scheduler": self.scheduler, "rule": self.rule}


NO_OBJECTS = StudyObjects()


def objects_of(search: Any, schedule: Any) -> tuple[dict[str, Any], StudyObjects]:
    """Return settings for a search and a schedule that may be objects, and those objects."""
    sampler = _optunas(search, "samplers", "BaseSampler")
    pruner = _optunas(schedule, "pruners", "BasePruner")
    searcher = scheduler = rule = None
    settings: dict[str, Any] = {"search": search, "schedule": schedule}
    if sampler or pruner:
        from weft.tune.samplers.objects import OptunaObjects

        made = OptunaObjects(search if sampler else None, schedule if pruner else None)
        searcher, rule = (made if sampler else None), (made if pruner else None)
    if sampler or not isinstance(search, (str, dict)):
        searcher = searcher or _with(search, "suggest", "search")
        settings["search"] = _named(search)
    if pruner:
        settings |= {"schedule": "none", "stop_if": [_named(schedule)]}
    elif not isinstance(schedule, (str, dict)):
        scheduler = _with(schedule, "decide", "schedule")
        settings["schedule"] = _named(schedule)
    return settings, StudyObjects(searcher, scheduler, rule)


def _optunas(given: Any, module: str, name: str) -> bool:
    """Return whether something is an object of one of Optuna's classes; who has one has imported Optuna."""
    kind = getattr(sys.modules.get(f"optuna.{module}"), name, None)
    return kind is not None and isinstance(given, kind)


def _named(given: Any) -> dict[str, Any]:
    return {"name": OBJECT, "kind": type(given).__name__}


def _with(given: Any, method: str, what: str) -> Any:
    if not callable(getattr(given, method, None)) or isinstance(given, type):
        raise StudyError(
            f"{what} must be a name, a mapping with one, or an object with a method {method}, got {given!r}; "
            f"write {what}={_EXAMPLES[what]!r}"
        )
    return given
