"""Second derivatives H of a problem as solvers use them: the Newton step H⁻¹ g of a gradient g.

The whole Hessian, one block for each output, the same in the space of rows, or its diagonal alone.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack

from weft.learn.solvers.problem import Problem
from weft.learn.solvers.row_space import RowCurvature, RowCurvatureByOutput

Array = np.ndarray[Any, Any]


class Curvature(Protocol):
    """Second derivatives H, exact or approximate, that a gradient is divided by."""

    def solve(self, gradient: Array) -> Array:
        """Return H⁻¹ g."""
        ...


class CholeskyCurvature:
    """The whole Hessian, factorised: a full Newton step. Rows and columns are scaled to a diagonal of ones."""

    def __init__(self, hessian: Array):
        diagonal = hessian.diagonal()
        self._scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))
        scaled = hessian * self._scale * self._scale[:, None]
        self._factor = _factor(scaled)
        self._norm = float(np.abs(scaled).sum(axis=0).max())

    @property
    def reciprocal_condition(self) -> float:
        """The reciprocal condition number in the 1-norm, independent of the units of the columns."""
        rcond, _ = lapack.dpocon(self._factor[0], self._norm, uplo="L")
        return float(rcond)

    def rounding_gap(self, solution: Array, eps: float) -> float:
        """Return the gap that rounding errors E of the matrix may cause: wᵀ E H⁻¹ E w / 2, for E of 3 roundings."""
        scaled = solution / self._scale
        return float(5 * eps**2 * self._norm * (scaled @ scaled) / self.reciprocal_condition)

    def solve(self, gradient: Array) -> Array:
        step: Array = self._scale * cho_solve(self._factor, self._scale * gradient, check_finite=False)
        return step


class CurvatureByOutput:
    """One Hessian for each output; second derivatives between outputs are left to the quasi-Newton updates."""

    def __init__(self, parts: list[CholeskyCurvature]):
        self._parts = parts

    def solve(self, gradient: Array) -> Array:
        columns = gradient.reshape(-1, len(self._parts))
        steps = [part.solve(column) for part, column in zip(self._parts, columns.T, strict=True)]
        return np.stack(steps, axis=1).ravel()


class DiagonalCurvature:
    """The diagonal of the Hessian, for tables too wide for a matrix."""

    def __init__(self, diagonal: Array):
        # A column that no row uses has a gradient of zero: any divisor will do.
        self._inverse = 1 / np.where(diagonal > 0, diagonal, 1)

    def solve(self, gradient: Array) -> Array:
        step: Array = self._inverse * gradient
        return step


class FlatCurvature:
    """The diagonal of the Hessian H, beside directions N in which margins do not change: along these H is exact.

    There penalties alone curve the objective, far less than a diagonal says, and steps by the diagonal would take
    dozens of passes. With P = I - N (Nᵀ H N)⁻¹ (H N)ᵀ, H⁻¹ is about P D⁻¹ Pᵀ + N (Nᵀ H N)⁻¹ Nᵀ.
    """

    def __init__(self, diagonal: Array, flat: Any, penalties: Array):
        self._diagonal = DiagonalCurvature(diagonal)
        self._flat = flat
        self._bent = flat.multiply(penalties[:, None]).tocsr()  # H N
        self._factor = cho_factor((flat.T @ self._bent).toarray(), lower=True)

    def solve(self, gradient: Array) -> Array:
        whole = gradient.reshape(self._flat.shape[0], -1)
        along = cho_solve(self._factor, self._flat.T @ whole)
        rest = self._diagonal.solve((whole - self._bent @ along).ravel()).reshape(whole.shape)
        step: Array = rest + self._flat @ (along - cho_solve(self._factor, self._bent.T @ rest))
        return step.ravel()


def curvature_at(problem: Problem, point: Array, kind: str) -> Curvature:
    """Return the curvature of a kind ("full", "output", "rows" or "diagonal") at a point."""
    outputs = range(problem.loss.outputs)
    if kind == "rows":
        return _in_row_space(problem, point)
    if kind == "diagonal":
        return _diagonal(problem, point)
    if kind == "output":
        return CurvatureByOutput([CholeskyCurvature(problem.hessian(point, k, k)) for k in outputs])
    return CholeskyCurvature(problem.whole_hessian(point))


def _diagonal(problem: Problem, point: Array) -> Curvature:
    if problem.flat is None:
        return DiagonalCurvature(problem.diagonal(point))
    penalties = np.full(problem.flat.shape[0], problem.l2)
    if problem.intercept:
        penalties[-1] = problem.b_l2
    return FlatCurvature(problem.diagonal(point), problem.flat, penalties)


def _in_row_space(problem: Problem, point: Array) -> Curvature:
    """Return the curvature of a wide table, one output after the other."""
    curvatures = np.concatenate([problem.curvatures(point, block) for block in problem.table.blocks()])
    parts = [
        RowCurvature(problem, problem.row_products, curvatures[:, k, k]) for k in range(problem.loss.outputs)
    ]
    return parts[0] if len(parts) == 1 else RowCurvatureByOutput(parts)


def _factor(matrix: Array) -> Any:
    """Return a Cholesky factor of a matrix, or of one slightly more positive where two columns are equal."""
    lift = 0.0
    while True:
        try:
            raised = matrix + lift * np.eye(len(matrix)) if lift else matrix
            return cho_factor(raised, lower=True, check_finite=False)
        except LinAlgError:
            lift = max(1e-12, 10 * lift)
            if lift > 1:
                raise
