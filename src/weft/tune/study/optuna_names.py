"""Names of Optuna's on our studies: its properties and methods, for programs that come from there."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable
from typing import Any

from weft.tune.study.config import StudyError
from weft.tune.study.core import StudyCore
from weft.tune.study.state import SearchState, TrialRecord


class OptunaNames:
    """The properties of a study by their names in Optuna; states and directions are text."""

    _core: StudyCore

    @property
    def state(self) -> SearchState:
        """All that is known of the study."""
        return self._core.state

    def get_trials(self, deepcopy: bool = True, states: Iterable[str] | None = None) -> list[TrialRecord]:
        """Return trials by number: all, or those in some states, `completed` and others."""
        wanted = None if states is None else set(states)
        found = [trial for trial in self.state if wanted is None or trial.state in wanted]
        return copy.deepcopy(found) if deepcopy else found

    @property
    def study_name(self) -> str:
        """The name of the study."""
        return self.state.config.name

    @property
    def directions(self) -> list[str]:
        """The word minimize or maximize for each metric, in their order."""
        return ["minimize" if small else "maximize" for small in self.state.config.goals.values()]

    @property
    def direction(self) -> str:
        """The word minimize or maximize of the only metric."""
        if len(self.directions) > 1:
            raise StudyError(
                f"a study must have one metric to have one direction, got {', '.join(self.state.goals)}; "
                "read study.directions"
            )
        return self.directions[0]

    @property
    def user_attrs(self) -> dict[str, Any]:
        """What was noted about the study."""
        return dict(self.state.user_attrs)

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep something about the study: what JSON can hold."""
        self._core.study_noted({key: value}, at_s=time.time())
