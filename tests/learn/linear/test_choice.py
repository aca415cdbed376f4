"""Which solver is chosen: a pure decision."""

from __future__ import annotations

import pytest

from weft.learn.solvers.choice import ProblemShape, choose
from weft.learn.solvers.smooth import SmoothPlan
from weft.learn.threads import thread_count


@pytest.mark.parametrize(
    ("shape", "solver", "curvature"),
    [
        (ProblemShape(500_000, 100, 50_000_000, sparse=False), "newton", "full"),
        (ProblemShape(1_000_000, 1_000_000, 39_000_000, sparse=True), "dual", "diagonal"),
        (ProblemShape(1_000_000, 1_000_000, 39_000_000, sparse=True, l2=0), "lbfgs", "diagonal"),
        (ProblemShape(1_000, 50_000, 50_000_000, sparse=False), "lbfgs", "diagonal"),
        (ProblemShape(1_000, 50_000, 50_000_000, sparse=False, at_hand=True), "dual", "rows"),
        (ProblemShape(1_000, 50_000, 50_000_000, sparse=False, at_hand=True, outputs=3), "newton", "rows"),
        (ProblemShape(100, 50_000, 5_000_000, sparse=False, at_hand=True), "newton", "rows"),
        (ProblemShape(5_000, 50_000, 250_000_000, sparse=False, at_hand=True), "lbfgs", "diagonal"),
        (ProblemShape(1_000, 50_000, 50_000_000, sparse=False, l2=0, at_hand=True), "lbfgs", "diagonal"),
        (ProblemShape(10_000, 500, 5_000_000, sparse=False, outputs=20), "newton", "output"),
        (ProblemShape(10_000, 50_000, 1_000_000, sparse=True, outputs=20), "lbfgs", "diagonal"),
        (ProblemShape(10_000, 50_000, 1_000_000, sparse=True, l1=1.0), "coordinate", "diagonal"),
    ],
)
def test_the_shape_decides(shape: ProblemShape, solver: str, curvature: str) -> None:
    choice = choose(shape)
    assert (choice.solver, choice.plan.curvature) == (solver, curvature)


def test_what_is_asked_for_wins() -> None:
    tall = ProblemShape(500_000, 100, 50_000_000, sparse=False)
    assert choose(tall, "lbfgs").plan == SmoothPlan("diagonal", 500_000)
    assert choose(tall, dual=True).solver == "dual"
    assert choose(tall, "saga") == choose(tall)


@pytest.mark.parametrize(
    ("rows", "samples"), [(10**5, [2400, 10_000, 20_000]), (10**7, [2400, 40_000, 40_000])]
)
def test_a_sample_has_more_rows_for_each_unknown_where_they_are_cheap(rows: int, samples: list[int]) -> None:
    shapes = (ProblemShape(rows, columns, rows * columns, sparse=False) for columns in (5, 99, 999))
    assert [choose(shape).plan.sample_rows for shape in shapes] == samples


def test_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert thread_count(None, stored=1000) == 1
    assert thread_count(None, stored=10**8) == 8
    assert thread_count(3, stored=1000) == 3
    assert thread_count(-2, stored=1000) == 7
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert thread_count(None, stored=10**8) == 2
