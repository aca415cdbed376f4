"""Rankings: derivatives beside their definition, and orders that boosting learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from weft.learn import GradientBoostingRanker
from weft.learn.trees.boosted.ranking import LambdaRank

Array = np.ndarray[Any, Any]


def queries(count: int = 150, each: int = 12) -> tuple[Array, Array, Array]:
    """Rows of queries in mixed order, with grades from 0 to 3 within a query, whatever its level."""
    random = np.random.default_rng(4)
    qid = random.permutation(np.repeat(np.arange(count), each))
    X = random.standard_normal((len(qid), 5))
    scores = X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * random.standard_normal(len(qid))
    X[:, 4] += 10 * random.standard_normal(count)[qid]  # tells queries apart, not rows
    return X, np.digitize(scores, [-0.8, 0.3, 1.3]), qid


def test_derivatives_are_those_of_pairs() -> None:
    y, qid, raw = np.array([2.0, 0, 1, 1, 0]), np.array([1, 1, 1, 0, 0]), np.array([0.1, 0.5, -0.2, 0.3, 0.4])
    loss = LambdaRank(qid, y, 30)
    first, second, value = loss.derivatives(raw[:, None], y, np.ones(5))
    wanted = np.zeros(5)
    for query in (0, 1):
        rows = np.flatnonzero(qid == query)
        rank = {row: place for place, row in enumerate(rows[np.argsort(-raw[rows])])}
        ideal = sum((2**grade - 1) / np.log2(k + 2) for k, grade in enumerate(sorted(y[rows])[::-1]))
        for i in rows:
            for j in rows:
                if y[i] > y[j]:
                    discounts = 1 / np.log2(rank[i] + 2) - 1 / np.log2(rank[j] + 2)
                    push = abs((2 ** y[i] - 2 ** y[j]) * discounts) / ideal / (1 + np.exp(raw[i] - raw[j]))
                    wanted[i] -= push
                    wanted[j] += push
    np.testing.assert_allclose(first[:, 0], wanted, atol=1e-12)
    assert (second > 0).all()
    scores = [ndcg_score([2 ** y[qid == q] - 1], [raw[qid == q]]) for q in (0, 1)]
    assert value == pytest.approx(1 - np.mean(scores))


def test_an_order_is_learned() -> None:
    X, y, qid = queries()
    train = qid < 100
    model = GradientBoostingRanker(n_estimators=30, max_depth=3).fit(X[train], y[train], qid[train])
    assert model.score(X[~train], y[~train], qid[~train]) > 0.9
    assert (np.diff(model.train_score_[::5]) < 0).all()
    nobody = np.random.default_rng(0).standard_normal(len(y))
    chance = np.mean([ndcg_score([2.0 ** y[qid == q] - 1], [nobody[qid == q]]) for q in range(100, 150)])
    assert chance < 0.8


def test_what_cannot_be_meant_is_said() -> None:
    X, y, qid = queries(5)
    with pytest.raises(ValueError, match="grades must be from 0 to 30, got -1 in row 0"):
        GradientBoostingRanker().fit(X, np.full(len(y), -1), qid)
    with pytest.raises(ValueError, match="qid must have one query for each of 60 rows, got shape"):
        GradientBoostingRanker().fit(X, y, qid[:7])
