"""Boosted trees that put the rows of a query in order."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.metrics import ndcg_score

from weft.learn import inputs
from weft.learn.frames.entry import takes_frames
from weft.learn.trees.boosted.model import GradientBoosting
from weft.learn.trees.boosted.ranking import LambdaRank
from weft.learn.trees.growth.binning import MOST
from weft.learn.workers.joint_fit import refuse_workers

Array = np.ndarray[Any, Any]

HIGHEST = 30  # grades beyond which gains of 2 ** y say nothing


@takes_frames
class GradientBoostingRanker(GradientBoosting):
    """Boosted trees that put the rows of a query in order (LambdaMART on NDCG).

    `fit(X, y, qid)` takes a grade of 0 or more for each row, and the query that it belongs to. `predict` gives numbers
    that are larger for rows that come first. Parameters are those of GradientBoostingRegressor; `truncation` is how
    many of the first places count.
    """

    def __init__(
        self,
        *,
        learning_rate: float = 0.1,
        n_estimators: int = 100,
        truncation: int = 30,
        subsample: float = 1.0,
        min_samples_split: float = 2,
        min_samples_leaf: float = 20,
        min_weight_fraction_leaf: float = 0.0,
        max_depth: int | None = 6,
        min_impurity_decrease: float = 0.0,
        random_state: Any = None,
        max_features: Any = None,
        max_leaf_nodes: int | None = None,
        warm_start: bool = False,
        max_bins: int = MOST,
        l2_regularization: float = 0.0,
        categorical_features: Any = "from_dtype",
        monotonic_cst: Any = None,
        interaction_cst: Any = None,
        n_jobs: int | None = None,
    ):
        self.learning_rate = learning_rate
        self.n_estimators = n_estimators
        self.truncation = truncation
        self.subsample = subsample
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_depth = max_depth
        self.min_impurity_decrease = min_impurity_decrease
        self.random_state = random_state
        self.max_features = max_features
        self.max_leaf_nodes = max_leaf_nodes
        self.warm_start = warm_start
        self.max_bins = max_bins
        self.l2_regularization = l2_regularization
        self.categorical_features = categorical_features
        self.monotonic_cst = monotonic_cst
        self.interaction_cst = interaction_cst
        self.n_jobs = n_jobs

    init = None
    ccp_alpha = 0.0
    n_iter_no_change = None

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, qid: Any = None, sample_weight: Any = None, monitor: Any = None
    ) -> Self:
        """Fit trees to rows X, their grades y and the queries `qid` they belong to; without them all are of one."""
        refuse_workers(self, " that ranks")
        inputs.check_count("truncation", self.truncation, least=1)
        self._queries = None if qid is None else np.asarray(qid)
        try:
            super().fit(X, y, sample_weight, monitor)
        finally:
            del self._queries
        return self

    def _encoded(self, y: Array, weights: Array) -> Array:
        bad = ~((y >= 0) & (y <= HIGHEST))
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(f"grades must be from 0 to {HIGHEST}, got {y[row]:g} in row {row}")
        queries = np.zeros(len(y), int) if self._queries is None else self._queries
        if queries.shape != y.shape:
            raise ValueError(f"qid must have one query for each of {len(y)} rows, got shape {queries.shape}")
        grades: Array = y.astype(np.float64)
        self._loss = LambdaRank(queries, grades, int(self.truncation))
        return grades

    def predict(self, X: Any) -> Array:
        """Return a number for each row; of one query, larger ones come first."""
        return self._predict_raw(X)[:, 0]

    def score(self, X: Any, y: Any, qid: Any = None) -> float:
        """Return the mean NDCG of the queries that have rows of different grades."""
        y, found = np.asarray(y), self.predict(X)
        queries = np.zeros(len(y), int) if qid is None else np.asarray(qid)
        scores = []
        for query in np.unique(queries):
            inside = queries == query
            if len(np.unique(y[inside])) > 1:
                gains = np.exp2(y[inside].astype(np.float64)) - 1
                scores.append(ndcg_score([gains], [found[inside]], k=self.truncation))
        return float(np.mean(scores)) if scores else 1.0
