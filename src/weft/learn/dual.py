"""Dual coordinate ascent for wide, sparse tables and for the hinge loss; stops by the duality gap.

    min  1/2 |w|² + sum_i weights_i * loss(y_i * (x_i w + b))

Each thread works on a copy of w and on its own share of the rows, which is dealt anew at every epoch. It takes the
steps of the other threads for equal to its own (the safe rule of CoCoA+), so that the sum of all steps is a step
forward whatever the data. An intercept without a penalty is a multiplier: the dual has a constraint more, and b is
moved after every epoch by what is left of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import entr

from weft.learn import dual_kernels, loss_kernels
from weft.learn.history import History
from weft.learn.tables import DenseTable, SparseTable
from weft.learn.threads import Crew

Array = np.ndarray[Any, Any]

CODES = {
    "logistic": dual_kernels.LOGISTIC,
    "squared_hinge": dual_kernels.SQUARED_HINGE,
    "hinge": dual_kernels.HINGE,
}
BUCKET = 64  # neighbouring rows visited together; fewer where there are few rows
GIVE_UP = 20  # epochs


@dataclass(frozen=True)
class DualProblem:
    """Rows, targets of -1 and 1, weights, and what to do about the intercept."""

    table: DenseTable | SparseTable
    y: Array
    weights: Array
    loss: str
    intercept: str  # "none", "free", or "penalised": a column of the value `scaling`
    scaling: float
    crew: Crew


@dataclass
class Certificate:
    """A primal point, its objective, and how far that is above a point of the dual."""

    w: Array
    b: float
    value: float
    gap: float


class DualAscent:
    """The state of one ascent: a dual variable for each row, and w."""

    def __init__(self, problem: DualProblem, random: np.random.RandomState):
        self.problem = problem
        table, dtype = problem.table, problem.table.dtype
        self.random = random
        self.code = CODES[problem.loss]
        self.squares = _row_squares(table)
        self.states = np.full(table.rows, -20.0 if problem.loss == "logistic" else 0.0, dtype)
        self.shares = np.zeros(table.rows, dtype)
        self.rests = np.zeros(table.rows, np.uint8)
        self.w = np.zeros(table.columns + 1, dtype)
        self.centre = 0.0
        self.bias = self._bias()
        self.height = int(np.clip(table.rows // 2000, 1, BUCKET))

    def epoch(self) -> float:
        """Visit every row once; returns the duality gap as met on the way, which is more than what is left."""
        problem = self.problem
        buckets = self.random.permutation(-(-problem.table.rows // self.height)).astype(np.int64)
        shares = np.array_split(buckets, problem.crew.size)
        copies = [self.w.copy() for _ in shares[1:]] + [self.w]
        before = self.w.copy() if len(copies) > 1 else None
        gaps = list(problem.crew.map(lambda work: self._visit(*work), list(zip(shares, copies, strict=True))))
        if before is not None:
            change = sum(copy - before for copy in copies)
            self.w = before + np.asarray(change, before.dtype) / before.dtype.type(len(copies))
        if problem.intercept == "free":
            self.centre += self.bias * float(self.w[-1])
        return float(sum(gaps))

    def certificate(self) -> Certificate:
        """The exact objective and gap, by one more pass over the data."""
        problem, table = self.problem, self.problem.table
        dual = self._feasible_dual()
        w = self.w[:-1]

        def part(block: slice) -> tuple[Array]:
            return (table.transposed_times(block, dual[block].astype(table.dtype)),)

        (v,) = problem.crew.total(part, table.blocks())
        margins = np.concatenate(list(problem.crew.map(lambda block: table.times(block, w), table.blocks())))
        b = self._intercept(margins)
        value = self._losses(margins + margins.dtype.type(b)) + float(np.vdot(w, w).real) / 2
        bound = self._dual_losses(dual) - float(v @ v) / 2
        if problem.intercept == "penalised":
            value += (b / self.bias) ** 2 / 2
            bound -= (self.bias * float(dual.sum())) ** 2 / 2
        return Certificate(w.astype(np.float64), b, value, max(value - bound, 0.0))

    def _visit(self, buckets: Array, w: Array) -> float:
        problem, table = self.problem, self.problem.table
        rows = (problem.y, problem.weights, self.squares, self.states, self.shares, self.rests)
        rest = (buckets, self.height, w, self.bias, self.centre, self.code, problem.crew.size)
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
        # Small beside a row, or steps shrink; large beside 1 / curvature, or the multiplier crawls.
        return float(np.sqrt(max(0.1 * self.squares.mean(), 40 / max(problem.weights.sum(), 1e-12))))

    def _feasible_dual(self) -> Array:
        """y_i * a_i of every row; for a free intercept they add up to zero, as the dual's constraint asks."""
        problem = self.problem
        dual = (self.shares * problem.weights if problem.loss == "logistic" else self.states).astype(
            np.float64
        )
        if problem.intercept == "free":
            above = problem.y > 0
            up, down = dual[above].sum(), dual[~above].sum()
            dual[above] *= min(1.0, down / up) if up else 0.0
            dual[~above] *= min(1.0, up / down) if down else 0.0
        signed: Array = dual * problem.y
        return signed

    def _intercept(self, margins: Array) -> float:
        """The best intercept for these margins, where it is free."""
        problem = self.problem
        if problem.intercept != "free":
            return self.bias * float(self.w[-1])
        b, slope = self.centre, np.empty_like(margins)
        for _ in range(5):
            moved = margins + margins.dtype.type(b)
            loss_kernels.logistic(moved, problem.y, problem.weights, slope)
            push = float(slope.sum(dtype=np.float64))
            loss_kernels.logistic_curvature(moved, problem.y, problem.weights, slope)
            b -= float(np.clip(push / max(float(slope.sum(dtype=np.float64)), 1e-30), -2, 2))
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
    patient: bool,
) -> tuple[Certificate, int, bool]:
    """The best point, the epochs it took, and whether its gap is within `tol`.

    Unless told to be patient it gives up where so many epochs are still to come that another method is quicker.
    """
    ascent = DualAscent(problem, random)
    met = [np.inf]
    due = 2  # the epoch after which a certificate is worth a pass
    epoch = 0
    while True:
        epoch += 1
        met.append(ascent.epoch())
        if epoch < due and epoch < max_iter:
            continue
        certificate = ascent.certificate()
        good = history.add(certificate.value, certificate.gap) <= tol
        left = _epochs_left(met, certificate, tol)
        if good or epoch >= max_iter or (epoch >= GIVE_UP and left > GIVE_UP and not patient):
            return certificate, epoch, good
        due = epoch + min(left, 10)


def _epochs_left(met: list[float], certificate: Certificate, tol: float) -> int:
    """How many epochs the gap will take, if it goes on shrinking as it did."""
    rate = min(max(met[-1] / met[-2], 0.05), 0.95) if met[-2] > 0 else 0.5
    needed = np.log(max(tol * abs(certificate.value), 1e-300) / max(certificate.gap, 1e-300)) / np.log(rate)
    return max(1, int(np.ceil(needed)))


def _row_squares(table: DenseTable | SparseTable) -> Array:
    if isinstance(table, SparseTable):
        squares = table.values.multiply(table.values).sum(axis=1)
        return np.asarray(squares, table.dtype).ravel()
    squares = np.einsum("ij,ij->i", table.values, table.values)
    return np.asarray(squares)
