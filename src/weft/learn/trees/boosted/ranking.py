"""The loss of rankings: LambdaRank on NDCG, with trees LambdaMART."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.trees.kernels.ranking import lambdas

Array = np.ndarray[Any, Any]


class LambdaRank:
    """Rows of one query are put in order; the loss is 1 - NDCG, and derivatives are those of pairs."""

    outputs, steep, curved = 1, None, None

    def __init__(self, queries: Array, y: Array, most: int):
        names, places = np.unique(queries, return_inverse=True)
        self._order = np.argsort(places, kind="stable").astype(np.int64)
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(places))]).astype(np.int64)
        self._gains = np.exp2(y) - 1
        self._most = most
        self._best = np.array([self._ideal(q) for q in range(len(names))])

    def __getstate__(self) -> dict[str, Any]:
        return {}  # a fitted model predicts without its rows' queries

    def _ideal(self, query: int) -> float:
        """Return the DCG of the right order; 0 where every order is right."""
        gains = np.sort(self._gains[self._order[self._starts[query] : self._starts[query + 1]]])[::-1]
        if gains[0] == gains[-1]:
            return 0.0
        return float((gains[: self._most] / np.log2(np.arange(min(len(gains), self._most)) + 2.0)).sum())

    def start(self, y: Array, weights: Array) -> Array:
        return np.zeros(1)

    def derivatives(self, raw: Array, y: Array, weights: Array) -> tuple[Array, Array, float | None]:
        first, second = np.empty(len(raw)), np.empty(len(raw))
        loss = self._lambdas(raw, first, second)
        second = np.maximum(second, 1e-9)  # a row that is in no pair stays where it is
        return (first * weights)[:, None], (second * weights)[:, None], loss

    def value(self, raw: Array, y: Array, weights: Array) -> float:
        return self._lambdas(raw, np.empty(len(raw)), np.empty(len(raw)))

    def _lambdas(self, raw: Array, first: Array, second: Array) -> float:
        ordered = np.ascontiguousarray(raw[:, 0])
        lost = lambdas(ordered, self._gains, self._starts, self._order, self._best, self._most, first, second)
        return float(lost) / max(1, int(np.count_nonzero(self._best)))
