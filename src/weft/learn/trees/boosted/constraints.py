"""Constraints as users write them, as those of scikit-learn's histogram boosting, checked and turned into arrays."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from weft.learn.trees.growth.rules import Constraints

Array = np.ndarray[Any, Any]


def constraints_of(
    monotonic: Any, interaction: Any, columns: int, names: Any, categorical: Array
) -> Constraints:
    """Return the constraints; `names` are the columns' names, or None.

    `monotonic`: None, one of -1, 0, 1 for each column, or a dict by name. `interaction`: None, "pairwise",
    "no_interactions", or sets of places; columns that are in none of them form a set of their own.
    """
    signs = None if monotonic is None else _signs(monotonic, columns, names)
    if signs is not None and np.any(signs[categorical] != 0):
        place = int(np.flatnonzero(categorical & (signs != 0))[0])
        raise ValueError(
            f"monotonic_cst must be 0 for categorical features, got {signs[place]} for column {place}"
        )
    constrained = signs is not None and bool(np.any(signs))
    return Constraints(signs if constrained else None, _sets(interaction, columns))


def _signs(given: Any, columns: int, names: Any) -> Array:
    if isinstance(given, dict):
        known = [] if names is None else list(names)
        unknown = sorted(set(given) - set(known), key=str)
        if unknown:
            raise ValueError(f"monotonic_cst must name columns of X, got {unknown}; X has {known}")
        given = [given.get(name, 0) for name in known]
    signs = np.asarray(given)
    if signs.shape != (columns,):
        raise ValueError(
            f"monotonic_cst must have one number for each of {columns} columns, got shape {signs.shape}"
        )
    if not np.isin(signs, (-1, 0, 1)).all():
        raise ValueError(f"monotonic_cst must be -1, 0 or 1, got {sorted(set(signs.tolist()))}")
    return signs.astype(np.int64)


def _sets(given: Any, columns: int) -> Array | None:
    if given is None:
        return None
    if isinstance(given, str):
        sizes = {"no_interactions": 1, "pairwise": 2}
        if given not in sizes:
            raise ValueError(
                f"interaction_cst must be 'pairwise', 'no_interactions' or sets of columns, got {given!r}"
            )
        groups: list[Any] = list(combinations(range(columns), min(sizes[given], columns)))
    else:
        groups = [sorted(set(group)) for group in given]
    listed = {place for group in groups for place in group}
    if any(not isinstance(place, (int, np.integer)) or not 0 <= place < columns for place in listed):
        raise ValueError(
            f"interaction_cst must hold columns from 0 to {columns - 1}, got {sorted(listed, key=str)}"
        )
    rest = sorted(set(range(columns)) - listed)
    groups += [rest] if rest else []
    sets = np.zeros((len(groups), columns), bool)
    for row, group in zip(sets, groups, strict=True):
        row[list(group)] = True
    return sets
