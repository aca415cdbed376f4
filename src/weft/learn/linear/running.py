"""Least squares of rows that come in parts (`partial_fit`): their normal equations are kept, the rows are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from weft.learn.solvers.history import History
from weft.learn.solvers.least_squares import LeastSquares, NormalEquations, solved
from weft.learn.solvers.solution import Solution, solution_of
from weft.learn.tables.tables import DenseTable, SparseTable
from weft.learn.threads import ThreadTeam

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class RunningLeastSquares:
    """The normal equations of all rows so far, with `shift` subtracted from the columns."""

    normal: NormalEquations
    shift: Array  # (columns,)

    def solution(self, alpha: Array, columns: int) -> Solution:
        """Return the coefficients of all rows so far, for one penalty of each target."""
        w, b = solved(self.normal, alpha, columns)
        return solution_of(w, b, self.shift, History(), True, "cholesky")


def with_rows(
    before: RunningLeastSquares | None,
    X: Any,
    targets: Array,
    weights: Array,
    intercept: bool,
    team: ThreadTeam,
) -> RunningLeastSquares:
    """Return the normal equations with these rows added; the first rows decide the shift, their column means."""
    if before is not None:
        shift = before.shift
    else:
        shift = X.mean(axis=0) if intercept and not sparse.issparse(X) else np.zeros(X.shape[1])
    table = SparseTable(X) if sparse.issparse(X) else DenseTable(X, shift)
    problem = LeastSquares(table, targets, weights, np.zeros(targets.shape[1]), intercept, team)
    normal = problem.normal_equations()
    if before is not None:
        old = before.normal
        normal = NormalEquations(
            old.matrix + normal.matrix, old.gradient + normal.gradient, old.value + normal.value
        )
    return RunningLeastSquares(normal, shift)
