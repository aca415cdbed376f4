"""The method by which a tree is grown, decided from the shape: exact search over sorted values, or histograms."""

from __future__ import annotations

from dataclasses import dataclass

SMALL = (
    10_000  # rows up to which the exact method is quick: then our trees are scikit-learn's, split for split
)
METHODS = ("auto", "exact", "hist")
CRITERIA = ("gini", "entropy", "log_loss", "squared_error")


@dataclass(frozen=True)
class TreeTask:
    """The facts that the choice of a method depends on."""

    rows: int
    outputs: int = 1
    criterion: object = "gini"
    splitter: object = "best"
    constrained: bool = False  # there are monotonic constraints


def choose_method(task: TreeTask, asked: str = "auto") -> str:
    """Either "exact" or "hist"; what histograms cannot do is left to the exact method, unless they were asked for."""
    reason = _hindrance(task)
    if asked == "hist" and reason:
        raise ValueError(f"tree_method='hist' must have {reason}; use tree_method='auto'")
    if asked != "auto":
        return asked
    return "exact" if reason or task.rows <= SMALL else "hist"


def _hindrance(task: TreeTask) -> str:
    if task.outputs > 1:
        return f"one output, got {task.outputs}"
    if task.criterion not in CRITERIA:
        return f"a criterion out of {', '.join(CRITERIA)}, got {task.criterion!r}"
    if task.splitter != "best":
        return f"splitter='best', got {task.splitter!r}"
    return "no monotonic_cst" if task.constrained else ""
