"""The linear support vector machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from weft.errors import UsageError
from weft.learn import inputs
from weft.learn.frames.entry import takes_frames
from weft.learn.gpu.place import place_of
from weft.learn.linear.base import LinearClassifier
from weft.learn.linear.solving import LinearTask, solve, solve_dual
from weft.learn.solvers.choice import Choice, ProblemShape, choose, smooth_plan
from weft.learn.solvers.history import History
from weft.learn.solvers.losses import SquaredHinge
from weft.learn.solvers.solution import FitResult, Solution
from weft.learn.tables.tables import at_hand, table_of
from weft.learn.threads import ThreadTeam, thread_count, thread_team
from weft.learn.workers.group import current_workers, total_rows
from weft.learn.workers.joint_fit import joint_fit, solving

Array = np.ndarray[Any, Any]


@takes_frames
class LinearSVC(LinearClassifier):
    """A linear support vector machine: hinge or squared hinge loss, one model for each class of several.

    Parameters and attributes are scikit-learn's, and so is the meaning of `intercept_scaling`: the intercept is the
    coefficient of a column of that value, and penalised like the others. `tol` bounds the gap to the optimum, relative
    to the objective. `multi_class="crammer_singer"` is not supported.
    """

    def __init__(
        self,
        penalty: str = "l2",
        loss: str = "squared_hinge",
        *,
        dual: bool | str = "auto",
        tol: float = 1e-4,
        C: float = 1.0,
        multi_class: str = "ovr",
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Any = None,
        verbose: int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        device: str | None = None,
    ):
        self.penalty = penalty
        self.loss = loss
        self.dual = dual
        self.tol = tol
        self.C = C
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.device = device

    @joint_fit
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, memory: str | int | None = None) -> Self:
        """Fit the model to rows X (dense, sparse or a frame) and their classes y."""
        self._check()
        place = place_of(self.device, X)
        if place is None:
            result = self._solve((X, y, sample_weight), memory)
        else:
            result = self._solve_on(place, (X, y, sample_weight), memory)
        return self._finish(result, self.max_iter)

    def _set_passes(self, solutions: Sequence[Solution]) -> None:
        self.n_iter_ = max(solution.passes for solution in solutions)  # one number, as in scikit-learn

    def _solve(self, data: tuple[Any, Any, Any], memory: str | int | None) -> FitResult:
        """Fit on this machine's cores."""
        X, y, weights = inputs.checked_rows(self, *data, memory=memory)
        self.classes_, codes = inputs.checked_classes(y)
        weights = inputs.with_class_weights(weights, self.class_weight, self.classes_, codes)
        stored = X.nnz if sparse.issparse(X) else X.size
        with thread_team(thread_count(self.n_jobs, stored)) as team, solving(self):
            solutions = self._solve_classes(X, codes, (self.C * weights).astype(X.dtype), team)
        return FitResult(solutions, X.dtype)

    def _solve_on(self, place: str, data: tuple[Any, Any, Any], memory: str | int | None) -> FitResult:
        """Fit on an accelerator."""
        from weft.learn.gpu.fits import solve_classes

        if self.loss == "squared_hinge" and self.dual is True:
            raise UsageError(
                "a fit on an accelerator must have a primal solver where loss='squared_hinge', got dual=True; "
                "use dual='auto', or leave device out"
            )
        self.classes_, result = solve_classes(
            self,
            place,
            data,
            memory,
            loss=self.loss,
            penalties=self._penalties(),
            scale=float(self.C),
            scaling=float(self.intercept_scaling),
        )
        return result

    def _penalties(self) -> tuple[float, float]:
        """Return the L1 and the L2 penalty."""
        return (1.0, 0.0) if self.penalty == "l1" else (0.0, 1.0)

    def _solve_classes(self, X: Any, codes: Array, weights: Array, team: ThreadTeam) -> list[Solution]:
        random = check_random_state(self.random_state)
        ours = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        table = table_of(X, centred=False)
        l1, l2 = self._penalties()
        scaling = float(self.intercept_scaling)
        solutions = []
        for output, k in enumerate(ours):
            y = inputs.signs(codes == k, X.dtype)
            task = LinearTask(table, y, weights, SquaredHinge(), l1, l2, self.fit_intercept, scaling)
            solutions.append(self._solve_one(task, sparse.issparse(X), History(output), team, random))
        return solutions

    def _solve_one(
        self,
        task: LinearTask,
        is_sparse: bool,
        history: History,
        team: ThreadTeam,
        random: np.random.RandomState,
    ) -> Solution:
        limits: dict[str, Any] = {
            "tol": float(self.tol),
            "max_iter": max(1, self.max_iter),
            "history": history,
        }
        if self.loss == "hinge":
            return solve_dual(task, "hinge", team, limits, random)
        table = task.table
        rows = total_rows(table.rows)
        shape = ProblemShape(
            rows, table.columns, table.stored, is_sparse, l1=task.l1, l2=task.l2, at_hand=at_hand(table)
        )
        choice = choose(shape, dual=self.dual is True)
        together = (
            current_workers() is not None
        )  # where quasi-Newton steps need fewer messages, and less time
        if choice.solver == "dual" and (self.dual is False or (together and self.dual == "auto")):
            choice = Choice("lbfgs", smooth_plan(shape, "lbfgs"))
        return solve(task, choice, team, start=None, random=random, **limits)

    def _check(self) -> None:
        inputs.check_choice("penalty", self.penalty, ("l1", "l2"))
        inputs.check_choice("loss", self.loss, ("hinge", "squared_hinge"))
        inputs.check_choice("dual", self.dual, ("auto", True, False))
        inputs.check_choice("multi_class", self.multi_class, ("ovr",))
        inputs.check_number("tol", self.tol, open_end=True)
        inputs.check_number("C", self.C, open_end=True)
        inputs.check_number("intercept_scaling", self.intercept_scaling, open_end=True)
        inputs.check_count("max_iter", self.max_iter)
        if self.penalty == "l1" and (self.loss == "hinge" or self.dual is True):
            raise ValueError("penalty='l1' must go with loss='squared_hinge' and dual=False or 'auto'")
        if self.loss == "hinge" and self.dual is False:
            raise ValueError("loss='hinge' must go with dual=True or 'auto', got dual=False")
