"""Estimators of least squares: LinearRegression without a penalty, Ridge with an L2 penalty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.linalg import lstsq
from scipy.optimize import nnls
from scipy.sparse.linalg import LinearOperator, lsqr
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import validate_data

from weft.learn import inputs
from weft.learn.frames.entry import takes_frames
from weft.learn.gpu.place import place_of
from weft.learn.linear.base import LinearModel
from weft.learn.linear.running import RunningLeastSquares, with_rows
from weft.learn.solvers.coordinate import L1Problem, minimise_l1
from weft.learn.solvers.curvature import CholeskyCurvature
from weft.learn.solvers.history import History
from weft.learn.solvers.least_squares import (
    LeastSquares,
    solve_gradients,
    solve_normal,
)
from weft.learn.solvers.least_squares_rows import solve_rows
from weft.learn.solvers.losses import Squared
from weft.learn.solvers.problem import Problem
from weft.learn.solvers.solution import FitResult, Solution, solution_of
from weft.learn.tables.tables import table_of
from weft.learn.threads import ThreadTeam, thread_count, thread_team
from weft.learn.workers.group import current_workers, sum_over_workers
from weft.learn.workers.joint_fit import joint_fit, refuse_workers, solving

Array = np.ndarray[Any, Any]

WIDEST = 5000  # columns (or rows) up to which a square matrix of their products is cheap
MAX_ITER = 1000  # steps of an iterative solver where the user sets no bound
SAFE = 1e-10  # reciprocal condition number below which normal equations lose too many digits
SOLVERS = ("auto", "cholesky", "rows", "cg", "svd", "lsqr", "sparse_cg", "sag", "saga", "lbfgs")


class LinearRegressor(MultiOutputMixin, RegressorMixin, LinearModel):  # type: ignore[misc]
    """A linear regressor of one target or several."""

    positive: bool
    n_jobs: int | None
    fit_intercept: bool

    def predict(self, X: Any) -> Array:
        return self._margins(X)

    def _solve_on(
        self,
        place: str,
        data: tuple[Any, Any, Any],
        memory: str | int | None,
        alpha: Callable[[int], Array],
        max_iter: int = MAX_ITER,
    ) -> FitResult:
        """Fit on an accelerator; `alpha(outputs)` are the penalties."""
        from weft.learn.gpu.fits import solve_least_squares

        if self.positive:
            raise ValueError("a fit on an accelerator must not ask for positive=True; leave device out")
        return solve_least_squares(self, place, data, memory, alpha, max_iter)

    def _with_rows(self, X: Any, y: Any, sample_weight: Any, alpha: Callable[[int], Array]) -> Self:
        """Add rows to those of earlier `partial_fit` calls, and solve for all of them."""
        refuse_workers(self, " where rows come in parts")
        if self.positive:
            raise ValueError("rows that come in parts must not go with positive=True; use fit")
        first = not hasattr(self, "_running")
        options = {"accept_sparse": "csr", "multi_output": True, "y_numeric": True, "dtype": np.float64}
        X, y = validate_data(self, X, y, reset=first, **options)
        weights = inputs.checked_weights(sample_weight, X)
        targets = y.reshape(len(y), -1).astype(np.float64)
        penalties = alpha(targets.shape[1])
        with thread_team(thread_count(self.n_jobs, X.nnz if sparse.issparse(X) else X.size)) as team:
            before: RunningLeastSquares | None = None if first else self._running
            self._running: RunningLeastSquares = with_rows(
                before, X, targets, weights, self.fit_intercept, team
            )
        solution = self._running.solution(penalties, X.shape[1])
        return self._finish(FitResult([solution], X.dtype, flat=y.ndim == 1), max_iter=0)

    def _set_passes(self, solutions: Sequence[Solution]) -> None:
        (solution,) = solutions
        self.n_iter_ = np.full(solution.coef.shape[1], solution.passes, np.int32)
        self.solver_ = solution.solver


@takes_frames
class LinearRegression(LinearRegressor):
    """Ordinary least squares.

    Parameters and attributes are scikit-learn's. Tall tables are solved by normal equations, with more passes that
    correct rounding errors; where columns are nearly dependent, by singular values (dense) or LSQR (sparse).
    """

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        tol: float = 1e-6,
        n_jobs: int | None = None,
        positive: bool = False,
        device: str | None = None,
    ):
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.tol = tol
        self.n_jobs = n_jobs
        self.positive = positive
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.positive
        return tags

    @joint_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, memory: str | int | None = None) -> Self:
        self.__dict__.pop("_running", None)  # a fit begins anew
        inputs.check_number("tol", self.tol)
        if self.positive and sparse.issparse(X):
            raise TypeError("X must be dense where coefficients must be positive, got a sparse matrix")
        place = place_of(self.device, X)
        if place is None:
            result = self._solve((X, y, sample_weight), memory)
        else:
            result = self._solve_on(place, (X, y, sample_weight), memory, np.zeros)
        return self._finish(result, MAX_ITER)

    def _solve(self, data: tuple[Any, Any, Any], memory: str | int | None) -> FitResult:
        """Fit on this machine's cores."""
        X, y, weights = inputs.checked_rows(self, *data, memory=memory, multi_output=True, y_numeric=True)
        targets = y.reshape(len(y), -1).astype(np.float64)
        stored = X.nnz if sparse.issparse(X) else X.size
        with thread_team(thread_count(self.n_jobs, stored)) as team, solving(self, targets.shape[1]):
            solution = self._solve_targets(X, targets, weights, team)
        return FitResult([solution], X.dtype, flat=y.ndim == 1)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows to those of earlier calls; the model is that of all rows, once they determine it."""
        return self._with_rows(X, y, sample_weight, np.zeros)

    def _solve_targets(self, X: Any, targets: Array, weights: Array, team: ThreadTeam) -> Solution:
        history = History()
        rows, columns = X.shape
        many = float(sum_over_workers([float(rows)])[0])
        if not self.positive and columns <= min(many, WIDEST):
            table = table_of(X, centred=self.fit_intercept)
            alpha = np.zeros(targets.shape[1])
            problem = LeastSquares(
                table, targets.astype(X.dtype), weights.astype(X.dtype), alpha, self.fit_intercept, team
            )
            normal = problem.normal_equations()
            if CholeskyCurvature(normal.matrix).reciprocal_condition > SAFE:
                self._spectrum(normal.matrix, columns, X)
                digits = 1e-12 if X.dtype == np.float64 else 1e-8
                w, b = solve_normal(problem, normal, tol=min(self.tol, digits), history=history)
                return solution_of(w, b, table.shift, history, True, "cholesky")
        refuse_workers(self, " where columns depend on each other, or coefficients must be positive")
        w, b = self._solve_directly(X, targets, weights)
        solver = "lsqr" if sparse.issparse(X) else "nnls" if self.positive else "svd"
        return Solution(w, b, history, True, solver, passes=1)

    def _spectrum(self, matrix: Array, columns: int, X: Any) -> None:
        """Set `rank_` and `singular_` of the centred columns from the matrix of normal equations."""
        if sparse.issparse(X):
            return
        inner = matrix[:columns, :columns]
        if self.fit_intercept:
            cross = matrix[columns, :columns]
            inner = inner - np.outer(cross, cross) / matrix[columns, columns]
        self.rank_ = columns
        self.singular_ = np.sqrt(np.maximum(np.linalg.eigvalsh(inner)[::-1], 0)).astype(X.dtype)

    def _solve_directly(self, X: Any, targets: Array, weights: Array) -> tuple[Array, Array]:
        """Return W and b of the least-norm solution, from a factorisation of the table itself."""
        if not sparse.issparse(X):
            assert_all_finite(X, input_name="X")
        root = np.sqrt(weights)[:, None]
        x_mean, y_mean = _means(X, targets, weights, self.fit_intercept)
        goal = (targets - y_mean) * root
        if sparse.issparse(X):
            operator = _centred_operator(X, x_mean, root[:, 0])
            w = np.stack([lsqr(operator, g, atol=self.tol, btol=self.tol)[0] for g in goal.T], axis=1)
        elif self.positive:
            w = np.stack([nnls((X - x_mean) * root, g)[0] for g in goal.T], axis=1)
        else:
            # Centring lowers the rank by one: the singular value that remains is rounding, and is cut off.
            cutoff = max(X.shape) * np.finfo(X.dtype).eps
            w, _, self.rank_, self.singular_ = lstsq((X - x_mean) * root, goal, cutoff, check_finite=False)
        return w, y_mean - x_mean @ w


@takes_frames
class Ridge(LinearRegressor):
    """Least squares with an L2 penalty.

    Parameters and attributes are scikit-learn's. `solver="auto"` takes "cholesky" for tall tables, "rows" for wide
    dense ones and "cg" for the rest; scikit-learn's other names mean "auto".
    """

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-4,
        solver: str = "auto",
        positive: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        device: str | None = None,
    ):
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.positive = positive
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    @joint_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, memory: str | int | None = None) -> Self:
        self.__dict__.pop("_running", None)  # a fit begins anew
        inputs.check_number("tol", self.tol)
        inputs.check_choice("solver", self.solver, SOLVERS)
        if self.max_iter is not None:
            inputs.check_count("max_iter", self.max_iter, least=1)
        limit = self.max_iter or MAX_ITER
        place = place_of(self.device, X)
        if place is None:
            result = self._solve((X, y, sample_weight), memory)
        else:
            result = self._solve_on(place, (X, y, sample_weight), memory, self._alphas, limit)
        return self._finish(result, limit)

    def _solve(self, data: tuple[Any, Any, Any], memory: str | int | None) -> FitResult:
        """Fit on this machine's cores."""
        X, y, weights = inputs.checked_rows(self, *data, memory=memory, multi_output=True, y_numeric=True)
        weights = weights.astype(X.dtype)
        targets = y.reshape(len(y), -1).astype(X.dtype)
        alpha = self._alphas(targets.shape[1])
        stored = X.nnz if sparse.issparse(X) else X.size
        with thread_team(thread_count(self.n_jobs, stored)) as team, solving(self, targets.shape[1]):
            solution = self._solve_targets(X, targets, weights, alpha, team)
        return FitResult([solution], X.dtype, flat=y.ndim == 1)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows to those of earlier calls; the model is that of all rows, and no row is kept."""
        return self._with_rows(X, y, sample_weight, self._alphas)

    def _alphas(self, outputs: int) -> Array:
        """Return the penalty of each target, (outputs,)."""
        alpha = np.atleast_1d(np.asarray(self.alpha, np.float64))
        for value in alpha:
            inputs.check_number("alpha", value)
        if alpha.size not in (1, outputs):
            raise ValueError(
                f"alpha must be one number or one for each of {outputs} targets, got {alpha.size}"
            )
        return np.broadcast_to(alpha, outputs).copy()

    def _solve_targets(
        self, X: Any, targets: Array, weights: Array, alpha: Array, team: ThreadTeam
    ) -> Solution:
        history, good, limit = History(), True, self.max_iter or MAX_ITER
        solver = _ridge_solver(X, self.solver, float(alpha.min()))
        if current_workers() is not None:
            solver = "cholesky" if X.shape[1] <= WIDEST else "cg"
        table = table_of(X, centred=self.fit_intercept and solver != "svd")
        problem = LeastSquares(table, targets, weights, alpha, self.fit_intercept, team)
        if self.positive:
            refuse_workers(self, " where coefficients must be positive")
            w, b, good = _positive(problem, self.tol, limit, history)
            solver = "coordinate"
        elif solver == "svd":
            plain = LinearRegression(fit_intercept=self.fit_intercept, tol=self.tol)
            w, b = plain._solve_directly(X, targets.astype(np.float64), weights.astype(np.float64))
        elif solver == "rows":
            w, b, good = solve_rows(problem, tol=self.tol, max_iter=limit, history=history)
        elif solver == "cg":
            w, b, good = solve_gradients(problem, tol=self.tol, max_iter=limit, history=history)
        else:
            w, b = solve_normal(problem, problem.normal_equations(), tol=self.tol, history=history)
        return solution_of(w, b, table.shift, history, good, solver)


def _ridge_solver(X: Any, asked: str, least_alpha: float) -> str:
    rows, columns = X.shape
    dense = not sparse.issparse(X)
    if asked in ("cholesky", "cg") or (asked == "rows" and dense):
        return asked
    if least_alpha == 0 and dense:
        return "svd"  # columns may be dependent, and no penalty makes the solution unique
    if dense and rows < columns and rows <= WIDEST:
        return "rows"
    return "cholesky" if columns <= WIDEST and (dense or columns <= 1000) else "cg"


def _positive(
    problem: LeastSquares, tol: float, max_iter: int, history: History
) -> tuple[Array, Array, bool]:
    """Return W, b and whether all targets converged, by coordinate descent with a bound at zero."""
    columns, outputs = problem.table.columns, problem.targets.shape[1]
    w, b, good = np.zeros((columns, outputs)), np.zeros(outputs), True
    for k in range(outputs):
        target = np.ascontiguousarray(problem.targets[:, k])
        smooth = Problem(
            problem.table,
            target,
            problem.weights,
            Squared(),
            float(problem.alpha[k]),
            problem.intercept,
            problem.team,
        )
        start = np.zeros(smooth.size)
        if problem.intercept:
            start[columns] = np.average(target, weights=problem.weights)
        point, fine = minimise_l1(
            L1Problem(smooth, 0.0, positive=True),
            start,
            tol=tol,
            max_iter=max_iter,
            history=history,
        )
        part, bias = smooth.split(point)
        w[:, k], b[k], good = part[:, 0], bias[0], good and fine
    return w, b, good


def _means(X: Any, targets: Array, weights: Array, intercept: bool) -> tuple[Array, Array]:
    """Return the weighted means of the columns and of the targets; zeros where there is no intercept."""
    if not intercept:
        return np.zeros(X.shape[1]), np.zeros(targets.shape[1])
    shares = np.asarray(weights, np.float64) / np.sum(weights, dtype=np.float64)
    return np.asarray(shares @ X).ravel(), shares @ targets


def _centred_operator(X: Any, centre: Array, root: Array) -> LinearOperator:
    """Return diag(root) (X - 1 centreᵀ) as an operator, for a sparse X that stays sparse."""
    return LinearOperator(
        X.shape,
        matvec=lambda v: root * (X @ v.ravel() - centre @ v.ravel()),
        rmatvec=lambda v: X.T @ (root * v.ravel()) - centre * (root @ v.ravel()),
        dtype=np.float64,
    )
