"""Metrics: what a gradient must be multiplied with to point at the minimum. Exact, by class, or by coordinate."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lapack

from weft.learn.solvers.problem import Problem

Array = np.ndarray[Any, Any]


class Curvature(Protocol):
    """Stands for the inverse of the second derivatives."""

    def solve(self, gradient: Array) -> Array: ...


class CholeskyCurvature:
    """All second derivatives at once: a full Newton step."""

    def __init__(self, hessian: Array):
        diagonal = hessian.diagonal()
        self._scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))
        scaled = hessian * self._scale * self._scale[:, None]
        self._factor = _factor(scaled)

        self._norm = float(np.abs(scaled).sum(axis=0).max())

    @property
    def reciprocal_condition(self) -> float:
        """How near to singular the matrix is, whatever the units of its columns."""
        rcond, _ = lapack.dpocon(self._factor[0], self._norm, uplo="L")
        return float(rcond)

    def rounding_gap(self, solution: Array, eps: float) -> float:
        """What it may cost that the matrix is E away from the true one: w·E·H⁻¹·E·w / 2, for E of 3 roundings."""
        scaled = solution / self._scale
        return float(5 * eps**2 * self._norm * (scaled @ scaled) / self.reciprocal_condition)

    def solve(self, gradient: Array) -> Array:
        step: Array = self._scale * cho_solve(self._factor, self._scale * gradient, check_finite=False)
        return step


class CurvatureByOutput:
    """Second derivatives inside each class; those between classes are left to the quasi-Newton part."""

    def __init__(self, parts: list[CholeskyCurvature]):
        self._parts = parts

    def solve(self, gradient: Array) -> Array:
        columns = gradient.reshape(-1, len(self._parts))
        steps = [part.solve(column) for part, column in zip(self._parts, columns.T, strict=True)]
        return np.stack(steps, axis=1).ravel()


class DiagonalCurvature:
    """Each coordinate alone: for tables too wide for anything else."""

    def __init__(self, diagonal: Array):
        # A column that no row uses has no slope either.
        self._inverse = 1 / np.where(diagonal > 0, diagonal, 1)

    def solve(self, gradient: Array) -> Array:
        step: Array = self._inverse * gradient
        return step


def curvature_at(problem: Problem, point: Array, kind: str) -> Curvature:
    """The curvature of this kind ("full", "output" or "diagonal") at a point."""
    outputs = range(problem.loss.outputs)
    if kind == "diagonal":
        return DiagonalCurvature(problem.diagonal(point))
    if kind == "output":
        return CurvatureByOutput([CholeskyCurvature(problem.hessian(point, k, k)) for k in outputs])
    return CholeskyCurvature(problem.whole_hessian(point))


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
