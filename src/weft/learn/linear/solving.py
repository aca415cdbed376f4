"""Solves one problem of a linear classifier with the solver that was chosen for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.learn.solvers.choice import Choice
from weft.learn.solvers.coordinate import L1Problem, minimise_l1
from weft.learn.solvers.dual import DualProblem, Patience, ascend
from weft.learn.solvers.dual_workers import SharedAscent
from weft.learn.solvers.history import History
from weft.learn.solvers.losses import Loss
from weft.learn.solvers.problem import Problem
from weft.learn.solvers.smooth import SmoothPlan, minimise
from weft.learn.solvers.solution import Solution, smallest_multinomial, solution_of
from weft.learn.tables.tables import DenseTable, SparseTable
from weft.learn.threads import ThreadTeam
from weft.learn.workers.group import current_workers, total_rows

Array = np.ndarray[Any, Any]

ROWS_AN_EPOCH = (
    40  # rows for each epoch of an ascent whose products with all others cost as much as the epoch
)


@dataclass(frozen=True)
class LinearTask:
    """One problem of a linear classifier:

        min over W, b:  sum_i weights_i * loss(y_i, x_i W + b) + l1 * |W|_1 + l2 / 2 * |W|²

    The intercept b is free, or penalised as scikit-learn's LinearSVC does.
    """

    table: DenseTable | SparseTable
    y: Array  # (rows,): -1 and 1, or the codes of several classes
    weights: Array  # (rows,)
    loss: Loss
    l1: float
    l2: float
    intercept: bool
    scaling: float | None = None  # the intercept is penalised as the coefficient of a column of this value

    @property
    def b_l2(self) -> float:
        """The L2 penalty of the intercept itself, which is `scaling` times the penalised coefficient."""
        return self.l2 / self.scaling**2 if self.scaling else 0.0


def solve(
    task: LinearTask,
    choice: Choice,
    team: ThreadTeam,
    *,
    start: tuple[Array, Array] | None,
    tol: float,
    max_iter: int,
    history: History,
    random: np.random.RandomState,
) -> Solution:
    """Return coefficients whose objective is within `tol` (relative) of the least; `start` is (W, b) to begin from."""
    limits: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "history": history}
    if choice.solver == "dual":
        return solve_dual(task, task.loss.name, team, limits, random, choice.plan)
    problem = Problem(
        task.table,
        task.y,
        task.weights,
        task.loss,
        task.l2,
        task.intercept,
        team,
        b_l2=task.b_l2,
        fine=task.l1
        > 0,  # with an L1 penalty the gap grows with an error of the coefficients, not with its square
    )
    point = _first_point(problem, start)
    if choice.solver == "coordinate":
        b_l1 = task.l1 / task.scaling if task.scaling else 0.0
        point, good = minimise_l1(L1Problem(problem, task.l1, b_l1=b_l1), point, **limits)
    else:
        point, good = minimise(problem, point, choice.plan, random=random, **limits)
    return _solution(problem, point, history, good, choice.solver, penalised=task.l1 + task.l2 > 0)


def _solution(
    problem: Problem, point: Array, history: History, good: bool, solver: str, penalised: bool = True
) -> Solution:
    w, b = problem.split(point)
    if problem.loss.outputs > 1:
        w, b = smallest_multinomial(w, b, penalised=penalised)
    return solution_of(w, b, problem.table.shift, history, good, solver)


def solve_dual(
    task: LinearTask,
    loss: str,
    team: ThreadTeam,
    limits: dict[str, Any],
    random: np.random.RandomState,
    plan: SmoothPlan | None = None,
) -> Solution:
    """Solve by dual coordinate ascent; where that is slow, a smooth loss is finished by the plan of other steps."""
    intercept = "none" if not task.intercept else "penalised" if task.scaling else "free"
    table = task.table
    if isinstance(table, DenseTable):
        table = DenseTable(np.ascontiguousarray(table.values))
    problem = DualProblem(table, task.y, task.weights / task.l2, loss, intercept, task.scaling or 1.0, team)
    others = current_workers()
    shared = SharedAscent(problem, random, others) if others else None
    in_rows = plan is not None and plan.curvature == "rows"
    patience = _patience(table.rows, loss, in_rows=in_rows)
    best, epochs, good = ascend(problem, random=random, patience=patience, ascent=shared, **limits)
    if shared:
        best = replace(best, w=shared.whole())
    if good or loss == "hinge" or epochs >= limits["max_iter"]:
        return Solution(best.w[:, None], np.array([best.b]), limits["history"], good, "dual", epochs)
    if plan is None or not in_rows:
        plan = SmoothPlan("diagonal", total_rows(table.rows))
    else:
        table = task.table
    smooth = Problem(table, task.y, task.weights, task.loss, task.l2, task.intercept, team, b_l2=task.b_l2)
    point = _first_point(smooth, (best.w[:, None], np.array([best.b])))
    point, good = minimise(smooth, point, plan, random=random, **limits)
    return _solution(smooth, point, limits["history"], good, "newton" if in_rows else "lbfgs")


def _patience(rows: int, loss: str, *, in_rows: bool) -> Patience:
    """Return how long an ascent may take: on few wide rows, as long as the matrix of their products would."""
    if loss == "hinge":
        return Patience.without_end()
    return Patience(4, rows / ROWS_AN_EPOCH) if in_rows else Patience()


def _first_point(problem: Problem, start: tuple[Array, Array] | None) -> Array:
    if start is None:
        return np.zeros(problem.size)
    w, b = start
    shifted = b + problem.table.shift.astype(np.float64) @ w
    return np.concatenate([w.ravel(), shifted]) if problem.intercept else w.ravel().astype(np.float64)
