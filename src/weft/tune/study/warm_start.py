"""Trials of an earlier study, of a file, or of Optuna, in a study that begins: known, but counted for no budget."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.errors import UsageError
from weft.text import plural
from weft.tune.results.tables import read_table
from weft.tune.space.domains import Domain
from weft.tune.space.text import read_domain
from weft.tune.study.config import StudyError
from weft.tune.study.core import StudyCore
from weft.tune.study.events import TrialAdded, TrialDrew
from weft.tune.study.state import SearchState, TrialRecord


def take_over(core: StudyCore, earlier: SearchState, at_s: float) -> None:
    """Add the completed trials of an earlier study that are points of this space, with their curves and notes."""
    if earlier.goals != core.state.goals:
        raise StudyError(
            f"a warm start must have the metrics {', '.join(core.state.goals)}, got {', '.join(earlier.goals)}; "
            "start without it"
        )
    fits = 0
    for trial in earlier.in_state("completed"):
        domains = {
            name: earlier.space.domains[name].data() for name in trial.params if name in earlier.space.domains
        }
        try:
            number = add_known(core, trial.params, domains, earlier.config.name, at_s)
        except UsageError:
            continue  # not a point of this space
        _repeat(core, trial, number, at_s)
        fits += 1
    _check_any(core, fits, earlier.count("completed"), f"study {earlier.config.name}")


def take_over_table(core: StudyCore, path: Path, at_s: float) -> None:
    """Add the completed trials in a file that are points of this space: CSV, JSON or Parquet, as exports are."""
    known = read_table(path, tuple(core.state.space.domains), core.state.goals)
    fits = 0
    for one in known:
        try:
            number = add_known(core, one.params, {}, path.stem, at_s)
        except UsageError:
            continue  # not a point of this space
        core.completed(number, one.values, at_s=at_s)
        fits += 1
    _check_any(core, fits, len(known), str(path))


def _check_any(core: StudyCore, fits: int, known: int, where: str) -> None:
    """Refuse a warm start none of whose trials can be used: somebody thinks that it has them."""
    if known and not fits:
        raise StudyError(
            f"a warm start must have points of this space ({', '.join(core.state.space.domains)}), got none among "
            f"{plural(known, 'completed trial')} of {where}; start without it"
        )


def add_known(
    core: StudyCore, params: Mapping[str, Any], domains: Mapping[str, Any], source: str, at_s: float = 0.0
) -> int:
    """Add a trial of elsewhere; return its number. In an open space it brings the domains of its parameters."""
    if not core.state.space.open:
        made = core.add(params, source=source, at_s=at_s)
        assert made is not None
        return made.number
    number = core.state.next_number
    core.say(
        TrialAdded(trial=number, params={}, given=True, source=source, at_s=at_s),
        TrialDrew(trial=number, params=dict(params), domains=dict(domains), at_s=at_s),
    )
    return number


def add_optunas(core: StudyCore, one: Any, source: str) -> None:
    """Add a trial of Optuna's that has ended, with its values, reports, notes and constraints."""
    if not one.state.is_finished():
        raise StudyError(
            f"a trial must have ended to be added, got one that is {one.state.name}; enqueue its point"
        )
    from weft.tune.space.optuna_domains import domain_of

    domains = {name: domain_of(found).data() for name, found in one.distributions.items()}
    number = add_known(core, one.params, domains, source)
    steps = sorted(one.intermediate_values)
    core.reported_many(number, steps, [one.intermediate_values[step] for step in steps])
    if one.user_attrs:
        core.noted(number, one.user_attrs)
    if getattr(one, "constraints", None):
        core.constrained(number, one.constraints)
    if one.state.name == "COMPLETE" and one.values is not None:
        core.completed(number, one.values)
    elif one.state.name == "FAIL":
        core.failed(number, "it failed in Optuna")
    else:
        core.stopped(number, "pruned by Optuna")


def _repeat(core: StudyCore, trial: TrialRecord, number: int, at_s: float) -> None:
    """Say of a trial what another one did."""
    core.reported_many(number, trial.steps, trial.curve, at_s=at_s)
    if trial.user_attrs:
        core.noted(number, trial.user_attrs, at_s=at_s)
    if trial.constraints:
        core.constrained(number, trial.constraints, at_s=at_s)
    core.completed(number, trial.values, at_s=at_s)


def read_distribution(given: Any, name: str) -> Domain:
    """Return a domain that is one, or its text, or a distribution of Optuna's."""
    theirs = getattr(sys.modules.get("optuna.distributions"), "BaseDistribution", None)
    if theirs is None or not isinstance(given, theirs):
        return read_domain(given, name)
    from weft.tune.space.optuna_domains import domain_of

    return domain_of(given)
