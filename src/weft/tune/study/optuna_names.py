"""Names of Optuna's on our studies: its properties and methods, for programs that come from there."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.text import shorten
from weft.tune.samplers.base import named_searcher
from weft.tune.study.config import StudyError
from weft.tune.study.core import StudyCore
from weft.tune.study.events import StudyNoted
from weft.tune.study.objects import objects_of
from weft.tune.study.state import SearchState, TrialRecord
from weft.tune.study.states import MetricDirection
from weft.tune.study.warm_start import add_optunas


class OptunaNames:
    """The properties of a study by their names in Optuna; states and directions are text."""

    _core: StudyCore

    @property
    def state(self) -> SearchState:
        """All that is known of the study."""
        return self._core.state

    def get_trials(self, deepcopy: bool = True, states: Iterable[Any] | None = None) -> list[TrialRecord]:
        """Return trials by number: all, or those in some states, by our words for them or by Optuna's."""
        wanted = None if states is None else list(states)
        found = [trial for trial in self.state if wanted is None or trial.state in wanted]
        return copy.deepcopy(found) if deepcopy else found

    def enqueue_trial(
        self,
        params: Mapping[str, Any],
        user_attrs: Mapping[str, Any] | None = None,
        skip_if_exists: bool = False,
    ) -> None:
        """Add a point that is tried before others are suggested; an objective that names parameters draws the rest."""
        if skip_if_exists and any({**trial.fixed, **trial.params} == dict(params) for trial in self.state):
            return
        made = self._core.add(params, at_s=time.time())
        if made is not None and user_attrs:
            self._core.noted(made.number, user_attrs, at_s=time.time())

    def add_trial(self, trial: Any) -> None:
        """Add a trial of Optuna's that has ended, with its values, reports and notes."""
        add_optunas(self._core, trial, "optuna")

    def add_trials(self, trials: Iterable[Any]) -> None:
        """Add trials of Optuna's that have ended."""
        for trial in trials:
            self.add_trial(trial)

    @property
    def study_name(self) -> str:
        """The name of the study."""
        return self.state.config.name

    @property
    def directions(self) -> list[MetricDirection]:
        """The word minimize or maximize for each metric, in their order."""
        kinds = MetricDirection
        return [kinds.MINIMIZE if small else kinds.MAXIMIZE for small in self.state.config.goals.values()]

    @property
    def direction(self) -> MetricDirection:
        """The word minimize or maximize of the only metric."""
        if len(self.directions) > 1:
            raise StudyError(
                f"a study must have one metric to have one direction, got {', '.join(self.state.goals)}; "
                "read study.directions"
            )
        return self.directions[0]

    def _is_multi_objective(self) -> bool:
        """Return whether there are several metrics: callbacks and importances of Optuna's ask."""
        return len(self.state.goals) > 1

    @property
    def metric_names(self) -> list[str] | None:
        """Names of the metrics in tables and plots; None: they were given none."""
        return list(self.state.metric_names) or None

    def set_metric_names(self, metric_names: Sequence[str]) -> None:
        """Give each metric a name for tables and plots, in their order."""
        names = tuple(map(str, metric_names))
        if len(names) != len(self.state.goals):
            raise StudyError(
                f"metric_names must be one for each of {', '.join(self.state.goals)}, got {shorten(list(names))}; "
                "name all"
            )
        self._core.say(StudyNoted(metric_names=names, at_s=time.time()))

    @property
    def system_attrs(self) -> dict[str, Any]:
        """What searches noted about the study for themselves: nothing, they note it about trials."""
        return {}

    @property
    def sampler(self) -> Any:
        """What suggests points: the object that was given, or ours of its name."""
        return getattr(self._core.searcher, "given_sampler", self._core.searcher)

    @sampler.setter
    def sampler(self, given: Any) -> None:
        self._core.use(objects_of(given, "none")[1].searcher or named_searcher(self.state.config, given))

    @property
    def pruner(self) -> Any:
        """What ends trials early: the pruner that was given, or our schedule."""
        given = (getattr(rule, "given_pruner", None) for rule in self._core.rules)
        return next((one for one in given if one is not None), self._core.scheduler)

    @pruner.setter
    def pruner(self, given: Any) -> None:
        found = objects_of("random", given)[1]
        if found.rule is None:
            raise StudyError(
                f"a pruner must be an object of Optuna's to take another's place, got {given!r}; make a study"
            )
        self._core.use(rule=found.rule)

    @property
    def user_attrs(self) -> dict[str, Any]:
        """What was noted about the study."""
        return dict(self.state.user_attrs)

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep something about the study: what JSON can hold."""
        self._core.study_noted({key: value}, at_s=time.time())
