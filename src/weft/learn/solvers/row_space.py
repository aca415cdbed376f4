"""Second derivatives of a table with fewer rows than columns, in the space of its rows.

With K = X Xᵀ, computed once, and h the second derivatives of the losses by the margins, the Newton step of an L2
penalty needs a matrix of the order of the rows only (Woodbury):

    (Xᵀ diag(h) X + l2 I)⁻¹ g = (g - Xᵀ R (R K R + l2 I)⁻¹ R X g) / l2,   R = diag(sqrt(h))

K may be as inexact as the table's own type: it decides how good a step is, and gradients come from the table itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from weft.learn.solvers.problem import Problem
from weft.learn.tables.tables import Table

Array = np.ndarray[Any, Any]

NEWTON_STEPS = 50  # most steps of Newton's method on the matrix of products alone
CLOSE = 1e-3  # share of the tolerance to which they go: they cost little
SMALL = 1e-10  # second derivatives of a row, as a share of its weight, that count as none


class RowCurvature:
    """One output's second derivatives, factorised in the space of rows; the intercept, if any, is last."""

    def __init__(self, problem: Problem, products: Array, curvature: Array):
        self._problem = problem
        self._h = curvature.astype(np.float64)
        self._root = np.sqrt(self._h)
        inner = products * self._root * self._root[:, None]
        inner[np.arange(len(inner)), np.arange(len(inner))] += problem.l2
        self._factor = cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)
        if problem.intercept:
            # The last column of the matrix is Xᵀ h, and below it is the sum of h.
            self._cross = transposed_times(problem.table, self._h)
            self._border = self._solve_columns(self._cross)
            self._corner = float(self._h.sum()) + problem.b_l2 - float(self._cross @ self._border)

    def solve(self, gradient: Array) -> Array:
        """Return H⁻¹ g."""
        if not self._problem.intercept:
            return self._solve_columns(gradient)
        inner = self._solve_columns(gradient[:-1])
        b = (gradient[-1] - float(self._cross @ inner)) / max(self._corner, 1e-300)
        return np.append(inner - b * self._border, b)

    def _solve_columns(self, gradient: Array) -> Array:
        table, root = self._problem.table, self._root
        inside = cho_solve(self._factor, root * times(table, gradient), check_finite=False)
        step: Array = (gradient - transposed_times(table, root * inside)) / self._problem.l2
        return step


class RowCurvatureByOutput:
    """One curvature in the space of rows for each output."""

    def __init__(self, parts: list[RowCurvature]):
        self._parts = parts

    def solve(self, gradient: Array) -> Array:
        columns = gradient.reshape(-1, len(self._parts))
        steps = [
            part.solve(np.ascontiguousarray(column))
            for part, column in zip(self._parts, columns.T, strict=True)
        ]
        return np.stack(steps, axis=1).ravel()


def times(table: Table, coef: Array) -> Array:
    """Return X @ coef of all rows, in float64."""
    part = coef.astype(table.dtype)
    return np.concatenate([table.times(block, part) for block in table.blocks()]).astype(np.float64)


def transposed_times(table: Table, values: Array) -> Array:
    """Return X.T @ values of all rows, in float64."""
    part = values.astype(table.dtype)
    total: Array = sum(table.transposed_times(block, part[block]) for block in table.blocks())  # type: ignore[assignment]
    return total


def minimum_of_products(problem: Problem, products: Array, tol: float) -> Array:
    """Return the minimum of a problem of one output by its products of rows alone, as a point of the whole problem.

    The minimum lies in the span of the rows: w = Xᵀ a, margins m = K a + b. Newton's method on a is a sequence of
    weighted least squares, (R K R + l2 I) u = R (m - b) - s / R with slopes s, and the next a is R u. A penalised
    intercept counts as one more column.
    """
    y, weights, l2 = problem.y, problem.weights, problem.l2
    own_column = problem.intercept and problem.b_l2 > 0
    kernel = products + l2 / problem.b_l2 if own_column else products
    free = problem.intercept and not own_column
    least = SMALL * np.maximum(weights.astype(np.float64), 1e-30)
    a, b = np.zeros(len(y)), 0.0
    margins = np.zeros(len(y))

    def value(margins: Array, a: Array, inside: Array) -> tuple[float, Array]:
        loss, slope = problem.loss.value_and_slope(margins.astype(y.dtype), y, weights)
        return loss + l2 / 2 * float(a @ inside), slope.astype(np.float64)

    inside = np.zeros(len(y))  # K a
    best, slope = value(margins, a, inside)
    for _ in range(NEWTON_STEPS):
        h = problem.loss.curvatures(margins.astype(y.dtype), y, weights).astype(np.float64)
        root = np.sqrt(np.maximum(h, least))
        matrix = kernel * root * root[:, None]
        matrix[np.arange(len(y)), np.arange(len(y))] += l2
        factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        goals = np.stack([root * margins - slope / root, root], axis=1)
        solved = root[:, None] * cho_solve(factor, goals, check_finite=False)
        next_b = float(solved[:, 0].sum() / max(solved[:, 1].sum(), 1e-300)) if free else 0.0
        next_a = solved[:, 0] - next_b * solved[:, 1] if free else solved[:, 0]
        next_inside = kernel @ next_a
        fall = float((slope + l2 * a) @ (inside - next_inside)) + float(slope.sum()) * (b - next_b)
        length = 1.0
        while length > 1e-3:
            near = a + length * (next_a - a), inside + length * (next_inside - inside)
            b_near = b + length * (next_b - b)
            found, slope_near = value(near[1] + b_near, *near)
            if found <= best - 1e-4 * length * fall:
                break
            length /= 2
        else:
            break
        a, inside, b, slope, best = near[0], near[1], b_near, slope_near, found
        margins = inside + b
        if fall <= CLOSE * tol * abs(best):
            break
    w = transposed_times(problem.table, a)
    if own_column:
        b = float(a.sum()) * l2 / problem.b_l2
    return np.append(w, b) if problem.intercept else w
