"""Dual coordinate ascent for wide sparse tables and for the hinge loss, until the duality gap is small.

    min  1/2 |w|² + sum_i weights_i * loss(y_i * (x_i w + b))

Each thread works on a copy of w and on its own share of the rows, which is drawn anew at every epoch. It assumes that
the steps of the other threads are nearly equal to its own (that they are equal is the safe rule of CoCoA+), so that the
sum of all steps is an ascent. If gaps grow all the same, the safe rule holds from then on. An intercept without a
penalty is a multiplier: the dual has one more constraint, and b moves after every round by its residual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import entr

from weft.learn.kernels import dual as dual_kernels
from weft.learn.kernels import loss as loss_kernels
from weft.learn.solvers.history import History
from weft.learn.tables.tables import DenseTable, SparseTable, explain_sums
from weft.learn.threads import ThreadTeam, add_up
from weft.learn.workers.group import sum_over_workers
from weft.learn.workers.joint_fit import checking

Array = np.ndarray[Any, Any]

CODES = {
    "logistic": dual_kernels.LOGISTIC,
    "squared_hinge": dual_kernels.SQUARED_HINGE,
    "hinge": dual_kernels.HINGE,
}
BUCKET = 32  # neighbouring rows visited together; fewer where there are few rows
ROUNDS = 4  # rounds of an epoch: after each, threads make their copies of w equal and a free intercept moves
LEGS = 16  # legs of a round: after each, threads make the commonest columns equal, where they disturb each other most
COMMON = 4096  # columns that count as commonest
LEAP = 1.5  # factor on the safe sum of threads' steps; any below 2 is an ascent in theory, too
EVERY = 10  # most epochs between certificates


@dataclass(frozen=True)
class Patience:
    """The epochs after which an ascent ends if it needs more than `more` others: another method is faster then."""

    epochs: int = 20
    more: float = 20

    @classmethod
    def without_end(cls) -> Patience:
        """Return the patience of an ascent that no other method can replace."""
        return cls(more=math.inf)


@dataclass(frozen=True)
class DualProblem:
    """Rows, targets of -1 and 1, weights divided by the L2 penalty, and the kind of intercept."""

    table: DenseTable | SparseTable
    y: Array
    weights: Array
    loss: str
    intercept: str  # "none", "free", or "penalised": a column of the value `scaling`
    scaling: float
    team: ThreadTeam


@dataclass
class Certificate:
    """A primal point, its objective, and the duality gap, which proves how close it is to the optimum."""

    w: Array
    b: float
    value: float
    gap: float


class DualAscent:
    """The state of one ascent: a dual variable for each row, and w, whose last place is the intercept."""

    def __init__(self, problem: DualProblem, random: np.random.RandomState):
        self.problem = problem
        table, dtype = problem.table, problem.table.dtype
        self.random = random
        self.code = CODES[problem.loss]
        self.squares = _row_squares(table)
        with checking():  # on all workers alike: each has the squares of its own rows only
            if not np.isfinite(self.squares).all():
                explain_sums(table)
        self.states = np.full(table.rows, -20.0 if problem.loss == "logistic" else 0.0, dtype)
        self.shares = np.zeros(table.rows, dtype)
        self.rests = np.zeros(table.rows, np.uint8)
        self.w = np.zeros(table.columns + 1, dtype)
        self.centre = 0.0
        self.bias = self._bias()
        self.legs = LEGS
        self.leap = LEAP if problem.team.size > 1 else 1.0
        self.stretch = problem.team.size / self.leap
        self.common = _commonest(table) if problem.team.size > 1 else np.empty(0, np.intp)
        self.copies = np.zeros(
            (problem.team.size, table.columns + 1) if problem.team.size > 1 else (0, 0), dtype
        )
        self.height = int(np.clip(table.rows // 2000, 1, BUCKET))

    def epoch(self) -> float:
        """Visit every row once; return the sum of the gaps of rows as visited, which exceeds the gap left."""
        buckets = self.random.permutation(-(-self.problem.table.rows // self.height)).astype(np.int64)
        alone = self.problem.team.size == 1 and self.problem.intercept != "free"
        return sum(self._round(part) for part in np.array_split(buckets, 1 if alone else ROUNDS))

    def be_careful(self) -> None:
        """Take steps that are safe for any data, from now on."""
        self.stretch *= self.leap
        self.leap = 1.0

    def _round(self, buckets: Array) -> float:
        """Let each thread visit its rows with its own copy of w, then merge the copies; return the gap as visited."""
        team = self.problem.team
        if team.size == 1:
            gap = self._visit(buckets, self.w)
        else:
            copies = list(self.copies)
            list(team.map(self._renew, copies))
            gap = sum(self._leg(part, copies) for part in np.array_split(buckets, self.legs))
            cuts = pairwise(np.linspace(0, len(self.w), team.size + 1).astype(int))
            list(team.map(lambda cut: dual_kernels.meet(self.w, self.copies, self.leap, *cut), list(cuts)))
        self._settle()
        return gap

    def _renew(self, copy: Array) -> None:
        copy[:] = self.w

    def _leg(self, buckets: Array, copies: list[Array]) -> float:
        """Visit a part of a round, after which all copies are equal in the commonest columns.

        In its own copy a thread's steps are `threads / leap` times too long. The mean of their changes, times the
        leap, holds each step once.
        """
        team = self.problem.team
        work = list(zip(np.array_split(buckets, team.size), copies, strict=True))
        gaps = list(team.map(lambda one: self._visit(*one), work))
        dual_kernels.meet_in(self.w, self.copies, self.leap, self.common)
        return float(sum(gaps))

    def _settle(self) -> None:
        """Move a free intercept, after the copies of w were merged."""
        if self.problem.intercept == "free":
            self.centre += self.bias * float(self.w[-1])

    def null_value(self) -> float:
        """Return the objective at zero."""
        weight = float(self.problem.weights.sum(dtype=np.float64))
        return math.log(2) * weight if self.problem.loss == "logistic" else weight

    def rough_value(self) -> float:
        """Return about what the objective is near the optimum: the dual one, by w as it was added up."""
        w = self.w.astype(np.float64)
        return self._dual_losses(self._feasible_dual()) - float(w @ w) / 2

    def certificate(self) -> Certificate:
        """Return the exact objective and gap, by one more pass over the data."""
        problem = self.problem
        dual = self._feasible_dual()
        w = self.w[:-1]

        margins, v = self._products(dual)
        b = self._intercept(margins)
        value = self._losses(margins + margins.dtype.type(b)) + float(np.vdot(w, w).real) / 2
        bound = self._dual_losses(dual) - float(v @ v) / 2
        if problem.intercept == "penalised":
            value += (b / self.bias) ** 2 / 2
            bound -= (self.bias * float(dual.sum())) ** 2 / 2
        return Certificate(w.astype(np.float64), b, value, max(value - bound, 0.0))

    def _products(self, dual: Array) -> tuple[Array, Array]:
        """Return X w, and the w that dual variables give, v = Xᵀ dual; a sparse table is read once for both."""
        table, team, w = self.problem.table, self.problem.team, self.w[:-1]
        margins = np.empty(table.rows, table.dtype)

        def part(block: slice) -> tuple[Array]:
            if isinstance(table, SparseTable):
                v = np.zeros(table.columns, table.dtype)
                values, ends = table.values, table.values.indptr[block.start : block.stop + 1]
                dual_kernels.sparse_products(
                    values.data, values.indices, ends, w, dual[block], margins[block], v
                )
                return (v.astype(np.float64),)
            margins[block] = table.times(block, w)
            return (table.transposed_times(block, dual[block].astype(table.dtype)),)

        # Sums in the table's own type fit the cache; eight parts for each thread keep their rounding error small.
        cuts = np.unique(np.linspace(0, table.rows, 8 * team.size + 1).astype(int))
        shares = [slice(int(a), int(b)) for a, b in pairwise(cuts)]
        (v,) = add_up(team.map(part, shares if isinstance(table, SparseTable) else table.blocks()))
        return margins, v

    def _visit(self, buckets: Array, w: Array) -> float:
        problem, table = self.problem, self.problem.table
        rows = (problem.y, problem.weights, self.squares, self.states, self.shares, self.rests)
        rest = (buckets, self.height, w, self.bias, self.centre, self.code, self.stretch)
        if isinstance(table, SparseTable):
            values = table.values
            return dual_kernels.sparse_epoch(values.data, values.indices, values.indptr, rows, *rest)
        return dual_kernels.dense_epoch(table.values, rows, *rest)

    def _bias(self) -> float:
        problem = self.problem
        if problem.intercept == "none":
            return 0.0
        if problem.intercept == "penalised":
            return problem.scaling
        # Small beside a row, or steps get short; large beside 1 / curvature, or the multiplier converges slowly.
        squares, rows, weight = sum_over_workers(
            [float(self.squares.sum()), float(problem.table.rows), float(problem.weights.sum())]
        )
        return float(np.sqrt(max(0.1 * squares / rows, 40 / max(weight, 1e-12))))

    def _feasible_dual(self) -> Array:
        """Return y_i * a_i of every row, scaled to add up to zero where a free intercept constrains the dual."""
        problem = self.problem
        dual = (self.shares * problem.weights if problem.loss == "logistic" else self.states).astype(
            np.float64
        )
        if problem.intercept == "free":
            above = problem.y > 0
            up, down = sum_over_workers([float(dual[above].sum()), float(dual[~above].sum())])
            dual[above] *= min(1.0, down / up) if up else 0.0
            dual[~above] *= min(1.0, up / down) if down else 0.0
        signed: Array = dual * problem.y
        return signed

    def _intercept(self, margins: Array) -> float:
        """Return the intercept; a free one by five Newton steps on the loss of these margins."""
        problem = self.problem
        if problem.intercept != "free":
            return self.bias * float(self.w[-1])
        b, slope = self.centre, np.empty_like(margins)
        for _ in range(5):
            moved = margins + margins.dtype.type(b)
            loss_kernels.logistic(moved, problem.y, problem.weights, slope)
            push = float(slope.sum(dtype=np.float64))
            loss_kernels.logistic_curvature(moved, problem.y, problem.weights, slope)
            push, bend = sum_over_workers([push, float(slope.sum(dtype=np.float64))])
            b -= float(np.clip(push / max(bend, 1e-30), -2, 2))
        return b

    def _losses(self, margins: Array) -> float:
        problem = self.problem
        if problem.loss == "hinge":
            return float(np.dot(problem.weights, np.maximum(0, 1 - problem.y * margins)))
        evaluate = getattr(loss_kernels, problem.loss)
        return float(evaluate(margins, problem.y, problem.weights, np.empty_like(margins)))

    def _dual_losses(self, dual: Array) -> float:
        weights, size = self.problem.weights, np.abs(dual)
        if self.problem.loss == "hinge":
            return float(size.sum())
        share = size / np.where(weights > 0, weights, 1)
        if self.problem.loss == "squared_hinge":
            return float(np.dot(weights, share - share * share / 4))
        return float(np.dot(weights, entr(share) + entr(np.maximum(1 - share, 0))))


def ascend(
    problem: DualProblem,
    *,
    tol: float,
    max_iter: int,
    history: History,
    random: np.random.RandomState,
    patience: Patience,
    ascent: DualAscent | None = None,
) -> tuple[Certificate, int, bool]:
    """Return the best point, the epochs it took, and whether its gap is within `tol` (relative).

    It ends early where it would need more epochs than `patience` allows.
    """
    ascent = ascent or DualAscent(problem, random)
    met: list[float] = []
    goal = tol * ascent.null_value() / 2  # until the first certificate gives the objective
    # The ratio of the certified gap to the gap as visited: copies of w that differ leave a larger one.
    bias = 1.0 if problem.team.size == 1 else 2.0
    due, certified = min(EVERY, patience.epochs), False
    while True:
        met.append(ascent.epoch())
        if len(met) > 2 and met[-1] > met[-2]:
            ascent.be_careful()
        left = _epochs_left(met, bias, goal)
        if left == 0 and not certified:  # the objective may be far below that at zero
            goal = min(goal, tol * max(ascent.rough_value(), 0.0))
            left = _epochs_left(met, bias, goal)
        if left > 0 and len(met) < min(due, max_iter):
            continue
        certified = True
        certificate = ascent.certificate()
        good = history.add(certificate.value, certificate.gap) <= tol
        goal = tol * certificate.value
        bias = certificate.gap / _ahead(met) if _ahead(met) > 0 else 1.0
        left = _epochs_left(met, bias, goal)
        slow = len(met) >= patience.epochs and left > patience.more
        if good or len(met) >= max_iter or slow:
            return certificate, len(met), good
        due = len(met) + EVERY


def _rate(met: list[float]) -> float:
    """Return the factor by which the gap shrinks in an epoch."""
    if len(met) < 3 or met[-2] <= 0:
        return 0.5
    return min(max(met[-1] / met[-2], 0.01), 0.98)


def _ahead(met: list[float]) -> float:
    """Return an estimate of the gap after the last epoch."""
    return met[-1] * _rate(met)


def _epochs_left(met: list[float], bias: float, goal: float) -> int:
    """Return the epochs still needed if the gap keeps shrinking at its rate; 0 if it may be small enough now."""
    now = bias * _ahead(met)
    if len(met) < 2:  # the gaps of the first epoch say nothing about the rate
        return 1
    if now <= goal:
        return 0
    return int(np.ceil(np.log(max(goal, 1e-300) / now) / np.log(_rate(met))))


def _commonest(table: DenseTable | SparseTable) -> Array:
    """Return the columns that most rows use, counted in a sample of a million stored numbers."""
    if not isinstance(table, SparseTable):
        return np.arange(min(table.columns, COMMON))
    some = table.values.indices[:: 1 + table.stored // (1 << 20)]
    counts = np.bincount(some, minlength=table.columns)
    return np.sort(np.argsort(-counts, kind="stable")[:COMMON])


def _row_squares(table: DenseTable | SparseTable) -> Array:
    """Return |x_i|² of every row."""
    if isinstance(table, SparseTable):
        squares = np.empty(table.rows, table.dtype)
        dual_kernels.row_squares(table.values.data, table.values.indptr, squares)
        return squares
    squares = np.einsum("ij,ij->i", table.values, table.values)
    return np.asarray(squares)
