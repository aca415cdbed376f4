"""Dual coordinate ascent by several workers, each on its own rows: CoCoA+, with the commonest columns merged often.

Each worker takes steps on its own copy of w as if all workers took the same step (`stretch`). The changes of the
copies, divided by the number of workers, are added up once an epoch. Workers disturb each other through the columns
that both of them use, most of all the commonest: those are made equal many times in an epoch, by a small message that
saves most of the epochs. A column that one worker alone uses is never sent.

Objectives, dual objectives and gaps are sums over the rows of all workers, so that all workers stop at the same epoch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.solvers.dual import Certificate, DualAscent, DualProblem
from weft.learn.tables.tables import SparseTable
from weft.learn.workers.group import Workers, sum_over_workers

Array = np.ndarray[Any, Any]

MEETINGS = 64  # messages about the commonest columns in an epoch
COMMON = 4096  # columns that count as commonest


class SharedAscent(DualAscent):
    """The state of one worker: the dual variables of its rows, and w in the columns that they use (zero elsewhere)."""

    def __init__(self, problem: DualProblem, random: np.random.RandomState, others: Workers):
        super().__init__(problem, random)
        self.others = others
        self.legs, self.leap, self.stretch = 1, 1.0, float(problem.team.size * others.size)
        self.common, self.rare, self.own = _columns(problem, others)
        self.shared = np.concatenate([self.common, self.rare])
        self.met = np.append(self.common, problem.table.columns)  # with the intercept
        # A worker with a small share may have a float64 table where the others have float32.
        self.kind = np.float64 if others.largest(problem.table.dtype.itemsize) == 8 else np.float32

    def epoch(self) -> float:
        """Let every worker visit each of its rows once; return the sum of the gaps as visited, over all workers."""
        before = self.w.copy()
        buckets = self.random.permutation(-(-self.problem.table.rows // self.height)).astype(np.int64)
        gap = sum(self._round(part) for part in np.array_split(buckets, MEETINGS))
        gained = (self.w - before) / self.w.dtype.type(self.others.size)
        if len(self.rare):
            gained[self.rare] = self._added(gained[self.rare])
        settled = self.w[self.met]
        self.w = before + gained
        self.w[self.met] = settled
        return float(sum_over_workers([gap])[0])

    def _settle(self) -> None:
        """Make the commonest columns equal on all workers, and move a free intercept."""
        self.w[self.met] = self._added(self.w[self.met] / self.w.dtype.type(self.others.size))
        super()._settle()

    def _added(self, values: Array) -> Array:
        message = values.astype(self.kind)
        self.others.add(message)
        return message

    def null_value(self) -> float:
        return float(sum_over_workers([super().null_value()])[0])

    def rough_value(self) -> float:
        return self.null_value()  # no message more; the first certificate tells the objective

    def whole(self) -> Array:
        """Return the coefficients of all columns, the same on every worker."""
        w = np.zeros(self.problem.table.columns)
        mine = self.own if self.others.rank else np.concatenate([self.own, self.shared])
        w[mine] = self.w[mine]
        self.others.add(w)
        return w

    def certificate(self) -> Certificate:
        """Return the exact objective and gap of all workers' rows; the w in it is this worker's."""
        dual = self._feasible_dual()
        w = self.w[:-1].astype(np.float64)
        margins, v = self._products(dual)
        message = v[self.shared]
        self.others.add(message)
        v[self.shared] = message
        b = self._intercept(margins)
        value, bound, length, dual_length, total = sum_over_workers(
            [
                self._losses(margins + margins.dtype.type(b)),
                self._dual_losses(dual),
                float(w[self.own] @ w[self.own]),
                float(v[self.own] @ v[self.own]),
                float(dual.sum()),
            ]
        )
        value += (length + float(w[self.shared] @ w[self.shared])) / 2
        bound -= (dual_length + float(message @ message)) / 2
        if self.problem.intercept == "penalised":
            value += (b / self.bias) ** 2 / 2
            bound -= (self.bias * total) ** 2 / 2
        return Certificate(w, b, value, max(value - bound, 0.0))


def _columns(problem: DualProblem, others: Workers) -> tuple[Array, Array, Array]:
    """Return three sets of columns: the commonest of those that workers share, the other shared ones, and the own."""
    table = problem.table
    if isinstance(table, SparseTable):
        counts = np.bincount(table.values.indices, minlength=table.columns)
    else:
        counts = np.full(table.columns, table.rows)
    found = np.stack([counts, counts > 0]).astype(np.int64)
    others.add(found)
    rows, users = found
    shared = np.flatnonzero(users > 1)
    order = np.argsort(-rows[shared], kind="stable")
    common, rare = np.sort(shared[order[:COMMON]]), np.sort(shared[order[COMMON:]])
    return common, rare, np.flatnonzero((users == 1) & (counts > 0))
