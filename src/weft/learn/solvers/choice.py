"""Chooses the solver of a linear problem from its shape alone, before any data is read."""

from __future__ import annotations

from dataclasses import dataclass

from weft.learn.solvers.smooth import SmoothPlan

FULL = 1000  # unknowns up to which a whole Hessian is cheap beside passes over the data
FEW_ROWS = 1500  # rows of a wide table up to which the matrix of their products is
SMALL_WORK = 2_000_000_000  # multiplications that take less time than a few passes over a large table
FEW_CODES = 2  # rows for each one-hot column from which codes are solved by passes
WIDE = 256  # columns below which the Hessian of the columns is cheap, however few rows there are

# scikit-learn's names of solvers, each with the nearest solver here; the names in OPEN mean "auto".
ALIASES = {
    "newton-cholesky": "newton",
    "newton-cg": "newton",
    "lbfgs": "lbfgs",
    "newton": "newton",
    "dual": "dual",
    "coordinate": "coordinate",
}
OPEN = ("auto", "liblinear", "sag", "saga")


@dataclass(frozen=True)
class ProblemShape:
    """The size and the penalties of a problem, by which its solver is chosen."""

    rows: int
    columns: int
    stored: int  # numbers that the table stores: nonzeros of a sparse table
    sparse: bool
    outputs: int = 1
    l1: float = 0.0
    l2: float = 1.0
    at_hand: bool = False  # all rows are in this process's memory
    groups: int = 0  # groups of columns that are one-hot codes of a category


@dataclass(frozen=True)
class Choice:
    """A solver ("newton", "lbfgs", "dual" or "coordinate"), and the plan of the smooth ones."""

    solver: str
    plan: SmoothPlan


def choose(shape: ProblemShape, asked: str = "auto", *, dual: bool = False) -> Choice:
    """Return the solver for a smooth loss with L1 and L2 penalties; one the user `asked` for wins where it applies."""
    wanted = "dual" if dual else ALIASES.get(asked)
    _check(shape, wanted)
    if shape.l1 > 0:
        return Choice("coordinate", smooth_plan(shape, wanted))
    plan = smooth_plan(shape, wanted)
    if wanted in (None, "coordinate"):
        wide = plan.curvature == "diagonal" if shape.sparse else _long_rows(shape)
        dual = wide and shape.outputs == 1 and shape.l2 > 0 and not _tall_codes(shape)
        wanted = "dual" if dual else "lbfgs" if plan.curvature == "diagonal" else "newton"
    return Choice(wanted, plan)


def smooth_plan(shape: ProblemShape, wanted: str | None = None) -> SmoothPlan:
    """Return the most complete curvature that is cheap, and the size of the sample to take it from."""
    side = shape.columns + 1
    if wanted == "lbfgs":
        return SmoothPlan("diagonal", shape.rows)
    if _in_rows(shape) and wanted in (None, "dual"):
        return SmoothPlan("rows", shape.rows)
    if side * shape.outputs <= FULL or wanted == "newton":
        return SmoothPlan("full", _sample_rows(side * shape.outputs, shape.rows))
    if side <= FULL:
        return SmoothPlan("output", _sample_rows(side, shape.rows))
    return SmoothPlan("diagonal", shape.rows)


def _in_rows(shape: ProblemShape) -> bool:
    """Return whether second derivatives are cheaper in the space of rows: a dense, wide table of few rows."""
    dense = shape.at_hand and not shape.sparse
    return dense and shape.l2 > 0 and shape.columns > WIDE and shape.rows <= min(FEW_ROWS, shape.columns // 2)


def _long_rows(shape: ProblemShape) -> bool:
    """Return whether rows of a dense table are so long that they are nearly orthogonal, and an ascent takes few epochs.

    Where their products cost little, Newton's method on those gives more digits.
    """
    return _in_rows(shape) and shape.rows**2 * shape.columns > SMALL_WORK


def _tall_codes(shape: ProblemShape) -> bool:
    """Return whether a table is one-hot codes with many rows for each: their products are nearly a diagonal.

    Then ten passes with that diagonal do what takes an ascent twenty epochs or more, each as long as two passes.
    """
    return shape.groups > 1 and shape.rows >= FEW_CODES * shape.columns


def _sample_rows(side: int, rows: int) -> int:
    """Return the rows to sample second derivatives from, for matrices of order `side`.

    100 rows for each unknown give second derivatives to within a fifth. Wide tables make do with 20; tall tables take
    up to 400 while that costs less than half a pass.
    """
    each = min(100, max(20, 20_000 // side))
    each = max(each, min(4 * each, 4 * rows // side**2))
    return max(2000, each * side)


def _check(shape: ProblemShape, wanted: str | None) -> None:
    if shape.l1 > 0 and wanted not in (None, "coordinate"):
        raise ValueError(
            f"an L1 penalty must be left to solver='auto' or 'coordinate', got {wanted!r}; "
            "set l1_ratio=0 to use the others"
        )
    if wanted == "dual" and (shape.outputs > 1 or shape.l2 <= 0):
        raise ValueError(
            "the dual solver must have an L2 penalty and one output, got "
            f"{shape.outputs} outputs and a penalty of {shape.l2:g}; use solver='auto', or multi_class='ovr'"
        )
