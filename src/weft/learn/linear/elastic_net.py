"""Least squares with L1 and mixed penalties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse

from weft.learn import inputs
from weft.learn.frames.entry import takes_frames
from weft.learn.gpu.place import place_of
from weft.learn.linear.least_squares import LinearRegressor
from weft.learn.solvers.coordinate import L1Problem, minimise_l1
from weft.learn.solvers.history import History
from weft.learn.solvers.losses import Squared
from weft.learn.solvers.problem import Problem
from weft.learn.solvers.solution import FitResult, Solution, solution_of
from weft.learn.tables.tables import table_of
from weft.learn.threads import ThreadTeam, thread_count, thread_team
from weft.learn.workers.group import sum_over_workers
from weft.learn.workers.joint_fit import joint_fit, solving

Array = np.ndarray[Any, Any]


@takes_frames
class ElasticNet(LinearRegressor):
    """Least squares with a mixed L1 and L2 penalty.

        |y - Xw|² / (2 n) + alpha * l1_ratio * |w|_1 + alpha * (1 - l1_ratio) / 2 * |w|²

    Parameters and attributes are scikit-learn's; `tol` bounds the gap to the optimum, relative to the objective.
    `precompute` and `selection` have no effect: the solver screens and visits columns in its own order.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        precompute: Any = False,
        max_iter: int = 1000,
        copy_X: bool = True,
        tol: float = 1e-4,
        warm_start: bool = False,
        positive: bool = False,
        random_state: Any = None,
        selection: str = "cyclic",
        n_jobs: int | None = None,
        device: str | None = None,
    ):
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.copy_X = copy_X
        self.tol = tol
        self.warm_start = warm_start
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.n_jobs = n_jobs
        self.device = device

    @joint_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, memory: str | int | None = None) -> Self:
        self._check()
        place = place_of(self.device, X)
        if place is None:
            result = self._solve((X, y, sample_weight), memory)
        else:
            from weft.learn.gpu.fits import solve_elastic_net

            result = solve_elastic_net(self, place, (X, y, sample_weight), memory)
        return self._finish(result, self.max_iter)

    def _solve(self, data: tuple[Any, Any, Any], memory: str | int | None) -> FitResult:
        """Fit on this machine's cores."""
        X, y, weights = inputs.checked_rows(self, *data, memory=memory, multi_output=True, y_numeric=True)
        (total,) = sum_over_workers([float(weights.sum())])
        weights = (weights / total).astype(X.dtype)
        targets = y.reshape(len(y), -1).astype(X.dtype)
        start = np.atleast_2d(self.coef_) if self.warm_start and hasattr(self, "coef_") else None
        stored = X.nnz if sparse.issparse(X) else X.size
        with thread_team(thread_count(self.n_jobs, stored)) as team, solving(self, targets.shape[1]):
            solutions = self._solve_targets(X, targets, weights, start, team)
        return FitResult(solutions, X.dtype, flat=y.ndim == 1)

    def _solve_targets(
        self, X: Any, targets: Array, weights: Array, start: Array | None, team: ThreadTeam
    ) -> list[Solution]:
        """Return one solution for each target."""
        table = table_of(X, centred=self.fit_intercept)
        columns, outputs = table.columns, targets.shape[1]
        solutions = []
        for k in range(outputs):
            y = np.ascontiguousarray(targets[:, k])
            l2 = self.alpha * (1 - self.l1_ratio)
            smooth = Problem(table, y, weights, Squared(), l2, self.fit_intercept, team, fine=True)
            point, history = np.zeros(smooth.size), History(k)
            if start is not None and start.shape == (outputs, columns):
                point[:columns] = start[k]
            if self.fit_intercept:
                heavy, total = sum_over_workers([float(np.dot(weights, y)), float(weights.sum())])
                point[columns] = heavy / total
            problem = L1Problem(smooth, self.alpha * self.l1_ratio, self.positive)
            point, good = minimise_l1(problem, point, tol=self.tol, max_iter=self.max_iter, history=history)
            w, b = smooth.split(point)
            solutions.append(solution_of(w, b, table.shift, history, good, "coordinate"))
        return solutions

    def _set_passes(self, solutions: Sequence[Solution]) -> None:
        passes = [solution.passes for solution in solutions]
        last = [solution.history.steps[-1] for solution in solutions]
        gaps = np.array([step.gap * step.objective for step in last])
        self.n_iter_ = passes[0] if len(passes) == 1 else passes
        self.dual_gap_ = gaps[0] if len(gaps) == 1 else gaps

    @property
    def sparse_coef_(self) -> Any:
        """`coef_` as a sparse matrix."""
        return sparse.csr_matrix(self.coef_)

    def _check(self) -> None:
        inputs.check_number("alpha", self.alpha)
        inputs.check_number("tol", self.tol)
        inputs.check_count("max_iter", self.max_iter, least=1)
        if inputs.check_number("l1_ratio", self.l1_ratio) > 1:
            raise ValueError(f"l1_ratio must be between 0 and 1, got {self.l1_ratio!r}")


class Lasso(ElasticNet):
    """Least squares with an L1 penalty: an ElasticNet whose `l1_ratio` is 1."""

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        precompute: Any = False,
        copy_X: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        positive: bool = False,
        random_state: Any = None,
        selection: str = "cyclic",
        n_jobs: int | None = None,
        device: str | None = None,
    ):
        super().__init__(
            alpha,
            l1_ratio=1.0,
            fit_intercept=fit_intercept,
            precompute=precompute,
            max_iter=max_iter,
            copy_X=copy_X,
            tol=tol,
            warm_start=warm_start,
            positive=positive,
            random_state=random_state,
            selection=selection,
            n_jobs=n_jobs,
            device=device,
        )
