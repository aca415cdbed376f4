"""Schedulers and rules by name: our own, and those of entry points in the groups weft.tune.schedulers and .rules."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn

from weft.text import suggestion
from weft.tune.schedulers.actions import TrialScheduler
from weft.tune.schedulers.rules import StoppingRule
from weft.tune.study.config import StudyError, named_options

SCHEDULERS: Mapping[str, str] = {
    "none": "weft.tune.schedulers.plain:RunAll",
    "asha": "weft.tune.schedulers.halving:Asha",
    "hyperband": "weft.tune.schedulers.halving:Hyperband",
    "pbt": "weft.tune.schedulers.population:PopulationTraining",
    "median": "weft.tune.schedulers.rules:MedianStopping",
}
OBJECT = "object"  # the name of a part that Python gave
RULES: Mapping[str, str] = {
    "median": "weft.tune.schedulers.rules:MedianRule",
    "threshold": "weft.tune.schedulers.rules:ThresholdRule",
    "nan": "weft.tune.schedulers.rules:NanRule",
}


class MissingObject:
    """A part that was an object in Python when its study began, which files cannot hold: it must be given again."""

    def __init__(self, what: str, kind: str) -> None:
        self._what, self._kind = what, kind

    def _ask(self, *words: Any) -> NoReturn:
        raise StudyError(
            f"a study whose {self._what} is an object must be given it again to go on, got none; make the study "
            f"with the same {self._kind} and its folder"
        )

    suggest = draw = decide = reason = _ask


def make_scheduler(given: str | dict[str, Any]) -> TrialScheduler:
    """Return the scheduler that a study names."""
    return make_part(given, "schedule", SCHEDULERS, "weft.tune.schedulers")  # type: ignore[no-any-return]


def make_rule(given: str | dict[str, Any]) -> StoppingRule:
    """Return the stopping rule that a study names."""
    return make_part(given, "stop_if", RULES, "weft.tune.rules")  # type: ignore[no-any-return]


def make_part(
    given: str | dict[str, Any], what: str, known: Mapping[str, str], group: str, **fixed: Any
) -> Any:
    """Return an object of a name and its options, of ours or of an entry point."""
    name, options = named_options(given, what)
    if name == OBJECT:
        return MissingObject(what, str(options.get("kind")))
    kind = find_part(name, what, known, group)
    try:
        inspect.signature(kind).bind(**options, **fixed)
    except TypeError as error:
        takes = [p for p in inspect.signature(kind).parameters if p not in fixed]
        raise StudyError(
            f"{what} {name} must have options among {', '.join(takes) or 'none'}, got {error}; remove it"
        ) from None
    try:
        return kind(**options, **fixed)
    except TypeError as error:
        raise StudyError(f"options of {what} {name} must be of their types, got {error}; mend them") from None


def find_part(name: str, what: str, known: Mapping[str, str], group: str) -> Any:
    """Return the class of a name."""
    from importlib.metadata import entry_points

    if name in known:
        module, _, attribute = known[name].partition(":")
        return getattr(import_module(module), attribute)
    plugged = {point.name: point for point in entry_points(group=group)}
    if name not in plugged:
        names = [*known, *plugged]
        raise StudyError(f"{what} must be one of {', '.join(names)}, got {name}; {suggestion(name, names)}")
    return plugged[name].load()
