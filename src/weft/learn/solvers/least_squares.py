"""Least squares with or without an L2 penalty, for several targets at once.

    1/2 sum_i weights_i * |x_i W + b - y_i|² + 1/2 * sum_k alpha_k * |W_k|²

Tall tables take one pass for the normal equations, then passes that correct the rounding error of the solution. Wide
tables are solved in the space of rows (`least_squares_rows`), by conjugate gradients where both sides are long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from weft.learn.solvers.curvature import CholeskyCurvature
from weft.learn.solvers.history import History, relative_gap
from weft.learn.tables.tables import Table, explain_sums
from weft.learn.threads import ThreadTeam
from weft.learn.workers.group import sum_over_workers

Array = np.ndarray[Any, Any]

CORRECTIONS = 4  # most passes after the first solution
REFINED = 3  # most continuations of conjugate gradients while the gap exceeds the tolerance
FEW = 50  # most steps of each continuation


@dataclass(frozen=True)
class LeastSquares:
    """Data and L2 penalties of least squares, and the threads that read the data."""

    table: Table
    targets: Array  # (rows, outputs), float64 or the table's type
    weights: Array  # (rows,)
    alpha: Array  # (outputs,)
    intercept: bool
    team: ThreadTeam

    def gradient(self, w: Array, b: Array) -> tuple[Array, Array, Array]:
        """Return the objectives (outputs,), and the gradients by W (columns, outputs) and b (outputs,)."""
        losses, w_gradient, b_gradient = self.team.total(
            lambda block: self._gradient_part(w, b, block), self.table.blocks()
        )
        if not np.isfinite(w_gradient).all():
            explain_sums(self.table)
        losses += self.alpha * np.einsum("jk,jk->k", w, w) / 2
        return losses, w_gradient + self.alpha * w, b_gradient * self.intercept

    def _gradient_part(self, w: Array, b: Array, block: slice) -> tuple[Array, Array, Array]:
        dtype = self.table.dtype
        off = self.table.times(block, w.astype(dtype)) + b.astype(dtype) - self.targets[block]
        slope = off * self.weights[block][:, None]
        losses = np.einsum("ik,ik->k", slope, off, dtype=np.float64) / 2
        return losses, self.table.transposed_times(block, slope), slope.sum(axis=0, dtype=np.float64)

    def normal_equations(self) -> NormalEquations:
        """Return the second derivatives without the penalty, and gradient and objective at zero, from one pass."""
        even = bool((self.weights == 1).all())
        matrix: Array
        matrix, cross, gradient, b_gradient, value = self.team.total(
            lambda block: self._normal_part(block, even), self.table.blocks()
        )
        if not np.isfinite(matrix).all():
            explain_sums(self.table)
        if self.intercept:
            whole = np.full((1, 1), sum_over_workers([self.weight()])[0])
            matrix = np.block([[matrix, cross[:, None]], [cross[None, :], whole]])
            gradient = np.vstack([gradient, b_gradient])
        return NormalEquations(matrix, gradient, value)

    def _normal_part(self, block: slice, even: bool) -> tuple[Any, ...]:
        """Return the summands of a block; `even`: all weights are 1."""
        weights, targets = self.weights[block], self.targets[block]
        slope = -targets if even else -targets * weights[:, None]
        return (
            *self.table.gram(block, None if even else weights),
            self.table.transposed_times(block, slope),
            slope.sum(axis=0, dtype=np.float64),
            -np.einsum("ik,ik->k", slope, targets, dtype=np.float64) / 2,
        )

    def weight(self) -> float:
        """Return the sum of the weights of this worker's rows."""
        return float(self.weights.sum(dtype=np.float64))


@dataclass(frozen=True)
class NormalEquations:
    """A quadratic in W and b without its penalty; the intercept is last.

    matrix = Xᵀ diag(weights) X,  gradient = -Xᵀ diag(weights) Y,  with a column of ones for the intercept
    """

    matrix: Array  # (columns + 1, columns + 1), or without the intercept
    gradient: Array  # (columns + 1, outputs), at zero
    value: Array  # (outputs,), at zero


def solve_normal(
    problem: LeastSquares, normal: NormalEquations, *, tol: float, history: History
) -> tuple[Array, Array]:
    """Return W and b by a Cholesky factor; more passes correct a rounding error that may exceed `tol`."""
    columns, outputs = problem.table.columns, problem.targets.shape[1]
    curvatures = [
        CholeskyCurvature(_with_alpha(normal.matrix, columns, alpha)) for alpha in _distinct(problem.alpha)
    ]
    best = -_steps(curvatures, normal.gradient)
    gained = -np.einsum("jk,jk->", normal.gradient, best) / 2
    eps = float(np.finfo(problem.table.dtype).eps)
    rounding = sum(curvatures[k % len(curvatures)].rounding_gap(w, eps) for k, w in enumerate(best.T))
    relative = history.add(float(normal.value.sum() - gained), rounding)
    gap = np.inf
    for _ in range(CORRECTIONS if relative > tol else 0):
        b = best[columns] if problem.intercept else np.zeros(outputs)
        losses, w_gradient, b_gradient = problem.gradient(best[:columns], b)
        gradient = np.vstack([w_gradient, b_gradient[None]]) if problem.intercept else w_gradient
        step = _steps(curvatures, gradient)
        before, gap = gap, float(np.einsum("jk,jk->", gradient, step)) / 2
        relative = history.add(float(losses.sum()), gap)
        if not gap < before / 4:
            break
        best = best - step  # costs no pass, and cannot raise a quadratic
        if relative <= tol:
            break
    return best[:columns], best[columns] if problem.intercept else np.zeros(outputs)


def solved(normal: NormalEquations, alpha: Array, columns: int) -> tuple[Array, Array]:
    """Return W and b of normal equations alone, without rows to correct the rounding error by."""
    curvatures = [CholeskyCurvature(_with_alpha(normal.matrix, columns, one)) for one in _distinct(alpha)]
    best = -_steps(curvatures, normal.gradient)
    return best[:columns], best[columns] if len(best) > columns else np.zeros(best.shape[1])


def _steps(curvatures: list[CholeskyCurvature], gradient: Array) -> Array:
    """Return H⁻¹ g for each target; one curvature serves all, or each has its own."""
    solved = [curvatures[k % len(curvatures)].solve(column) for k, column in enumerate(gradient.T)]
    return np.stack(solved, axis=1)


def solve_gradients(
    problem: LeastSquares, *, tol: float, max_iter: int, history: History
) -> tuple[Array, Array, bool]:
    """Return W, b and whether all targets converged, by conjugate gradients with a diagonal preconditioner."""
    columns, outputs = problem.table.columns, problem.targets.shape[1]
    w, b = np.zeros((columns, outputs)), np.zeros(outputs)
    side = columns + problem.intercept
    squares = _column_squares(problem)
    good = True
    for k in range(outputs):
        one = replace(problem, targets=problem.targets[:, k : k + 1], alpha=problem.alpha[k : k + 1])
        start = one.gradient(np.zeros((columns, 1)), np.zeros(1))
        origin = _flat(one, start)

        def product(x: Array, one: LeastSquares = one, origin: Array = origin) -> Array:
            return _flat(one, _gradient_at(one, x)) - origin

        diagonal = squares + np.append(np.full(columns, problem.alpha[k]), np.zeros(side - columns))
        inverse = 1 / np.where(diagonal > 0, diagonal, 1)
        scale = LinearOperator((side, side), matvec=lambda x, inverse=inverse: inverse * x, dtype=np.float64)
        # The gap falls with the square of the residual.
        operator = LinearOperator((side, side), matvec=product, dtype=np.float64)
        rtol = 0.1 * np.sqrt(tol)
        x, state = cg(operator, -origin, rtol=rtol, atol=0.0, maxiter=max_iter, M=scale)
        good = good and state == 0
        loss, gap = _gap(one, x, inverse)
        for _ in range(REFINED):  # the residual alone does not determine the gap
            relative = relative_gap(loss, gap)
            if state != 0 or relative <= tol:
                break
            rtol *= 0.5 * np.sqrt(tol / relative)
            nearer, _ = cg(operator, -origin, x, rtol=rtol, atol=0.0, maxiter=FEW, M=scale)
            less = _gap(one, nearer, inverse)
            if less[1] >= gap:
                break
            x, (loss, gap) = nearer, less
        w[:, k] = x[:columns]
        b[k] = x[columns] if problem.intercept else 0.0
        history.add(loss, gap)
    return w, b, good


def _gap(problem: LeastSquares, x: Array, inverse: Array) -> tuple[float, float]:
    """Return the objective at a point, and an estimate of its gap: gᵀ diag(H)⁻¹ g / 2."""
    parts = _gradient_at(problem, x)
    left = _flat(problem, parts)
    return float(parts[0][0]), float(left @ (inverse * left)) / 2


def _gradient_at(problem: LeastSquares, x: Array) -> tuple[Array, ...]:
    columns = problem.table.columns
    return problem.gradient(x[:columns, None], x[columns:] if problem.intercept else np.zeros(1))


def _flat(problem: LeastSquares, parts: tuple[Array, ...]) -> Array:
    _, w_gradient, b_gradient = parts
    return np.append(w_gradient[:, 0], b_gradient if problem.intercept else [])


def _with_alpha(matrix: Array, columns: int, alpha: float) -> Array:
    """Return the matrix with a penalty on the diagonal of the columns, not of the intercept."""
    raised = matrix.copy()
    raised[np.arange(columns), np.arange(columns)] += alpha
    return raised


def _distinct(alpha: Array) -> Array:
    """Return the penalties to factorise for: one where all targets have the same."""
    return alpha[:1] if np.all(alpha == alpha[0]) else alpha


def _column_squares(problem: LeastSquares) -> Array:
    """Return the diagonal of the second derivatives without the penalty; the intercept is last."""

    def part(block: slice) -> tuple[Array]:
        return (problem.table.squares_times(block, problem.weights[block][:, None]),)

    (squares,) = problem.team.total(part, problem.table.blocks())
    ones = sum_over_workers([problem.weight()]) if problem.intercept else []
    return np.append(squares.ravel(), ones)
