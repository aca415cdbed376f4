"""The search space: all parameters with their domains, the conditions between them, and constraints on points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.text import shorten, suggestion
from weft.tune.space.domains import Choices, Domain, IntRange, SpaceError, Value, plain_value
from weft.tune.space.expressions import SpaceExpression
from weft.tune.space.text import check_name, parse_parameter, read_domain

MOST_PARAMETERS = 1000
OPEN: dict[str, Any] = {"...": "..."}  # in a study's settings: functions name parameters while they run
Params = dict[str, Value]


class SearchSpace:
    """All parameters of a study, by name, in an order in which conditions can be told."""

    def __init__(
        self, domains: Mapping[str, Any], constraints: Iterable[str] = (), *, open: bool = False
    ) -> None:
        self.open = open  # functions may name further parameters while they run
        named = str if open else check_name  # what a function names stands in no command and no condition
        found = {named(str(name)): read_domain(given, str(name)) for name, given in domains.items()}
        if not found and not open:
            raise SpaceError("a space must have at least one parameter, got none; write lr=log:1e-5:1e-1")
        if len(found) > MOST_PARAMETERS:
            raise SpaceError(
                f"a space must have at most {MOST_PARAMETERS} parameters, got {len(found)}; leave some out"
            )
        words = {
            v for one in found.values() if isinstance(one, Choices) for v in one.values if isinstance(v, str)
        }
        self._conditions = {
            name: SpaceExpression(one.when, found, words)
            for name, one in found.items()
            if one.when is not None
        }
        self.domains: dict[str, Domain] = {name: found[name] for name in _ordered(found, self._conditions)}
        self.constraints = tuple(constraints)
        self._constraints = tuple(SpaceExpression(text, found, words) for text in self.constraints)

    @classmethod
    def from_text(cls, parameters: Iterable[str], constraints: Iterable[str] = ()) -> SearchSpace:
        """Return the space of texts such as `lr=log:1e-5:1e-1`."""
        domains: dict[str, Domain] = {}
        for text in parameters:
            name, domain = parse_parameter(text)
            if name in domains:
                raise SpaceError(f"a parameter must be given once, got {name} twice; remove one")
            domains[name] = domain
        return cls(domains, constraints)

    @classmethod
    def of(cls, given: SearchSpace | Mapping[str, Any], constraints: Iterable[str] = ()) -> SearchSpace:
        """Return a space as it is, or made of its domains."""
        return given if isinstance(given, SearchSpace) else cls(given, constraints)

    @classmethod
    def of_config(cls, domains: Mapping[str, Any], constraints: Iterable[str]) -> SearchSpace:
        """Return the space of a study's settings; `{"...": "..."}` is one that functions name while they run."""
        return cls({}, constraints, open=True) if domains == OPEN else cls(domains, constraints)

    def grown(self, domains: Mapping[str, Any]) -> SearchSpace:
        """Return this space with further domains, which functions have named."""
        if not domains:
            return self
        return SearchSpace({**self.domains, **domains}, self.constraints, open=self.open)

    def __len__(self) -> int:
        return len(self.domains)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={domain.data()}" for name, domain in self.domains.items())
        return f"SearchSpace({inside})"

    @property
    def conditional(self) -> bool:
        """Whether some parameters exist under a condition."""
        return bool(self._conditions)

    @property
    def searched(self) -> tuple[str, ...]:
        """Names of the parameters that have more than one value."""
        return tuple(name for name, domain in self.domains.items() if not domain.fixed)

    def is_active(self, name: str, params: Mapping[str, Any]) -> bool:
        """Return whether a parameter exists, given those before it."""
        condition = self._conditions.get(name)
        return condition is None or condition.holds(params)

    def allows(self, params: Mapping[str, Any]) -> bool:
        """Return whether a point meets all constraints whose parameters it has."""
        return all(one.holds(params) for one in self._constraints if one.names <= params.keys())

    def check_point(self, given: Mapping[str, Any]) -> Params:
        """Return a point that somebody gave, in our order and types; SpaceError names what is wrong with it."""
        for name in given:
            if name not in self.domains:
                raise SpaceError(
                    f"a point must have parameters of the space, got {name}; {suggestion(str(name), self.domains)}"
                )
        params: Params = {}
        for name, domain in self.domains.items():
            if not self.is_active(name, params):
                if name in given:
                    raise SpaceError(
                        f"{name} must be left out where {domain.when} does not hold, got {shorten(given[name])}; "
                        "remove it"
                    )
                continue
            if name not in given and not domain.fixed:
                raise SpaceError(
                    f"a point must have a value of {name}, got none; write {name}={domain.text()}"
                )
            value = plain_value(given.get(name, domain.grid(1)[0] if domain.fixed else None))
            if isinstance(domain, Choices):
                value = domain.meant(value)
            if not domain.contains(value):
                raise SpaceError(
                    f"{name} must be in {domain.text()}, got {shorten(value)}; give another value"
                )
            params[name] = int(value) if isinstance(domain, IntRange) else value
        if not self.allows(params):
            broken = [one.text for one in self._constraints if not one.holds(params)]
            raise SpaceError(f"a point must meet {broken[0]}, got {shorten(params)}; give another point")
        return params

    def data(self) -> dict[str, Any]:
        """Return the space as JSON and YAML hold it."""
        return {name: domain.data() for name, domain in self.domains.items()}


def _ordered(domains: Mapping[str, Domain], conditions: Mapping[str, SpaceExpression]) -> list[str]:
    """Return the names in an order in which those that a condition speaks of come first."""
    done: list[str] = []
    left = list(domains)
    while left:
        ready = [n for n in left if n not in conditions or conditions[n].names <= set(done)]
        if not ready:
            raise SpaceError(
                f"conditions must not wait for each other in a circle, got {', '.join(left)}; remove one condition"
            )
        done.append(ready[0])
        left.remove(ready[0])
    return done
