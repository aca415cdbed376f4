"""Least squares with or without an L2 penalty, for several targets at once.

    1/2 sum_i weights_i * |x_i W + b - y_i|² + 1/2 * sum_k alpha_k * |W_k|²

Tall tables: one pass for the normal equations, then passes that correct what rounding did to the solution. Wide ones:
the same in the space of rows, or conjugate gradients where both sides are long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack
from scipy.sparse.linalg import LinearOperator, cg

from weft.learn.history import History
from weft.learn.metrics import Cholesky
from weft.learn.tables import DenseTable, Table
from weft.learn.threads import Crew

Array = np.ndarray[Any, Any]

CORRECTIONS = 4  # passes after the first solution, at most


@dataclass(frozen=True)
class LeastSquares:
    """Data, penalties and the threads that read the data."""

    table: Table
    targets: Array  # (rows, outputs), float64 or the table's type
    weights: Array
    alpha: Array  # (outputs,)
    intercept: bool
    crew: Crew

    def gradient(self, w: Array, b: Array) -> tuple[Array, Array, Array]:
        """Objectives (outputs,), and the gradients by W (columns, outputs) and b (outputs,)."""
        dtype = self.table.dtype

        def part(block: slice) -> tuple[Array, Array, Array]:
            off = self.table.times(block, w.astype(dtype)) + b.astype(dtype) - self.targets[block]
            slope = off * self.weights[block][:, None]
            losses = np.einsum("ik,ik->k", slope, off, dtype=np.float64) / 2
            return losses, self.table.transposed_times(block, slope), slope.sum(axis=0, dtype=np.float64)

        losses, w_gradient, b_gradient = self.crew.total(part, self.table.blocks())
        losses += self.alpha * np.einsum("jk,jk->k", w, w) / 2
        return losses, w_gradient + self.alpha * w, b_gradient * self.intercept

    def normal_matrix(self) -> Array:
        """Second derivatives without the penalty; the intercept is last."""

        def part(block: slice) -> tuple[Array, Array]:
            return self.table.gram(block, self.weights[block])

        gram: Array
        gram, cross = self.crew.total(part, self.table.blocks())
        if not self.intercept:
            return gram
        whole = self.weights.sum(dtype=np.float64)
        return np.block([[gram, cross[:, None]], [cross[None, :], np.full((1, 1), whole)]])


def solve_normal(
    problem: LeastSquares, matrix: Array, *, tol: float, history: History
) -> tuple[Array, Array]:
    """W and b by Cholesky, corrected until the gap is within `tol` or rounding stops it."""
    columns, outputs = problem.table.columns, problem.targets.shape[1]
    w, b = np.zeros((columns, outputs)), np.zeros(outputs)
    metrics = [Cholesky(_with_alpha(matrix, columns, alpha)) for alpha in _distinct(problem.alpha)]
    best = np.inf
    for _ in range(CORRECTIONS + 1):
        losses, w_gradient, b_gradient = problem.gradient(w, b)
        gradient = np.vstack([w_gradient, b_gradient[None]]) if problem.intercept else w_gradient
        step = np.stack([metrics[k % len(metrics)].solve(gradient[:, k]) for k in range(outputs)], axis=1)
        gap = float(np.einsum("jk,jk->", gradient, step)) / 2
        relative = history.add(float(losses.sum()), gap)
        if not gap < best / 4:
            break
        # Free of another pass: the step is known, and on a quadratic it can only help.
        w, b = w - step[:columns], b - step[columns] if problem.intercept else b
        if relative <= tol:
            break
        best = gap
    return w, b


def solve_rows(problem: LeastSquares, centre: Array) -> tuple[Array, Array]:
    """W and b of a wide dense table: as many unknowns as rows. `centre` is the weighted mean of the columns."""
    assert isinstance(problem.table, DenseTable)
    root = np.sqrt(problem.weights.astype(np.float64))[:, None]
    means = np.average(problem.targets, axis=0, weights=problem.weights) if problem.intercept else 0.0
    rows = (problem.table.values - centre) * root
    kernel = rows @ rows.T
    side = len(kernel)
    targets = (problem.targets - means) * root
    w = np.empty((problem.table.columns, targets.shape[1]))
    for k, alpha in enumerate(problem.alpha):
        w[:, k] = rows.T @ Cholesky(kernel + alpha * np.eye(side)).solve(targets[:, k])
    return w, means - centre @ w if problem.intercept else np.zeros(targets.shape[1])


def solve_gradients(
    problem: LeastSquares, *, tol: float, max_iter: int, history: History
) -> tuple[Array, Array, bool]:
    """W and b by conjugate gradients, scaled by the columns' sizes; for tables long on both sides."""
    columns, outputs = problem.table.columns, problem.targets.shape[1]
    w, b = np.zeros((columns, outputs)), np.zeros(outputs)
    side = columns + problem.intercept
    squares = _column_squares(problem)
    good = True
    for k in range(outputs):
        one = LeastSquares(
            problem.table,
            problem.targets[:, k : k + 1],
            problem.weights,
            problem.alpha[k : k + 1],
            problem.intercept,
            problem.crew,
        )
        start = one.gradient(np.zeros((columns, 1)), np.zeros(1))
        origin = _flat(one, start)

        def product(x: Array, one: LeastSquares = one, origin: Array = origin) -> Array:
            moved = one.gradient(x[:columns, None], x[columns:] if one.intercept else np.zeros(1))
            return _flat(one, moved) - origin

        diagonal = squares + np.append(np.full(columns, problem.alpha[k]), np.zeros(side - columns))
        inverse = 1 / np.where(diagonal > 0, diagonal, 1)
        scale = LinearOperator((side, side), matvec=lambda x, inverse=inverse: inverse * x, dtype=np.float64)
        # The energy of the error falls with the square of the residual.
        operator = LinearOperator((side, side), matvec=product, dtype=np.float64)
        x, state = cg(operator, -origin, rtol=0.1 * np.sqrt(tol), atol=0.0, maxiter=max_iter, M=scale)
        w[:, k], good = x[:columns], good and state == 0
        b[k] = x[columns] if problem.intercept else 0.0
        losses, *rest = one.gradient(w[:, k : k + 1], b[k : k + 1])
        left = _flat(one, (losses, *rest))
        history.add(float(losses[0]), float(left @ (inverse * left)) / 2)
    return w, b, good


def reciprocal_condition(matrix: Array) -> float:
    """How near to singular a matrix is, whatever the units of its columns; 0 where it is."""
    diagonal = matrix.diagonal()
    if not np.all(diagonal > 0):
        return 0.0
    scaled = matrix / np.sqrt(np.outer(diagonal, diagonal))
    factor, failed = lapack.dpotrf(scaled, lower=True)
    if failed:
        return 0.0
    rcond, _ = lapack.dpocon(factor, np.abs(scaled).sum(axis=0).max(), uplo="L")
    return float(rcond)


def _flat(problem: LeastSquares, parts: tuple[Array, ...]) -> Array:
    _, w_gradient, b_gradient = parts
    return np.append(w_gradient[:, 0], b_gradient if problem.intercept else [])


def _with_alpha(matrix: Array, columns: int, alpha: float) -> Array:
    raised = matrix.copy()
    raised[np.arange(columns), np.arange(columns)] += alpha
    return raised


def _distinct(alpha: Array) -> Array:
    """One penalty where all targets have the same, so that one factor serves all."""
    return alpha[:1] if np.all(alpha == alpha[0]) else alpha


def _column_squares(problem: LeastSquares) -> Array:
    def part(block: slice) -> tuple[Array]:
        return (problem.table.squares_times(block, problem.weights[block][:, None]),)

    (squares,) = problem.crew.total(part, problem.table.blocks())
    ones = [problem.weights.sum(dtype=np.float64)] if problem.intercept else []
    return np.append(squares.ravel(), ones)
