"""Minimises problems with an L1 penalty by Newton steps on the few columns in use.

    F(W, b) = f(W, b) + l1 * |W|_1,  f as in `problem`

A pass over all columns shows which coefficients may leave zero. The quadratic model of those columns, and of the
columns in use, is minimised by coordinate descent on its matrix; of a sparse table, on the columns themselves, which
hold fewer numbers than their products. The duality gap says when to stop. For a squared loss the model is exact, so
that the data is read a few times in all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.learn.solvers.history import History
from weft.learn.solvers.problem import Problem
from weft.learn.solvers.quadratic import minimise_quadratic
from weft.learn.tables.tables import SparseTable
from weft.learn.workers.group import current_workers, sum_over_workers

Array = np.ndarray[Any, Any]

ARMIJO = 1e-3  # share of the predicted decrease that a step must reach
STALE = 20  # steps that do not halve the gap, after which rounding is taken to allow no more
GROWTH = 4  # factor by which the columns of the model may grow from one step to the next
FIRST = 64  # columns of the first model, of a table with more
# The descent on the columns of a sparse table ends where further sweeps would gain less than this share of the first
# sweep's gain, times the gap: far from the minimum the model is no better, and near it a close solution saves passes.
CLOSE = 0.5
ENOUGH = 0.1  # or less than this share of the gap that is asked for
NEAR = 0.9  # share of l1 from which slopes of columns may well exceed it soon
SPARSE_SWEEPS = 50  # most sweeps over all columns of one model of a sparse table


@dataclass(frozen=True)
class L1Problem:
    """A smooth problem with an L1 penalty added."""

    smooth: Problem
    l1: float
    positive: bool = False
    b_l1: float = 0.0  # L1 penalty of the intercept, as in scikit-learn's LinearSVC
    weight: float = field(init=False)  # the sum of the weights of all workers' rows

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", self.smooth.weight())

    def penalty(self, at: Array) -> float:
        """Return l1 * |W|_1 + b_l1 * |b|_1."""
        w, b = self.smooth.split(at)
        return self.l1 * float(np.abs(w).sum()) + self.b_l1 * float(np.abs(b).sum())


@dataclass
class L1Iterate:
    """A point, its objective, and the derivatives that one pass over the data gave."""

    at: Array
    value: float
    gradient: Array  # of the smooth part
    slopes: Array  # derivatives of the loss by the margins, row by row
    margins: Any = None  # where a solver keeps them
    rest: float = np.inf  # an estimate of how far the objective is above the least, where a solver has one


def minimise_l1(
    problem: L1Problem, start: Array, *, tol: float, max_iter: int, history: History
) -> tuple[Array, bool]:
    """Return a point whose objective is within `tol` (relative) of the least, and whether that was reached."""
    models: _Models | _SparseModels = _SparseModels(problem) if _by_columns(problem) else _Models(problem)
    point = models.evaluate(start)
    width = models.first_width
    least, since = np.inf, 0
    floor = float(np.finfo(problem.smooth.table.dtype).eps) * problem.smooth.null_value()
    while True:
        gap = min(duality_gap(problem, point), point.rest)
        if history.add(point.value, gap) <= tol or gap <= floor:
            return point.at, True
        since = since + 1 if gap > least / 2 else 0
        least = min(gap, least)
        if len(history.steps) > max_iter or since > STALE:
            return point.at, False
        chosen = _choose(problem, point, width)
        width = GROWTH * len(chosen)
        move = models.step(point, chosen, gap, tol)
        ahead = _line_search(problem, models, point, move)
        if ahead is None:
            return point.at, history.gap <= 1e3 * float(np.finfo(problem.smooth.table.dtype).eps)
        point = ahead


def duality_gap(problem: L1Problem, point: L1Iterate) -> float:
    """Return how far the objective is above the better of two dual points: the slopes, scaled to be feasible or not."""
    smooth = problem.smooth
    w, _ = smooth.split(point.at)
    loss_gradient = point.gradient[: w.size] - smooth.l2 * w.ravel()
    size = -loss_gradient if problem.positive else np.abs(loss_gradient)
    most = float(size.max(initial=0.0))
    if problem.b_l1:  # the intercept counts as one more column, of ones
        most = max(most, float(np.abs(point.gradient[-1])) * problem.l1 / problem.b_l1)
    scales = [min(1.0, problem.l1 / most)] if most > 0 else [1.0]
    if smooth.l2 > 0:
        scales.append(1.0)
    bounds = []
    values = sum_over_workers(
        [smooth.loss.dual_value(scale * point.slopes, smooth.y, smooth.weights) for scale in scales]
    )
    for scale, value in zip(scales, values, strict=True):
        over = np.maximum(scale * size - problem.l1, 0)
        penalty = float(over @ over) / (2 * smooth.l2) if smooth.l2 > 0 else 0.0
        bounds.append(value - penalty)
    return max(point.value - float(max(bounds)), 0.0) + _intercept_slack(problem, point)


def _intercept_slack(problem: L1Problem, point: L1Iterate) -> float:
    """Return what the gap misses where slopes do not quite add up to zero, as the dual of a free intercept demands."""
    smooth = problem.smooth
    if not smooth.intercept or problem.b_l1:
        return 0.0
    push = point.gradient[-smooth.loss.outputs :]
    return float(push @ push) / max(problem.weight / 8, 1e-300)


class _Models:
    """Quadratic models of the smooth part on some columns.

    A squared loss has the same second derivatives everywhere: its products of columns are kept and added to.
    """

    first_width = FIRST

    def __init__(self, problem: L1Problem):
        self.problem = problem
        self._columns = np.empty(0, np.intp)
        self._products = np.empty((0, 0))
        self._sums = np.empty(0)

    def evaluate(self, at: Array) -> L1Iterate:
        """Return the point `at` with its objective and derivatives, by a pass over the data."""
        value, gradient, slopes = self.problem.smooth.value_gradient_and_slopes(at)
        return L1Iterate(at, value + self.problem.penalty(at), gradient, slopes)

    def along(self, point: L1Iterate, move: Array) -> Callable[[float], L1Iterate]:
        """Return the function that evaluates the point a part of `move` away."""
        return lambda length: self.evaluate(point.at + length * move)

    def step(self, point: L1Iterate, chosen: Array, gap: float, tol: float) -> Array:
        """Return the step from `point` to the minimum of the model on the columns `chosen`."""
        problem, smooth = self.problem, self.problem.smooth
        outputs = smooth.loss.outputs
        rows = np.concatenate([chosen, [smooth.table.columns]]) if smooth.intercept else chosen
        places = (rows[:, None] * outputs + np.arange(outputs)).ravel()
        matrix = self._matrix(point, chosen)
        penalised = places < smooth.table.columns * outputs
        l1 = np.where(penalised, problem.l1, problem.b_l1)
        current = point.at[places]
        # An error of the coefficients enters the gap linearly and the objective squared: solve the model closely.
        enough = 1e-3 * gap * min(1.0, gap / max(abs(point.value), 1e-300))
        w = minimise_quadratic(
            matrix, point.gradient[places], current, l1, penalised & problem.positive, enough
        )
        move = np.zeros_like(point.at)
        move[places] = w - current
        return move

    def _matrix(self, point: L1Iterate, chosen: Array) -> Array:
        smooth = self.problem.smooth
        if not smooth.loss.quadratic:
            return smooth.whole_hessian(point.at, chosen)
        self._grow(np.setdiff1d(chosen, self._columns))
        order = np.argsort(self._columns)
        places = order[np.searchsorted(self._columns, chosen, sorter=order)]
        matrix = self._products[np.ix_(places, places)]
        matrix[np.arange(len(chosen)), np.arange(len(chosen))] += smooth.l2
        if not smooth.intercept:
            return matrix
        cross = self._sums[places, None]
        return np.block([[matrix, cross], [cross.T, np.full((1, 1), self.problem.weight)]])

    def _grow(self, new: Array) -> None:
        """Add the products of new columns, with each other and with the columns already there."""
        if not len(new):
            return
        smooth, old = self.problem.smooth, len(self._columns)
        self._columns = np.concatenate([self._columns, new])

        def part(block: slice) -> tuple[Array, Array]:
            return smooth.table.cross_gram(block, smooth.weights[block], new, self._columns)

        products, sums = smooth.team.total(part, smooth.table.blocks())
        self._products = np.block([[self._products, products[:, :old].T], [products]])
        self._sums = np.concatenate([self._sums, sums])


def _by_columns(problem: L1Problem) -> bool:
    """Return whether models are minimised on the columns of a sparse table: one output, and no other worker's rows."""
    smooth = problem.smooth
    simple = smooth.loss.outputs == 1 and not smooth.loss.quadratic
    return simple and isinstance(smooth.table, SparseTable) and current_workers() is None


class _SparseModels:
    """Quadratic models of the smooth part on some columns of a sparse table, which are copied when they are needed.

    Margins are kept in float64 from point to point, and the descent itself moves them. It also tells how near the
    minimum is, long before slopes fit a dual point that proves it.
    """

    def __init__(self, problem: L1Problem):
        from weft.learn.kernels.columns import column_sizes  # here, because Numba may be missing

        smooth = problem.smooth
        assert isinstance(smooth.table, SparseTable)
        self.problem = problem
        self.first_width = columns = smooth.table.columns
        self._rows = smooth.table.values
        self._y, self._weights = smooth.y.astype(np.float64), smooth.weights.astype(np.float64)
        self._counts, self._squares = np.zeros(columns, np.int64), np.zeros(columns)
        column_sizes(self._rows.data, self._rows.indices, self._counts, self._squares)
        # Room for all columns: memory that is never written to costs nothing.
        self._values = np.empty(self._rows.nnz, self._rows.dtype)
        self._places = np.empty(self._rows.nnz, np.int32)
        self._taken = 0
        self._begin = np.full(columns, -1)
        self._state = np.empty((self._rows.shape[0], 2))
        self._left = np.inf  # what the last descent left to gain on its model

    def evaluate(self, at: Array) -> L1Iterate:
        """Return the point `at` with its objective and derivatives."""
        from weft.learn.kernels.columns import rows_along

        w, b = self.problem.smooth.split(at)
        margins = np.full(self._rows.shape[0], b[0], np.float64)
        if np.any(w):
            kept = self._rows
            rows_along(
                kept.data, kept.indices, kept.indptr, np.ascontiguousarray(w[:, 0], np.float64), margins
            )
        return self._evaluate(at, margins)

    def along(self, point: L1Iterate, move: Array) -> Callable[[float], L1Iterate]:
        """Return the function that evaluates the point a part of `move`, the last step, away."""

        def evaluate(length: float) -> L1Iterate:
            ahead = self._evaluate(point.at + length * move, point.margins + length * self._state[:, 0])
            if length == 1.0:
                ahead.rest = self._rest(point, ahead)
            return ahead

        return evaluate

    def step(self, point: L1Iterate, chosen: Array, gap: float, tol: float) -> Array:
        """Return a step from `point` to near the minimum of the model on `chosen`: nearer where the gap is small."""
        from weft.learn.kernels.columns import column_descent

        problem, smooth = self.problem, self.problem.smooth
        self._take(point, chosen)
        places = np.append(chosen, smooth.table.columns) if smooth.intercept else chosen
        start = point.at[places]
        w = start.copy()
        self._state[:, 0] = 0
        self._state[:, 1] = smooth.loss.curvatures(point.margins, self._y, self._weights)
        begin = self._begin[chosen]
        self._left = column_descent(
            (self._values, self._places, begin, begin + self._counts[chosen]),
            self._state,
            point.gradient[places],
            start,
            w,
            (problem.l1, smooth.l2, problem.b_l1, smooth.b_l2),
            smooth.intercept,
            problem.positive,
            ENOUGH * tol * point.value,
            CLOSE * min(1.0, gap / point.value),
            SPARSE_SWEEPS,
        )
        move = np.zeros_like(point.at)
        move[places] = w - start
        return move

    def _take(self, point: L1Iterate, chosen: Array) -> None:
        """Copy the columns `chosen`, unless they are, and those that may well be the next."""
        from weft.learn.kernels.columns import take_columns

        if not np.any(self._begin[chosen] < 0):
            return
        near = np.abs(point.gradient[: len(self._begin)]) > NEAR * self.problem.l1
        near[chosen] = True
        new = np.flatnonzero(near & (self._begin < 0))
        ends = self._taken + np.cumsum(self._counts[new])
        self._begin[new] = ends - self._counts[new]
        self._taken = int(ends[-1])
        places = np.full(len(self._begin), -1)
        places[new] = self._begin[new]
        kept = self._rows
        take_columns(kept.data, kept.indices, kept.indptr, places, self._values, self._places)

    def _rest(self, point: L1Iterate, ahead: L1Iterate) -> float:
        """Return an estimate of how far the objective is above the least after a whole step.

        Slopes differ from those of the model by v. Where the model is at its minimum, and curvatures C hold near by,
        no point lies lower by more than v · C⁻¹ · v / 2. The descent's own rest is added, and what columns that are at
        zero, but no longer should be, would gain one by one.
        """
        problem, smooth = self.problem, self.problem.smooth
        curvature = smooth.loss.curvatures(ahead.margins, self._y, self._weights)
        off = ahead.slopes - point.slopes - self._state[:, 1] * self._state[:, 0]
        rough = float(
            np.divide(off * off, curvature, out=np.full_like(off, np.inf), where=curvature > 0)[
                off != 0
            ].sum()
        )
        w, _ = smooth.split(ahead.at)
        gradient = ahead.gradient[: w.size]
        over = (-gradient if problem.positive else np.abs(gradient)) - problem.l1
        late = np.flatnonzero((over > 0) & (w[:, 0] == 0))
        own = self._squares[late] * curvature.mean() + smooth.l2
        return rough + self._left + float((over[late] ** 2 / np.maximum(own, 1e-300)).sum())

    def _evaluate(self, at: Array, margins: Array) -> L1Iterate:
        from weft.learn.kernels.columns import rows_times

        problem, smooth, kept = self.problem, self.problem.smooth, self._rows
        value, slopes = smooth.loss.value_and_slope(margins, self._y, self._weights)
        gradient = np.zeros(smooth.table.columns)
        rows_times(kept.data, kept.indices, kept.indptr, slopes, gradient)
        value, gradient = smooth.with_penalty(at, value, gradient, np.array([slopes.sum()]))
        return L1Iterate(at, value + problem.penalty(at), gradient, slopes, margins)


def _choose(problem: L1Problem, point: L1Iterate, width: int) -> Array:
    """Return the columns of the next model, about `width`: those in use, and those whose slope exceeds l1 most."""
    smooth = problem.smooth
    w, _ = smooth.split(point.at)
    gradient = point.gradient[: w.size].reshape(w.shape)
    slopes = (-gradient if problem.positive else np.abs(gradient)).max(axis=1)
    used = np.any(w != 0, axis=1)
    score = np.where(used, np.inf, slopes)
    steep = np.count_nonzero(slopes[~used] > problem.l1)
    wanted = int(max(FIRST, min(width, used.sum() + steep), 1.2 * used.sum()))
    if wanted >= len(score):
        return np.arange(len(score))
    best = np.argpartition(-score, wanted)[:wanted]
    # Columns well below the bound would stay at zero; the step of other columns may lift those near it.
    return np.sort(best[score[best] > 0.5 * problem.l1])


def _line_search(
    problem: L1Problem, models: _Models | _SparseModels, point: L1Iterate, move: Array
) -> L1Iterate | None:
    """Return the first of ever shorter steps that lowers the objective enough, or None."""
    noise = 4 * float(np.finfo(problem.smooth.table.dtype).eps) * abs(point.value)
    promise = float(point.gradient @ move) + problem.penalty(point.at + move) - problem.penalty(point.at)
    if promise > noise or not np.any(move):
        return None
    evaluate, length = models.along(point, move), 1.0
    for _ in range(30):
        trial = evaluate(length)
        # Within rounding of the value a step is accepted: the gap may still fall.
        if trial.value <= point.value + ARMIJO * length * promise + noise:
            return trial
        length /= 2
    return None
