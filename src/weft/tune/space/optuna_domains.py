"""Domains and their values in Optuna's words, and back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from weft.tune.space.domains import Choices, Domain, FloatRange, IntRange, LogRange, OrderedChoices
from weft.tune.space.space import SearchSpace


def distribution_of(domain: Domain) -> BaseDistribution:
    """Return Optuna's word for a domain; ordered choices are their places."""
    match domain:
        case FloatRange(low=low, high=high, step=step):
            return FloatDistribution(low, high, step=step)
        case LogRange(low=low, high=high):
            return FloatDistribution(low, high, log=True)
        case IntRange(low=low, high=high, step=step, log=log):
            return IntDistribution(low, high, log=log, step=step)
        case OrderedChoices(values=values) if len(values) > 1:
            return IntDistribution(0, len(values) - 1)
        case Choices(values=values):
            return _categorical(values)
    raise AssertionError(f"a domain of the kind {type(domain).__name__} is not known")


def _categorical(values: Sequence[Any]) -> CategoricalDistribution:
    """Return Optuna's word for choices; it takes lists, but warns of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CategoricalDistribution(values)


def distributions_of(space: SearchSpace, params: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """Return distributions for parameters whose values stay ours: ordered choices are choices."""
    domains = {name: space.domains[name] for name in params if name in space.domains}
    return {
        name: _categorical(one.values) if isinstance(one, Choices) else distribution_of(one)
        for name, one in domains.items()
    }


def to_optuna(domain: Domain, value: Any) -> Any:
    """Return a value of ours as Optuna holds it."""
    if isinstance(domain, OrderedChoices) and len(domain.values) > 1:
        return domain.values.index(value)
    return value


def from_optuna(domain: Domain, value: Any) -> Any:
    """Return a value of Optuna's as ours."""
    if isinstance(domain, OrderedChoices) and len(domain.values) > 1:
        return domain.values[int(value)]
    if isinstance(domain, IntRange):
        return int(value)
    return float(value) if isinstance(domain, (FloatRange, LogRange)) else value


def domain_of(distribution: BaseDistribution) -> Domain:
    """Return our word for a distribution of Optuna's."""
    match distribution:
        case FloatDistribution():
            if distribution.single():
                return Choices(values=(distribution.low,))
            if distribution.log:
                return LogRange(None, distribution.low, distribution.high)
            return FloatRange(None, distribution.low, distribution.high, distribution.step)
        case IntDistribution():
            if distribution.single():
                return Choices(values=(distribution.low,))
            return IntRange(None, distribution.low, distribution.high, distribution.step, distribution.log)
        case CategoricalDistribution():
            return Choices(None, tuple(distribution.choices))
    raise AssertionError(f"a distribution of the kind {type(distribution).__name__} is not known")
