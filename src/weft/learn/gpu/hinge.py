"""The hinge loss on an accelerator: its corner is rounded off, less and less, until the true one's duality gap closes.

    s_i = min(max(1 - y_i * margin_i, 0) / width, 1)       the share of its weight that row i has in the dual

At the minimum of the rounded problem w is the sum of weight_i * s_i * y_i * x_i, so that those shares are a point of
the hinge's own dual, and the gap is exact: about width * sum of weight_i * s_i * (1 - s_i), which only rows in the
corner add to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from weft.learn.gpu.problem import TensorProblem
from weft.learn.solvers.history import History
from weft.learn.solvers.smooth import SmoothPlan, minimise

Array = np.ndarray[Any, Any]

CLOSEST = 1e-7  # of the tolerance, that of a rounded problem
NARROWER = 8.0
NARROWEST = 1e3  # roundings of a margin: in a narrower corner it is chance which rows are there


def minimise_hinge(
    problem: TensorProblem,
    plan: SmoothPlan,
    *,
    scaling: float | None,
    tol: float,
    max_iter: int,
    history: History,
    random: np.random.RandomState,
) -> tuple[Array, bool]:
    """The point whose objective is within `tol` (relative) of the least, and whether it was reached."""
    point, width, steps = np.zeros(problem.size), 1.0, 0
    best, least, at, wide = point, np.inf, (0.0, 0.0), width
    narrowest = NARROWEST * float(np.finfo(problem.table.dtype).eps)
    # The dual point is off by the whole slope, which is steep where the corner is narrow. Newton's last steps, where it
    # knows which rows are in the corner, are free of it.
    close = CLOSEST if plan.curvature == "full" else 1e-3
    while True:
        rounded = replace(problem, loss=replace(problem.loss, width=width))
        inner = History()
        point, _ = minimise(
            rounded,
            point,
            plan,
            tol=close * tol,
            max_iter=max(1, max_iter - steps),
            history=inner,
            random=random,
        )
        steps += len(inner.steps)
        found = _certificate(rounded, point, scaling)
        relative = history.add(*found)
        if relative < least:
            best, least, at, wide = point, relative, found, width
        stuck = width / NARROWER < narrowest or relative > 4 * least
        if stuck and close > CLOSEST and least > tol and steps < max_iter:
            point, width, close = best, wide, max(CLOSEST, 0.01 * close)  # from the best one on, more exactly
            continue
        if relative <= tol or steps >= max_iter or stuck:
            if relative > least:
                history.add(*at)
            return best, least <= tol
        width /= NARROWER


def _certificate(rounded: TensorProblem, point: Array, scaling: float | None) -> tuple[float, float]:
    """The objective of the hinge as it is, and its duality gap, by one pass."""
    value, gradient, slopes = rounded.value_gradient_and_slopes(point)
    w, b = rounded.split(point)
    width, weights = rounded.loss.width, rounded.weights.double()
    shares = slopes.double().abs() / weights.clamp(min=1e-300)
    value += width * float(weights @ (shares - shares * shares / 2))
    v = rounded.l2 * w[:, 0] - gradient[: len(w)]
    bound = rounded.loss.dual_value(slopes, rounded.y, rounded.weights) - float(v @ v) / (2 * rounded.l2)
    if rounded.intercept and scaling:
        push = rounded.b_l2 * b[0] - gradient[-1]
        bound -= (scaling * float(push)) ** 2 / (2 * rounded.l2)
    return value, max(value - bound, 0.0)
