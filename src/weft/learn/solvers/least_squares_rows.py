"""Least squares of a table with fewer rows than columns, in the space of its rows.

With X centred, D the roots of the weights and one alpha for each target, the solution is W = Xᵀ D A, where

    (D X Xᵀ D + alpha I) A = D Y

Conjugate gradients need no matrix: each step reads the table twice. Rows that are nearly orthogonal, as those of very
wide tables are, take a few steps. Where more are needed than the matrix of products would cost, it is computed, and
its factor makes the steps that remain few. The residual r of a point proves how far it is from the least: by |r|² / 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.solvers.curvature import CholeskyCurvature
from weft.learn.solvers.history import History
from weft.learn.solvers.least_squares import LeastSquares
from weft.learn.tables.tables import DenseTable

Array = np.ndarray[Any, Any]

ROWS_A_STEP = 20  # rows for each step whose products with all others cost as much as the step
FEWEST_STEPS = 5
SMALL_WORK = (
    2_000_000_000  # multiplications up to which the matrix is computed at once, for all the digits there are
)
EXACT = 1e-14  # the gap that is then gone for
MOST_REFINED = 30  # steps with a factor; rounding ends them earlier


def solve_rows(
    problem: LeastSquares, *, tol: float, max_iter: int, history: History
) -> tuple[Array, Array, bool]:
    """Return W, b and whether all targets converged."""
    space = _RowSpace(problem)
    budget = min(max_iter, max(FEWEST_STEPS, problem.table.rows // ROWS_A_STEP))
    small = problem.table.rows**2 * problem.table.columns <= SMALL_WORK
    outputs = problem.targets.shape[1]
    w, b, good = np.zeros((problem.table.columns, outputs)), np.zeros(outputs), True
    for k, alpha in enumerate(problem.alpha):
        search = _ConjugateGradients(space, problem.targets[:, k], float(alpha))
        budget -= 0 if small else search.run(tol, budget, None)
        if small or not search.near(tol):
            search.restart()
            search.run(min(tol, EXACT) if small else tol, MOST_REFINED, space.factor(float(alpha)))
        w[:, k], b[k] = search.w, search.intercept()
        value, gap = search.value(), search.gap()
        eps = float(np.finfo(problem.table.dtype).eps)
        good = good and (history.add(value, gap) <= tol or gap <= eps * search.null)
    return w, b, good


class _RowSpace:
    """The table as an operator on vectors of its rows, weighted and, where there is an intercept, centred."""

    def __init__(self, problem: LeastSquares):
        assert isinstance(problem.table, DenseTable)
        self.table = problem.table
        self.root = np.sqrt(problem.weights.astype(np.float64))
        length = float(np.linalg.norm(self.root))
        self.ones = self.root / length if problem.intercept and length > 0 else None
        self._products: Array | None = None
        self._factors: dict[float, CholeskyCurvature] = {}

    def centred(self, values: Array) -> Array:
        """Return values of rows, times the roots of weights, without their weighted mean."""
        return values if self.ones is None else values - (self.ones @ values) * self.ones

    def columns(self, a: Array) -> Array:
        """Return Xᵀ D a."""
        some = (self.root * a).astype(self.table.dtype)
        product: Array = (self.table.values.T @ some).astype(np.float64)
        shift = self.table.shift
        return product - float(some.sum(dtype=np.float64)) * shift if shift.any() else product

    def rows(self, w: Array) -> Array:
        """Return D X w."""
        return self.root * self.table.times(slice(None), w.astype(self.table.dtype))

    def factor(self, alpha: float) -> CholeskyCurvature:
        if self._products is None:
            values = self.table.values - self.table.shift if self.table.shift.any() else self.table.values
            products = (values @ values.T).astype(np.float64) * self.root * self.root[:, None]
            if self.ones is not None:
                products -= np.outer(products @ self.ones, self.ones)
                products -= np.outer(self.ones, self.ones @ products)
            self._products = products
        if alpha not in self._factors:
            self._factors = {alpha: CholeskyCurvature(self._products + alpha * np.eye(len(self.root)))}
        return self._factors[alpha]


class _ConjugateGradients:
    """The search for one target's A, with W and its margins kept beside it."""

    def __init__(self, space: _RowSpace, target: Array, alpha: float):
        self.space, self.alpha = space, alpha
        self.target = space.root * target
        self.goal = space.centred(self.target)
        self.null = float(self.goal @ self.goal) / 2
        self.a = np.zeros(len(target))
        self.w = np.zeros(space.table.columns)
        self.margins = np.zeros(len(target))  # D X w, not centred
        self.residual = self.goal.copy()

    def restart(self) -> None:
        """Take W and the residual anew from A: many steps add up rounding errors."""
        self.w = self.space.columns(self.a)
        self.margins = self.space.rows(self.w)
        self.residual = self.goal - self.space.centred(self.margins) - self.alpha * self.a

    def run(self, tol: float, steps: int, factor: CholeskyCurvature | None) -> int:
        """Take up to `steps` steps and return their number; without a factor, end where too many would follow."""
        solved = self._scaled(factor)
        direction, slope = solved, float(self.residual @ solved)
        first = self.gap()
        for step in range(steps):
            if self.near(tol) or not slope > 0:
                return step
            if factor is None and step >= FEWEST_STEPS:
                rate = (self.gap() / first) ** (1 / step)
                if rate >= 1 or np.log(tol * self.value() / self.gap()) / np.log(rate) > steps - step:
                    return step
            move = self.space.columns(direction)
            seen = self.space.rows(move)
            push = self.space.centred(seen) + self.alpha * direction
            length = slope / float(direction @ push)
            self.a += length * direction
            self.w += length * move
            self.margins += length * seen
            self.residual -= length * push
            solved = self._scaled(factor)
            before, slope = slope, float(self.residual @ solved)
            direction = solved + slope / before * direction
        return steps

    def _scaled(self, factor: CholeskyCurvature | None) -> Array:
        return self.residual if factor is None else self.space.centred(factor.solve(self.residual))

    def gap(self) -> float:
        return float(self.residual @ self.residual) / 2

    def value(self) -> float:
        """Return the objective: the residual is the error of the rows less alpha A."""
        error = self.residual + self.alpha * self.a
        return float(error @ error + self.alpha * (self.w @ self.w)) / 2

    def near(self, tol: float) -> bool:
        return self.gap() <= tol * self.value()

    def intercept(self) -> float:
        space = self.space
        if space.ones is None:
            return 0.0
        return float(space.ones @ (self.target - self.margins)) / float(np.linalg.norm(space.root))
