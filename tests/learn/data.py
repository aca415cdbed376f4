"""Small tables with planted models, and the objectives that fits are judged by."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import logsumexp

Array = np.ndarray[Any, Any]


def classes(
    rows: int = 300, columns: int = 8, count: int = 2, seed: int = 0, noise: float = 1.0
) -> tuple[Array, Array]:
    """Rows, and classes that depend on them, with noise."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((rows, columns))
    scores = X @ random.standard_normal((columns, count)) + noise * random.gumbel(size=(rows, count))
    y = scores.argmax(axis=1)
    y[:count] = np.arange(count)  # each class at least once
    return X, y


def numbers(rows: int = 300, columns: int = 8, seed: int = 0) -> tuple[Array, Array]:
    """Rows, and a target that depends on half of their columns."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((rows, columns))
    coef = random.standard_normal(columns) * (np.arange(columns) % 2)
    return X, X @ coef + 0.5 * random.standard_normal(rows) + 3.0


def wide(rows: int = 2000, columns: int = 5000, per_row: int = 10, seed: int = 0) -> tuple[Any, Array]:
    """A sparse table wider than tall, of unit rows, some columns far more common than others."""
    random = np.random.default_rng(seed)
    indices = (columns * random.random((rows, per_row)) ** 3).astype(np.int32)
    data = np.full(rows * per_row, per_row**-0.5)
    indptr = np.arange(0, rows * per_row + 1, per_row)
    X = sparse.csr_matrix((data, indices.ravel(), indptr), shape=(rows, columns))
    X.sum_duplicates()
    scores = X @ (3 * random.standard_normal(columns))
    return X, (scores + random.logistic(size=rows) > 0).astype(int)


def logistic_objective(
    model: Any, X: Any, y: Array, *, C: float = 1.0, l1_ratio: float = 0.0, weights: Array | None = None
) -> float:
    """scikit-learn's objective of a fitted LogisticRegression."""
    w = np.ones(len(y)) if weights is None else weights
    margins = X @ model.coef_.T.astype(np.float64) + model.intercept_
    if margins.shape[1] == 1:
        sign = np.where(y == model.classes_[1], 1, -1)
        losses = np.logaddexp(0, -sign * margins[:, 0])
    else:
        losses = logsumexp(margins, axis=1) - margins[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    coef = model.coef_.astype(np.float64)
    penalty = l1_ratio * np.abs(coef).sum() + (1 - l1_ratio) / 2 * (coef**2).sum()
    return float(C * (w @ losses) + penalty)


def elastic_objective(model: Any, X: Any, y: Array, alpha: float, l1_ratio: float) -> float:
    """scikit-learn's objective of a fitted ElasticNet."""
    off = y - X @ model.coef_ - model.intercept_
    coef = model.coef_
    penalty = l1_ratio * np.abs(coef).sum() + (1 - l1_ratio) / 2 * (coef**2).sum()
    return float(off @ off / (2 * len(y)) + alpha * penalty)


def hinge_objective(model: Any, X: Any, y: Array, *, C: float, power: int) -> float:
    """scikit-learn's objective of a fitted LinearSVC with an L2 penalty and intercept_scaling=1."""
    sign = np.where(y == model.classes_[1], 1, -1)
    short = np.maximum(0, 1 - sign * (X @ model.coef_[0] + model.intercept_[0]))
    return float(C * (short**power).sum() + (model.coef_**2).sum() / 2 + model.intercept_[0] ** 2 / 2)
