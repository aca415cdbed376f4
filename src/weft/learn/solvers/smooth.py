"""Minimises smooth problems in few passes over the data.

Newton's method on a sample of the rows finds a point near the minimum and the curvature there. Full passes then take
quasi-Newton steps from that curvature, corrected by the gradient change of each step (limited-memory BFGS). Two or
three passes suffice for a tall table. On small data the sample is all rows, and this is Newton's method; for wide data
the curvature is the diagonal alone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.learn.solvers.curvature import Curvature, curvature_at
from weft.learn.solvers.history import History
from weft.learn.solvers.problem import Problem
from weft.learn.solvers.row_space import minimum_of_products
from weft.learn.workers.group import sum_over_workers

Array = np.ndarray[Any, Any]

PAIRS = 12  # steps whose gradient changes L-BFGS keeps
PATIENCE = 6  # full passes with one sampled curvature, before a larger sample is worth its cost
FEWEST = 10  # rows for each unknown in the smallest sample
THIRD = 3  # one in so many blocks is read for a rough gradient
ARMIJO = 1e-4  # share of the predicted decrease that a step must reach
FLOOR = 1e-6  # share of tol * null objective below which a gap counts as 0: where separable data without a penalty ends


@dataclass(frozen=True)
class SmoothPlan:
    """The curvature that a smooth problem is solved with, and the sample it is taken from."""

    curvature: str  # "full", "output", "rows" or "diagonal"
    sample_rows: int  # rows that second derivatives are taken from


@dataclass
class Iterate:
    """A point, and its objective and gradient from one full pass."""

    point: Array
    value: float
    gradient: Array


def minimise(
    problem: Problem,
    point: Array,
    plan: SmoothPlan,
    *,
    tol: float,
    max_iter: int,
    history: History,
    random: np.random.RandomState,
) -> tuple[Array, bool]:
    """Return a point whose objective is within `tol` (relative) of the least, and whether that was reached."""
    search = _QuasiNewton(problem, plan, history, tol * FLOOR * problem.null_value())
    rows = plan.sample_rows
    sample = problem.sample(rows, random)
    curvature: Curvature | None = None
    if plan.curvature == "rows" and problem.loss.outputs == 1:
        point = minimum_of_products(problem, problem.row_products, tol)
    if sample is not problem:
        alone = replace(sample, team=problem.team.alone())  # small enough for one thread
        point, curvature = _from_samples(alone, point, plan, search.floor, random, max_iter)
        point = _nearer(problem, point, curvature)
    while True:
        exact = sample is problem
        left = max_iter - len(history.steps)
        search.curvature = None if exact else curvature or curvature_at(sample, point, plan.curvature)
        point, done = search.run(point, exact=exact, tol=tol, steps=left if exact else min(PATIENCE, left))
        if done or len(history.steps) >= max_iter:
            return point, done
        if exact:  # no step lowers the objective further
            return point, False
        rows *= 4
        sample, curvature = problem.sample(rows, random), None


def _from_samples(
    sample: Problem, point: Array, plan: SmoothPlan, floor: float, random: np.random.RandomState, steps: int
) -> tuple[Array, Curvature]:
    """Return the minimum of a sample and the curvature there.

    Parts of the sample are minimised one after the other, each four times larger and with the curvature of the part
    before; the smallest by Newton's method.
    """
    rows = int(sum_over_workers([float(sample.table.rows)])[0])
    # A row says as much of several classes as several rows of two.
    fewest = FEWEST * sample.size * min(1.0, 3 / sample.loss.outputs)
    part = sample.sample(rows // 4, random) if rows // 4 >= fewest else sample
    search = _QuasiNewton(sample, plan, History(), floor)
    # The objective at a sample's minimum is off by about unknowns / (2 * rows): a tenth of that is close enough.
    tol = sample.size / rows / 20
    if part is not sample:
        near, search.curvature = _from_samples(part, point, plan, floor, random, steps)
        near, good = search.run(near, exact=False, tol=tol, steps=PATIENCE)
        if good:
            return near, curvature_at(sample, near, plan.curvature)
    # A part whose classes can be separated has no minimum, and says nothing about the whole: begin anew.
    point, _ = search.run(point, exact=True, tol=tol, steps=steps)
    return point, curvature_at(sample, point, plan.curvature)


def _nearer(problem: Problem, point: Array, curvature: Curvature) -> Array:
    """Return the point after one step by a third of the rows: most of the sample's error, for a third of a pass."""
    (blocks,) = sum_over_workers([float(len(problem.table.blocks()))])
    if blocks < 10 * THIRD:
        return point
    return point - curvature.solve(problem.rough_gradient(point, THIRD))


class _QuasiNewton:
    """Quasi-Newton steps on one problem; `curvature` is None where `run` takes it from the problem itself."""

    def __init__(self, problem: Problem, plan: SmoothPlan, history: History, floor: float):
        self.problem = problem
        self.plan = plan
        self.history = history
        self.floor = floor
        self.curvature: Curvature | None = None
        self.noise = 4 * float(np.finfo(problem.table.dtype).eps)

    def run(self, point: Array, *, exact: bool, tol: float, steps: int) -> tuple[Array, bool]:
        """Take up to `steps` steps; return the last point and whether it converged. `exact`: renew the curvature."""
        # A diagonal is cheap but inaccurate: kept for 20 steps, the L-BFGS pairs correct it.
        whole = self.plan.curvature == "full" or (
            self.plan.curvature == "rows" and self.problem.loss.outputs == 1
        )
        renew = 1 if exact and whole else 20
        state = Iterate(point, *self.problem.value_and_gradient(point))
        pairs: deque[tuple[Array, Array]] = deque(maxlen=PAIRS)
        curvature = self.curvature
        for step in range(max(1, steps)):
            if exact and step % renew == 0:
                curvature = curvature_at(self.problem, state.point, self.plan.curvature)
                pairs.clear()
            assert curvature is not None
            direction = -two_loop(state.gradient, pairs, curvature)
            slope = float(state.gradient @ direction)
            # Half the Newton decrement is the gap of a quadratic; a sampled curvature may be off by a factor of two.
            gap = -slope / 2 if renew == 1 and exact else -slope
            relative = self.history.add(state.value, gap)
            if relative <= tol or gap <= self.floor:
                # On small data a pass costs little, and a Newton step doubles the correct digits.
                small = exact and self.plan.curvature == "full"
                last = self._step(state, direction, slope) if small else None
                return (last or state).point, True
            ahead = self._step(state, direction, slope)
            if ahead is None:
                return state.point, relative <= self.noise * len(state.point) ** 0.5 * 8
            _remember(pairs, ahead.point - state.point, ahead.gradient - state.gradient)
            state = ahead
        return state.point, False

    def _step(self, state: Iterate, direction: Array, slope: float) -> Iterate | None:
        """Return the first of ever shorter steps that lowers the objective; None where rounding hides a decrease."""
        length = 1.0
        for _ in range(30):
            point = state.point + length * direction
            value, gradient = self.problem.value_and_gradient(point)
            if value <= state.value + ARMIJO * length * slope:
                return Iterate(point, value, gradient)
            if abs(value - state.value) <= self.noise * abs(value):
                # Rounding hides the difference of the values; the slope along the step still shows it.
                return Iterate(point, value, gradient) if abs(gradient @ direction) < -slope / 2 else None
            length /= 2 if length > 0.1 else 4
        return None


def two_loop(gradient: Array, pairs: deque[tuple[Array, Array]], curvature: Curvature) -> Array:
    """Return H⁻¹ g by the two-loop recursion of L-BFGS, from (step, gradient change) pairs and an initial curvature."""
    q = gradient.copy()
    taken = []
    for s, y in reversed(pairs):
        a = (s @ q) / (s @ y)
        q -= a * y
        taken.append(a)
    r = curvature.solve(q)
    for (s, y), a in zip(pairs, reversed(taken), strict=True):
        r += (a - (y @ r) / (s @ y)) * s
    return r


def _remember(pairs: deque[tuple[Array, Array]], step: Array, change: Array) -> None:
    """Keep a pair, unless its curvature is lost in rounding."""
    if step @ change > 1e-12 * np.linalg.norm(step) * np.linalg.norm(change):
        pairs.append((step, change))
