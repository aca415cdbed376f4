"""Linear models solved on an accelerator: they take the data that `fit` was given and return the coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from weft.learn import inputs
from weft.learn.gpu.hinge import minimise_hinge
from weft.learn.gpu.losses import TensorLoss
from weft.learn.gpu.problem import TensorLeastSquares, TensorProblem
from weft.learn.gpu.tables import SparseTensorTable, TensorTable
from weft.learn.gpu.tensors import classes_of, is_tensor_like, table_on, tensor_of, vector_on
from weft.learn.solvers.choice import ProblemShape, choose, smooth_plan
from weft.learn.solvers.coordinate import L1Problem, minimise_l1
from weft.learn.solvers.history import History
from weft.learn.solvers.least_squares import solve_gradients, solve_normal
from weft.learn.solvers.smooth import SmoothPlan, minimise
from weft.learn.solvers.solution import FitResult, Solution, smallest_multinomial, solution_of
from weft.learn.threads import ThreadTeam
from weft.learn.workers.joint_fit import refuse_workers

Array = np.ndarray[Any, Any]

WIDEST = 5000  # unknowns for which a matrix of their products is cheap


def solve_classes(
    model: Any,
    place: str,
    data: tuple[Any, Any, Any],
    memory: str | int | None,
    *,
    loss: str,
    penalties: tuple[float, float],
    scale: float = 1.0,
    scaling: float | None = None,
) -> tuple[Array, FitResult]:
    """Return the classes and the coefficients of a classifier; `loss` is "logistic", "squared_hinge" or "hinge".

    `penalties` are those of L1 and L2; `scale` multiplies the weights of all rows; `scaling` is as in `LinearTask`.
    """
    X, y, sample_weight = data
    refuse_workers(model, " where it is on an accelerator")
    with table_on(place, model, X, y, memory, centred=model.fit_intercept and loss == "logistic") as (
        table,
        y,
    ):
        if not is_tensor_like(y):
            check_classification_targets(y)
        classes, codes = classes_of(y, table.device)
        weights = scale * _weights(table, sample_weight, model.class_weight, classes, codes)
        solutions = [
            _minimised(model, table, kind, target, weights, penalties, scaling, History(output))
            for output, (kind, target) in enumerate(_class_problems(model, loss, len(classes), codes))
        ]
        return classes, FitResult(solutions, table.dtype)


def _class_problems(model: Any, loss: str, count: int, codes: Tensor) -> list[tuple[TensorLoss, Tensor]]:
    """Return the loss and the targets of each problem: one for all classes, or one for each."""
    if count > 2 and loss == "logistic" and model.multi_class == "multinomial":
        return [(TensorLoss("multinomial", count), codes)]
    each = range(count) if count > 2 else [1]
    return [(TensorLoss(loss), (codes == k) * 2 - 1) for k in each]


def _minimised(
    model: Any,
    table: TensorTable,
    loss: TensorLoss,
    target: Tensor,
    weights: Tensor,
    penalties: tuple[float, float],
    scaling: float | None,
    history: History,
) -> Solution:
    l1, l2 = penalties
    problem = TensorProblem(
        table,
        target.to(table.torch_dtype),
        weights,
        loss,
        l2,
        model.fit_intercept,
        ThreadTeam(1, None),
        b_l2=l2 / scaling**2 if scaling else 0.0,
        fine=l1 > 0 or loss.name == "hinge",
    )
    limits: dict[str, Any] = {"tol": float(model.tol), "max_iter": max(1, model.max_iter), "history": history}
    if l1 > 0:
        solver = "coordinate"
        lasso = L1Problem(problem, l1, b_l1=l1 / scaling if scaling else 0.0)
        point, good = minimise_l1(lasso, np.zeros(problem.size), **limits)
    else:
        random = check_random_state(model.random_state)
        solver, plan = _plan(model, table, loss, l2)
        if loss.name == "hinge":
            point, good = minimise_hinge(problem, plan, scaling=scaling, random=random, **limits)
        else:
            point, good = minimise(problem, np.zeros(problem.size), plan, random=random, **limits)
    w, b = problem.split(point)
    if loss.outputs > 1:
        w, b = smallest_multinomial(w, b, penalised=l1 + l2 > 0)
    return solution_of(w, b, table.shift, history, good, solver)


def _plan(model: Any, table: TensorTable, loss: TensorLoss, l2: float) -> tuple[str, SmoothPlan]:
    is_sparse = isinstance(table, SparseTensorTable)
    shape = ProblemShape(table.rows, table.columns, table.stored, is_sparse, loss.outputs, l2=l2)
    choice = choose(shape, getattr(model, "solver", "auto"))
    newton = choice.solver == "newton"
    plan = choice.plan if newton else smooth_plan(shape, "lbfgs")
    # A corner is where few rows are: a sample would miss it.
    plan = replace(plan, sample_rows=table.rows) if loss.name == "hinge" else plan
    return "newton" if newton else "lbfgs", plan


def solve_least_squares(
    model: Any,
    place: str,
    data: tuple[Any, Any, Any],
    memory: str | int | None,
    alpha: Callable[[int], Array],
    max_iter: int,
) -> FitResult:
    """Return the coefficients of least squares; `alpha(outputs)` are the L2 penalties."""
    X, y, sample_weight = data
    refuse_workers(model, " where it is on an accelerator")
    history, good = History(), True
    with table_on(place, model, X, y, memory, centred=model.fit_intercept) as (table, y):
        targets = _targets(table, y)
        weights = _weights(table, sample_weight, None, None, None)
        problem = TensorLeastSquares(
            table, targets, weights, alpha(targets.shape[1]), model.fit_intercept, ThreadTeam(1, None)
        )
        wide = table.columns > (1000 if isinstance(table, SparseTensorTable) else WIDEST)
        if wide:
            w, b, good = solve_gradients(problem, tol=model.tol, max_iter=max_iter, history=history)
        else:
            w, b = solve_normal(problem, problem.normal_equations(), tol=model.tol, history=history)
        solution = solution_of(w, b, table.shift, history, good, "cg" if wide else "cholesky")
        return FitResult([solution], table.dtype, flat=y.ndim == 1)


def solve_elastic_net(
    model: Any, place: str, data: tuple[Any, Any, Any], memory: str | int | None
) -> FitResult:
    """Return the coefficients of least squares with an L1 or a mixed penalty; `model` is an ElasticNet."""
    X, y, sample_weight = data
    refuse_workers(model, " where it is on an accelerator")
    before = np.atleast_2d(model.coef_) if model.warm_start and hasattr(model, "coef_") else None
    with table_on(place, model, X, y, memory, centred=model.fit_intercept) as (table, y):
        targets = _targets(table, y)
        weights = _weights(table, sample_weight, None, None, None)
        weights = weights / float(weights.sum(dtype=torch.float64))
        solutions = [
            _elastic_net(model, table, target, weights, before, k) for k, target in enumerate(targets.T)
        ]
        return FitResult(solutions, table.dtype, flat=y.ndim == 1)


def _elastic_net(
    model: Any, table: TensorTable, target: Tensor, weights: Tensor, before: Array | None, output: int
) -> Solution:
    target = target.contiguous()
    loss = TensorLoss("squared", quadratic=True)
    l1, l2 = model.alpha * model.l1_ratio, model.alpha * (1 - model.l1_ratio)
    smooth = TensorProblem(
        table, target, weights, loss, l2, model.fit_intercept, ThreadTeam(1, None), fine=True
    )
    point, history = np.zeros(smooth.size), History(output)
    if before is not None and before.shape[1] == table.columns and output < len(before):
        point[: table.columns] = before[output]
    if model.fit_intercept:
        point[-1] = float(weights.double() @ target.double())
    problem = L1Problem(smooth, l1, model.positive)
    point, good = minimise_l1(problem, point, tol=model.tol, max_iter=model.max_iter, history=history)
    w, b = smooth.split(point)
    return solution_of(w, b, table.shift, history, good, "coordinate")


def _targets(table: TensorTable, y: Any) -> Tensor:
    """(rows, outputs)."""
    targets = vector_on(table, y).reshape(table.rows, -1)
    if not bool(torch.isfinite(targets).all()):
        raise ValueError("Input y contains NaN or infinity")
    return targets


def _weights(
    table: TensorTable, sample_weight: Any, class_weight: Any, classes: Array | None, codes: Tensor | None
) -> Tensor:
    if sample_weight is None:
        weights = torch.ones(table.rows, dtype=table.torch_dtype, device=table.device)
    elif is_tensor_like(sample_weight):
        weights = vector_on(table, sample_weight)
        if weights.shape != (table.rows,) or not bool((weights >= 0).all()) or not bool(weights.any()):
            raise ValueError(
                "sample_weight must be one number of at least 0 for each row, and not zero everywhere"
            )
    else:
        weights = vector_on(table, inputs.checked_weights(sample_weight, np.empty((table.rows, 0))))
    if class_weight is None or classes is None or codes is None:
        return weights
    counts = torch.bincount(codes, weights.double(), minlength=len(classes)).cpu().numpy()
    # One row of each class, as heavy as all of its rows, tells what its rows are to be multiplied with.
    every = np.arange(len(classes))
    each = inputs.with_class_weights(counts, class_weight, classes, every) / np.where(counts > 0, counts, 1)
    return weights * torch.as_tensor(each, dtype=weights.dtype, device=weights.device)[codes]


def margins_on(model: Any, X: Any) -> Array:
    """X @ coef_.T + intercept_ of a table on an accelerator, multiplied there, brought home."""
    X = tensor_of(X)
    if X.ndim != 2 or X.shape[1] != model.n_features_in_:
        raise ValueError(f"X must have {model.n_features_in_} columns, got the shape {tuple(X.shape)}")
    dtype = X.dtype if X.dtype in (torch.float32, torch.float64) else torch.float32
    coef = torch.as_tensor(np.ascontiguousarray(model.coef_.T), dtype=dtype, device=X.device)
    product: Array = (X.to(dtype) @ coef).cpu().numpy()
    margins: Array = product + model.intercept_
    return margins
