"""The learning rate of boosting where none is asked for: larger where the rows tell more."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from weft.learn.trees.boosted.losses import BoostingLoss
from weft.learn.workers.group import sum_over_workers

Array = np.ndarray[Any, Any]

LEAST, MOST = 0.1, 0.2
KNOWN = 2_000.0  # the sum of second derivatives from which on the rate grows
ROUNDS = 100  # beyond which steps need not be larger to arrive


def automatic_rate(loss: BoostingLoss, raw: Array, y: Array, weights: Array, rounds: int) -> float:
    """Return the rate for rows whose raw predictions are the constant that boosting starts from.

    What rows tell is the sum of their second derivatives, of the output where it is least: a row of a number counts as
    one, of two even classes as a quarter, and of rare classes their own rows count. A hundred careful steps leave much
    untold of many rows, and careless ones learn the noise of few.
    """
    if loss.curved is None or hasattr(loss, "leaf"):
        return LEAST
    known = KNOWN * mean_weight(weights)
    (most,) = sum_over_workers([float(weights.sum()) * loss.curved])
    if most <= known or rounds >= 2 * ROUNDS:
        return LEAST
    _, second, _ = loss.derivatives(raw, y, weights)
    (told,) = sum_over_workers([second.sum(axis=0, dtype=np.float64)])
    rate = min(MOST, LEAST * sqrt(float(told.min()) / known))
    return max(LEAST, rate * min(1.0, ROUNDS / rounds))


def mean_weight(weights: Array) -> float:
    """Return what rows of any weight weigh on average, one at most: weights of one and more count rows."""
    heavy, many = sum_over_workers([float(weights.sum()), float((weights > 0).sum())])
    return min(1.0, float(heavy) / max(float(many), 1.0))
