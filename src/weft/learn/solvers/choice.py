"""Which solver suits a problem: decided from its shape alone, before any data is read."""

from __future__ import annotations

from dataclasses import dataclass

from weft.learn.solvers.smooth import SmoothPlan

# The order of the largest matrix of second derivatives that is cheap beside passes over the data.
FULL = 1000

# scikit-learn's names, each with what is nearest to it here; those not listed leave the choice to us.
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
    """What the choice depends on."""

    rows: int
    columns: int
    stored: int
    sparse: bool
    outputs: int = 1
    l1: float = 0.0
    l2: float = 1.0


@dataclass(frozen=True)
class Choice:
    """A solver ("newton", "lbfgs", "dual", "coordinate"), and how the smooth ones look at the data."""

    solver: str
    plan: SmoothPlan


def choose(shape: ProblemShape, asked: str = "auto", *, dual: bool = False) -> Choice:
    """The solver for a smooth loss with L1 and L2 penalties; `asked` wins where it can do the work."""
    wanted = "dual" if dual else ALIASES.get(asked)
    _check(shape, wanted)
    if shape.l1 > 0:
        return Choice("coordinate", smooth_plan(shape, wanted))
    plan = smooth_plan(shape, wanted)
    if wanted in (None, "coordinate"):
        wide = shape.sparse and shape.outputs == 1 and shape.l2 > 0 and plan.curvature == "diagonal"
        wanted = "dual" if wide else "lbfgs" if plan.curvature == "diagonal" else "newton"
    return Choice(wanted, plan)


def smooth_plan(shape: ProblemShape, wanted: str | None = None) -> SmoothPlan:
    """The finest curvature that is cheap, and a sample just large enough for it."""
    side = shape.columns + 1
    if wanted == "lbfgs":
        return SmoothPlan("diagonal", shape.rows)
    if side * shape.outputs <= FULL or wanted == "newton":
        return SmoothPlan("full", _sample_rows(side * shape.outputs, shape.rows))
    if side <= FULL:
        return SmoothPlan("output", _sample_rows(side, shape.rows))
    return SmoothPlan("diagonal", shape.rows)


def _sample_rows(side: int, rows: int) -> int:
    """A hundred rows for each unknown give second derivatives to a fifth; of wide tables fewer must do, and of tall
    ones more cost less than half a pass.
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
