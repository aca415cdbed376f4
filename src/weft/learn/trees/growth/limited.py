"""The constraints of one tree while it grows: bounds of its nodes' values, and the features that each may still cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.trees.growth.rules import Constraints

Array = np.ndarray[Any, Any]


class Limited:
    """Keeps what each node, by its number, must keep to; nodes are numbered in the order of `passed_on`."""

    def __init__(self, constraints: Constraints, columns: int):
        self.signs, self._sets, self._columns = constraints.signs, constraints.sets, columns
        self._bounds: list[tuple[float, float]] = [(-np.inf, np.inf)]
        self._open: list[Array] = [] if self._sets is None else [np.ones(len(self._sets), bool)]
        self._values = np.empty((0, 0, 2))
        self._chosen: dict[int, Array] = {}

    def values_of(self, nodes: int) -> Array:
        """Return room for the values on both sides of each node's cut of each feature."""
        self._values = np.empty((nodes, self._columns if self.signs is not None else 0, 2))
        return self._values

    def bounds_of(self, nodes: tuple[int, ...]) -> Array:
        if self.signs is None:
            return np.empty((0, 2))
        return np.array([self._bounds[node] for node in nodes]).reshape(-1, 2)

    def allowed(self, nodes: tuple[int, ...]) -> Any:
        """Return which features each node may cut, (nodes, features)."""
        if self._sets is None:
            return True
        return np.array([self._sets[self._open[node]].any(axis=0) for node in nodes])

    def note(self, nodes: tuple[int, ...], features: Array) -> None:
        """Remember the values on both sides of the cuts that were chosen."""
        if self.signs is not None:
            self._chosen |= {node: self._values[k, features[k]].copy() for k, node in enumerate(nodes)}

    def passed_on(self, node: int, feature: int) -> None:
        """Give the two children of a node that cut a feature, the next two numbers, what they must keep to."""
        if self._sets is not None:
            self._open += 2 * [self._open[node] & self._sets[:, feature]]
        if self.signs is None:
            return
        low, high = self._bounds[node]
        middle = float(self._chosen[node].mean())
        sign = self.signs[feature]
        below, above = (low, middle), (middle, high)
        self._bounds += {0: [(low, high)] * 2, 1: [below, above], -1: [above, below]}[int(sign)]

    def bounds_in(self, places: Array) -> Array | None:
        """Return the bounds of all nodes, in another order."""
        return None if self.signs is None else np.array(self._bounds)[places]
