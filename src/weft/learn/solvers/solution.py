"""The coefficients that a solver found for one problem, with the history of the solve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.learn.solvers.history import History

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Solution:
    """Coefficients in the units of the table's own columns: a shift of the columns is already undone."""

    coef: Array  # (columns, outputs)
    intercept: Array  # (outputs,)
    history: History
    converged: bool  # whether the gap to the optimum fell to the tolerance
    solver: str  # the solver that found them, as in `solver_`
    passes: int  # over the data, at least 1


@dataclass(frozen=True)
class FitResult:
    """The solutions of all problems of one fit: one for all outputs together, or one for each."""

    solutions: Sequence[Solution]
    dtype: Any  # of the table, and so of `coef_` and `intercept_`
    flat: bool = False  # whether the target was one-dimensional, and `coef_` is to be


def solution_of(w: Array, b: Array, shift: Array, history: History, converged: bool, solver: str) -> Solution:
    """Return the solution for a table whose columns had `shift` taken off: X w + (b - shift w)."""
    passes = max(1, len(history.steps))
    return Solution(w, b - shift.astype(np.float64) @ w, history, converged, solver, passes)


def smallest_multinomial(w: Array, b: Array, *, penalised: bool) -> tuple[Array, Array]:
    """Return the smallest of all intercepts (and unpenalised coefficients) with the same softmax.

    Softmax depends on differences of margins alone, so that one number may be added to all outputs of a column.
    """
    return (w if penalised else w - w.mean(axis=1, keepdims=True)), b - b.mean()
