"""Logistic regression."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from weft.errors import UsageError
from weft.learn import inputs
from weft.learn.frames.entry import takes_frames
from weft.learn.gpu.place import place_of
from weft.learn.linear.base import LinearClassifier, probabilities
from weft.learn.linear.solving import LinearTask, solve
from weft.learn.solvers.choice import ALIASES, OPEN, Choice, ProblemShape, choose
from weft.learn.solvers.history import History
from weft.learn.solvers.losses import Logistic, Loss, Multinomial
from weft.learn.solvers.solution import FitResult, Solution
from weft.learn.tables.tables import SparseTable, at_hand, table_of
from weft.learn.threads import ThreadTeam, thread_count, thread_team
from weft.learn.workers.group import current_workers, total_rows
from weft.learn.workers.joint_fit import joint_fit, solving

Array = np.ndarray[Any, Any]


@takes_frames
class LogisticRegression(LinearClassifier):
    """Logistic regression with L1, L2, mixed or no penalty, for two classes or several.

    Parameters are scikit-learn's, with these differences: `tol` bounds the gap to the optimum, relative to
    the objective;
    `solver="auto"` chooses from the table's shape among "newton", "lbfgs", "dual" and "coordinate" (scikit-learn's
    names are understood); the intercept is never penalised; `n_jobs=None` uses all cores on large tables;
    `multi_class="ovr"` fits one model for each class; `device="cuda"` fits on a GPU, as do tables that lie there.

    After a fit, `history_` holds the objective, the gap and the time of every pass.
    """

    def __init__(
        self,
        penalty: str | None = "deprecated",
        *,
        C: float = 1.0,
        l1_ratio: float | None = 0.0,
        dual: bool = False,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Any = None,
        random_state: Any = None,
        solver: str = "auto",
        max_iter: int = 100,
        multi_class: str = "multinomial",
        verbose: int = 0,
        warm_start: bool = False,
        n_jobs: int | None = None,
        device: str | None = None,
    ):
        self.penalty = penalty
        self.C = C
        self.l1_ratio = l1_ratio
        self.dual = dual
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.random_state = random_state
        self.solver = solver
        self.max_iter = max_iter
        self.multi_class = multi_class
        self.verbose = verbose
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.device = device

    @joint_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, memory: str | int | None = None) -> Self:
        """Fit the model to rows X (dense, sparse or a frame) and their classes y."""
        penalties = self._penalties()
        place = place_of(self.device, X)
        if place is None:
            result = self._solve((X, y, sample_weight), memory, penalties)
        else:
            result = self._solve_on(place, (X, y, sample_weight), memory, penalties)
        return self._finish(result, self.max_iter)

    def _solve(
        self, data: tuple[Any, Any, Any], memory: str | int | None, penalties: tuple[float, float]
    ) -> FitResult:
        """Fit on this machine's cores."""
        X, y, weights = inputs.checked_rows(self, *data, memory=memory)
        before = getattr(self, "coef_", None), getattr(self, "intercept_", None)
        self.classes_, codes = inputs.checked_classes(y)
        weights = inputs.with_class_weights(weights, self.class_weight, self.classes_, codes).astype(X.dtype)
        stored = X.nnz if sparse.issparse(X) else X.size
        with thread_team(thread_count(self.n_jobs, stored)) as team, solving(self):
            solutions = self._solve_classes(X, codes, weights, penalties, before, team)
        return FitResult(solutions, X.dtype)

    def _solve_on(
        self,
        place: str,
        data: tuple[Any, Any, Any],
        memory: str | int | None,
        penalties: tuple[float, float],
    ) -> FitResult:
        """Fit on an accelerator."""
        from weft.learn.gpu.fits import solve_classes

        if self.dual or ALIASES.get(self.solver) == "dual":
            raise UsageError(
                f"a fit on an accelerator must have a primal solver, got solver={self.solver!r}, dual={self.dual!r}; "
                "use solver='auto', or leave device out"
            )
        self.classes_, result = solve_classes(self, place, data, memory, loss="logistic", penalties=penalties)
        return result

    def _solve_classes(
        self,
        X: Any,
        codes: Array,
        weights: Array,
        penalties: tuple[float, float],
        before: Any,
        team: ThreadTeam,
    ) -> list[Solution]:
        l1, l2 = penalties
        table = table_of(X, centred=self.fit_intercept)
        problems = self._problems(codes, X.dtype)
        random = check_random_state(self.random_state)
        solutions = []
        for output, (loss, y) in enumerate(problems):
            task = LinearTask(table, y, weights, loss, l1, l2, self.fit_intercept)
            start = (
                _start(before, loss.outputs, output, len(problems), table.columns)
                if self.warm_start
                else None
            )
            solutions.append(
                solve(
                    task,
                    self._choice(task, sparse.issparse(X)),
                    team,
                    start=start,
                    tol=float(self.tol),
                    max_iter=max(1, self.max_iter),
                    history=History(output),
                    random=random,
                )
            )
        return solutions

    def predict_proba(self, X: Any) -> Array:
        return probabilities(self.decision_function(X), multinomial=self.multi_class == "multinomial")

    def predict_log_proba(self, X: Any) -> Array:
        return np.log(self.predict_proba(X))

    def _penalties(self) -> tuple[float, float]:
        """Check the parameters; return the L1 and the L2 penalty beside an unscaled sum of losses."""
        inputs.check_choice("penalty", self.penalty, ("deprecated", "l1", "l2", "elasticnet", None))
        inputs.check_choice("solver", self.solver, (*OPEN, *ALIASES))
        inputs.check_choice("multi_class", self.multi_class, ("multinomial", "ovr"))
        inputs.check_number("tol", self.tol)
        inputs.check_count("max_iter", self.max_iter)
        strength = 1 / inputs.check_number("C", self.C, open_end=True)
        share = inputs.check_number("l1_ratio", 0.0 if self.l1_ratio is None else self.l1_ratio)
        if share > 1:
            raise ValueError(f"l1_ratio must be between 0 and 1, got {share!r}")
        if self.penalty is None:
            return 0.0, 0.0
        share = {"l1": 1.0, "l2": 0.0}.get(self.penalty, share)
        return strength * share, strength * (1 - share)

    def _problems(self, codes: Array, dtype: Any) -> list[tuple[Loss, Array]]:
        """Return the loss and the targets of each problem: one for all classes, or one for each class."""
        count = len(self.classes_)
        if count > 2 and self.multi_class == "multinomial":
            return [(Multinomial(count), codes.astype(dtype))]
        ours = [1] if count == 2 else range(count)
        return [(Logistic(), inputs.signs(codes == k, dtype)) for k in ours]

    def _choice(self, task: LinearTask, is_sparse: bool) -> Choice:
        table = task.table
        rows, outputs = total_rows(table.rows), task.loss.outputs
        shape = ProblemShape(
            rows,
            table.columns,
            table.stored,
            is_sparse,
            outputs,
            l1=task.l1,
            l2=task.l2,
            at_hand=at_hand(table),
            groups=len(table.one_hot) if isinstance(table, SparseTable) else 0,
        )
        choice = choose(shape, self.solver, dual=self.dual)
        asked = self.dual or ALIASES.get(self.solver) == "dual"
        if choice.solver == "dual" and current_workers() is not None and not asked:
            return choose(shape, "lbfgs")  # fewer messages, and no slower on any table that was tried
        return choice


def _start(
    before: tuple[Any, Any], outputs: int, output: int, problems: int, columns: int
) -> tuple[Array, Array] | None:
    """Return W and b of the previous fit for a warm start, or None where its shape differs."""
    coef, intercept = before
    if coef is None or coef.shape != (outputs * problems, columns):
        return None
    mine = slice(output * outputs, (output + 1) * outputs)  # rows of `coef_` that belong to this problem
    coef = coef.toarray() if sparse.issparse(coef) else coef
    return coef[mine].T.astype(np.float64), np.atleast_1d(intercept)[mine].astype(np.float64)
