"""The spaces of scikit-learn's searches in our words: lists of any objects, scipy's distributions, several spaces.

What a study cannot hold it knows by a word or a number: an estimator by its label, a value of a distribution by its
quantile. `params_of` brings back what is meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from weft.tune.space.domains import Choices, Domain, FloatRange, IntRange, LogRange, SpaceError, labels_of
from weft.tune.space.text import read_domain

PART = "part"  # the parameter that tells which of several spaces a point is of
LEAST_QUANTILE = 1e-3  # distributions may have no ends
MOST_DRAWS = 2**31 - 2


class CandidateSpace:
    """A space as scikit-learn's searches take it, or as ours do: `domains` is what a study is made with."""

    def __init__(self, given: Any) -> None:
        self._meant: dict[str, Callable[[Any], Any]] = {}
        several = not isinstance(given, Mapping)
        spaces = list(given) if several and isinstance(given, Iterable) else [given]
        if not spaces or not all(isinstance(one, Mapping) for one in spaces):
            raise SpaceError(
                f"space must map names to domains, or be a list of such mappings, got {given!r}; "
                "write {'C': 'log:1e-3:1e3'}"
            )
        self._several = several and len(spaces) > 1
        self.domains: dict[str, Domain] = {}
        if self._several:
            self.domains[PART] = Choices(values=tuple(range(len(spaces))))
        for place, space in enumerate(spaces):
            for name, one in space.items():
                domain, meant = _read(one, str(name))
                if self._several:
                    condition = f"{PART} == {place}"
                    if domain.when is not None:
                        raise SpaceError(
                            f"{name} must have no condition where spaces are several, got {domain.when}; remove it"
                        )
                    domain, name = domain.with_condition(condition), f"p{place}.{name}"
                self.domains[str(name)] = domain
                if meant is not None:
                    self._meant[str(name)] = meant

        if not self.domains:  # the estimator as it is
            self._several, self.domains[PART] = True, Choices(values=(0,))

    @property
    def size(self) -> int | None:
        """How many points there are; None: more than can be counted."""
        sizes = [
            math.prod(len(one.values) for one in part if isinstance(one, Choices)) for part in self._parts()
        ]
        counted = all(isinstance(one, Choices) for one in self.domains.values())
        return sum(sizes) if counted else None

    def _parts(self) -> Iterator[list[Domain]]:
        """Yield the domains of each space."""
        by_part: dict[str | None, list[Domain]] = {}
        for name, domain in self.domains.items():
            if name != PART or not self._several:
                by_part.setdefault(domain.when if self._several else None, []).append(domain)
        yield from by_part.values() if by_part else [[]]

    def params_of(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of an estimator for a point of a study."""
        found = {}
        for name, value in point.items():
            if name == PART and self._several:
                continue
            own = name.partition(".")[2] if self._several else name
            found[own] = self._meant[name](value) if name in self._meant else value
        return found


def _read(given: Any, name: str) -> tuple[Domain, Callable[[Any], Any] | None]:
    """Return a domain and what its values mean; None: themselves."""
    if callable(getattr(given, "rvs", None)):
        return _of_distribution(given)
    if isinstance(given, (str, dict, Domain)):
        return read_domain(given, name), None
    if not isinstance(given, Iterable):
        return Choices(values=tuple(labels_of([given]))), lambda _: given
    values = list(given)
    if not values:
        raise SpaceError(f"{name}: choices must have at least one value, got none; write a list of them")
    labels: list[Any] = []
    kept: list[Any] = []
    for label, value in zip(labels_of(values), values, strict=True):
        if not any(type(label) is type(one) and label == one for one in labels):
            labels.append(label)
            kept.append(value)
    return Choices(values=tuple(labels)), lambda label: kept[_place(labels, label)]


def _place(labels: list[Any], label: Any) -> int:
    return next(i for i, one in enumerate(labels) if type(one) is type(label) and one == label)


def _of_distribution(given: Any) -> tuple[Domain, Callable[[Any], Any] | None]:
    """Return the range of a distribution of scipy's, by its quantiles where it is neither even nor logarithmic."""
    kind = getattr(getattr(given, "dist", None), "name", "")
    if kind in ("uniform", "loguniform", "reciprocal", "randint"):
        low, high = given.support()
        if low < high:
            if kind == "randint":
                return IntRange(low=int(low), high=int(high)), None
            return (FloatRange if kind == "uniform" else LogRange)(low=float(low), high=float(high)), None
    if callable(getattr(given, "ppf", None)):
        whole = hasattr(getattr(given, "dist", None), "pmf")
        quantiles = FloatRange(low=LEAST_QUANTILE, high=1 - LEAST_QUANTILE)
        return quantiles, lambda share: int(given.ppf(share)) if whole else float(given.ppf(share))
    return IntRange(low=0, high=MOST_DRAWS), lambda seed: given.rvs(random_state=seed)
