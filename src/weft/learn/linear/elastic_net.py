"""Least squares with L1 and mixed penalties."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse

from weft.learn import inputs
from weft.learn.gpu.place import place_of
from weft.learn.linear.least_squares import LinearRegressor
from weft.learn.solvers.coordinate import L1Problem, minimise_l1
from weft.learn.solvers.history import History
from weft.learn.solvers.losses import Squared
from weft.learn.solvers.problem import Problem
from weft.learn.tables.tables import table_of
from weft.learn.threads import Crew, crew_of, thread_count
from weft.learn.workers import together as workers

Array = np.ndarray[Any, Any]


class ElasticNet(LinearRegressor):
    """Least squares with a mixed L1 and L2 penalty.

        |y - Xw|² / (2 n) + alpha * l1_ratio * |w|_1 + alpha * (1 - l1_ratio) / 2 * |w|²

    Parameters and attributes are scikit-learn's; `tol` bounds the gap to the optimum relative to the objective, and
    `precompute` and `selection` are accepted and not needed: columns are screened and visited as the solver sees fit.
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

    @workers.as_one_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, memory: str | int | None = None) -> Self:
        self._check()
        place = place_of(self.device, X)
        if place is not None:
            from weft.learn.gpu.fits import fit_few_numbers

            fit_few_numbers(self, place, (X, y, sample_weight), memory)
            return self
        X, y, weights = inputs.checked_rows(
            self, X, y, sample_weight, memory=memory, multi_output=True, y_numeric=True
        )
        (total,) = workers.sums([float(weights.sum())])
        weights = (weights / total).astype(X.dtype)
        targets = y.reshape(len(y), -1).astype(X.dtype)
        start = np.atleast_2d(self.coef_) if self.warm_start and hasattr(self, "coef_") else None
        stored = X.nnz if sparse.issparse(X) else X.size
        with crew_of(thread_count(self.n_jobs, stored)) as crew, workers.solving(self, targets.shape[1]):
            self._fit(X, targets, weights, start, y.ndim == 1, crew)
        return self

    def _fit(
        self, X: Any, targets: Array, weights: Array, start: Array | None, flat: bool, crew: Crew
    ) -> None:
        table = table_of(X, centred=self.fit_intercept)
        columns, outputs = table.columns, targets.shape[1]
        w, b = np.zeros((columns, outputs)), np.zeros(outputs)
        histories, good = [], True
        for k in range(outputs):
            y = np.ascontiguousarray(targets[:, k])
            l2 = self.alpha * (1 - self.l1_ratio)
            smooth = Problem(table, y, weights, Squared(), l2, self.fit_intercept, crew, fine=True)
            histories.append(History(k))
            point = np.zeros(smooth.size)
            if start is not None and start.shape == (outputs, columns):
                point[:columns] = start[k]
            if self.fit_intercept:
                heavy, total = workers.sums([float(np.dot(weights, y)), float(weights.sum())])
                point[columns] = heavy / total
            problem = L1Problem(smooth, self.alpha * self.l1_ratio, self.positive)
            point, fine = minimise_l1(
                problem, point, tol=self.tol, max_iter=self.max_iter, history=histories[-1]
            )
            part, bias = smooth.split(point)
            w[:, k], b[k], good = part[:, 0], bias[0], good and fine
        self._keep(w, b - table.shift.astype(np.float64) @ w, flat, X.dtype)
        self._passed(histories, good)

    def _passed(self, histories: list[History], good: bool) -> None:
        """Keep how the fit went."""
        outputs = len(histories)
        steps = [len(history.steps) for history in histories]
        gaps = np.array([history.steps[-1].gap * history.steps[-1].objective for history in histories])
        self.n_iter_ = steps[0] if outputs == 1 else steps
        self.dual_gap_ = gaps[0] if outputs == 1 else gaps
        self._told(histories, good, self.max_iter, self.tol)

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
