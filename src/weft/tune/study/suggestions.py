"""The suggestions of Optuna's trials, for a running trial and for one that is evaluated again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import UsageError
from weft.tune.space.domains import Choices, Domain, FloatRange, IntRange, LogRange, SpaceError, labels_of


class SuggestedParams:
    """The methods by which an objective asks for parameters; whoever has them finds the value of one."""

    __slots__ = ()

    def _value(self, name: str, domain: Domain) -> Any:
        """Return the value of a parameter with a domain."""
        raise NotImplementedError

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Return a number from `low` to `high`."""
        if low == high:
            return float(self._value(name, Choices(values=(float(low),))))
        if log and step is not None:
            raise SpaceError(
                f"{name} must have a step or be logarithmic, got step={step} and log=True; leave one out"
            )
        domain = LogRange(low=low, high=high) if log else FloatRange(low=low, high=high, step=step)
        return float(self._value(name, domain))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """Return a whole number from `low` to `high`."""
        if log and step != 1:
            raise SpaceError(
                f"{name} must have a step or be logarithmic, got step={step} and log=True; leave one out"
            )
        if low == high:
            return int(self._value(name, Choices(values=(low,))))
        return int(self._value(name, IntRange(low=low, high=high, step=step, log=log)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of some values, of any kind: the study keeps what JSON cannot hold, as functions, by a label."""
        kept = labels_of(choices)
        found = self._value(name, Choices(values=tuple(kept)))
        same = [
            one
            for one, text in zip(choices, kept, strict=True)
            if type(text) is type(found) and text == found
        ]
        return same[0] if same else found

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        """Return a number from `low` to `high`, by an older name of `suggest_float`."""
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        """Return a number that is searched by its logarithm, by an older name of `suggest_float`."""
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        """Return a number in steps of `q`, by an older name of `suggest_float`."""
        return self.suggest_float(name, low, high, step=q)


class RepeatedTrial(SuggestedParams):
    """A known trial as its objective is called with it again: it suggests what it had, and keeps no reports."""

    __slots__ = ()

    number: int
    params: dict[str, Any]

    def _value(self, name: str, domain: Domain) -> Any:
        if name not in self.params:
            raise UsageError(
                f"trial {self.number} must have the parameter {name}, got {', '.join(self.params) or 'none'}; "
                "call the objective that it was tried with"
            )
        return self.params[name]

    def __getitem__(self, name: str) -> Any:
        return self.params[name]

    def report(self, value: Any, step: int) -> None:
        """Do nothing: what the trial reported is known."""

    def should_prune(self) -> bool:
        """Return False: it runs to its end."""
        return False

    def set_user_attr(self, key: str, value: Any) -> None:
        """Do nothing: what was noted about the trial is known."""

    def set_constraint(self, key: str, value: float) -> None:
        """Do nothing: its constraints are known."""
