"""One trial as a function sees it, with Optuna's methods, so that an objective of Optuna's runs unchanged.

def train(trial):
    lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    for epoch in range(1, 28):
        trial.report(train_epoch(lr), epoch)
        if trial.should_prune():
            raise tune.TrialPruned
"""

from __future__ import annotations

import json
import operator
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from weft.errors import UsageError, WeftError
from weft.tune.space.domains import Domain, check_kind
from weft.tune.study.states import TrialState
from weft.tune.study.suggestions import SuggestedParams

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

    from weft.tune.study.state import TrialRecord


class TrialPruned(WeftError):  # noqa: N818 (the name that Optuna has for it)
    """Raised by an objective that ends because `should_prune` told it to."""


class ReportError(UsageError, TypeError):
    """A report that is no number at a whole step."""


class TrialKeeper(Protocol):
    """The running study behind a trial; its methods may be called from any thread."""

    @property
    def study(self) -> Any: ...

    def draw(self, number: int, name: str, domain: Domain) -> Any: ...

    def take_report(self, number: int, step: int, values: Mapping[str, float]) -> None: ...

    def take_note(self, number: int, attrs: Mapping[str, Any]) -> None: ...

    def take_constraints(self, number: int, values: Mapping[str, float]) -> None: ...

    def take_system_note(self, number: int, attrs: Mapping[str, Any]) -> None: ...

    def wants_end(self, number: int) -> bool: ...

    def folder_of(self, number: int) -> Path: ...


class TrialNotes:
    """The one thing that tools of Optuna's ask of a trial's storage: to note something about it for themselves."""

    def __init__(self, keeper: TrialKeeper) -> None:
        self._keeper = keeper

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Keep something about a trial, which its record has as `system_attrs`: what JSON can hold."""
        self._keeper.take_system_note(trial_id, {key: value})


class FunctionTrial(SuggestedParams):
    """The trial that an objective gets."""

    def __init__(
        self,
        keeper: TrialKeeper,
        number: int,
        params: dict[str, Any],
        until: int | None,
        kept: dict[str, Any] | None = None,
    ) -> None:
        self.kept = (
            {} if kept is None else kept
        )  # a paused trial finds it again, as long as this process lives
        self._keeper, self.number, self._params, self.until = keeper, number, params, until
        self._asked: dict[str, Domain] = {}  # by the objective
        self.user_attrs: dict[str, Any] = {}
        self.constraints: dict[str, float] = {}

    @property
    def study(self) -> Any:
        """The study of the trial."""
        return self._keeper.study

    @property
    def datetime_start(self) -> datetime | None:
        """When the trial first began, in local time."""
        return self._record.datetime_start

    def ask_for(self, name: str, domain: Domain) -> Any:
        """Return the value of a parameter with a domain."""
        return self._value(name, domain)

    @property
    def params(self) -> dict[str, Any]:
        """Parameters, as far as they are known."""
        return dict(self._params)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """Distributions of Optuna's for the parameters, as far as they are known."""
        return self._record.distributions

    @property
    def storage(self) -> TrialNotes:
        """Where tools of Optuna's note things about the trial for themselves."""
        return TrialNotes(self._keeper)

    @property
    def _trial_id(self) -> int:
        """The number by its private name in Optuna, by which its tools find it in a storage."""
        return self.number

    @property
    def relative_params(self) -> dict[str, Any]:
        """Parameters that the search suggested before they were asked for, by their name in Optuna."""
        return dict(self._record.attrs.get("suggested", {}))

    @property
    def system_attrs(self) -> dict[str, Any]:
        """What the search noted about the trial for itself."""
        return dict(self._record.attrs)

    @property
    def _record(self) -> TrialRecord:
        found: TrialRecord = self.study.state.trials[self.number]
        return found

    def __getitem__(self, name: str) -> Any:
        return self._params[name]

    @property
    def checkpoint(self) -> Path:
        """A folder that is the trial's own: what it saves there it finds again when it goes on."""
        return self._keeper.folder_of(self.number)

    def report(self, value: float | Mapping[str, float], step: int) -> None:
        """Report the metric, or several by name, after so many steps; steps count from 1."""
        values = value if isinstance(value, Mapping) else {"": value}
        try:
            numbers = {str(name): float(one) for name, one in values.items()}
            whole = operator.index(step.item() if hasattr(step, "item") else step)
        except (TypeError, ValueError):
            raise ReportError(
                f"a report must be numbers at a whole step, got {value!r} at {step!r}; write trial.report(loss, epoch)"
            ) from None
        self._keeper.take_report(self.number, whole, numbers)

    def should_prune(self) -> bool:
        """Return whether the function should end now: its trial is paused or stopped."""
        return self._keeper.wants_end(self.number)

    def _value(self, name: str, domain: Domain) -> Any:
        known = self._asked.get(name)
        if known is not None:
            check_kind(name, known, domain)
        if name not in self._params:
            self._params[name] = self._keeper.draw(self.number, name, domain)
        self._asked[name] = domain
        return self._params[name]

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep something about the trial, which its record has as `user_attrs`: what JSON can hold."""
        self._keeper.take_note(self.number, {key: value})
        self.user_attrs[key] = value

    def set_constraint(self, key: str, value: float) -> None:
        """Set a constraint by name: the trial keeps it where the value is at most zero.

        A trial that breaks one is never the best, and searches look elsewhere.
        """
        self._keeper.take_constraints(self.number, {key: value})
        self.constraints[key] = float(value)


def is_pruned(error: BaseException) -> bool:
    """Return whether an objective ended as it was told to; Optuna's own exception says so, too."""
    theirs = getattr(sys.modules.get("optuna"), "TrialPruned", None)
    return isinstance(error, TrialPruned) or (theirs is not None and isinstance(error, theirs))


def params(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the parameters of this process's trial, in a script that a study runs."""
    text = (os.environ if environ is None else environ).get("WEFT_PARAMS")
    if text is None:
        raise UsageError(
            "weft.tune.params must be called in a trial, got none; start the script by weft tune"
        )
    found: dict[str, Any] = json.loads(text)
    return found


__all__ = ["FunctionTrial", "TrialKeeper", "TrialPruned", "TrialState", "is_pruned", "params"]
