"""weft.learn beside its rivals: CPU seconds until the objective is within a given gap of the optimum.

    python benchmarks/learn.py                        every task, one thread, gap 1e-5
    python benchmarks/learn.py --tasks dense,lasso    some of them
    python benchmarks/learn.py --scale 0.1            on a tenth of the rows (and columns of the sparse table)
    python benchmarks/learn.py --threads 2            our own one thread against two, sparse logistic, wall seconds
    python benchmarks/learn.py --tasks tree8,tree16,boosting,forest      see learn_trees.py

Everyone runs in this process, in turns; the best of --repeats counts. Each rival gets a ladder of tolerances or epochs,
and the loosest whose objective, computed here in float64, is within the gap is the one that is timed. Rivals that are
not installed are left out: scikit-learn is needed, scikit-learn-intelex, celer and snapml are not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROOT / "src"), str(_ROOT)]
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is loaded: one thread means one

import numpy as np  # noqa: E402
from benchmarks import claims  # noqa: E402
from scipy import sparse  # noqa: E402
from sklearn.linear_model import Lasso as SkLasso  # noqa: E402
from sklearn.linear_model import LogisticRegression as SkLogistic  # noqa: E402
from sklearn.linear_model import Ridge as SkRidge  # noqa: E402
from sklearn.svm import LinearSVC as SkLinearSVC  # noqa: E402

from weft.learn import Lasso, LinearSVC, LogisticRegression, Ridge  # noqa: E402

Array = np.ndarray[Any, Any]
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
EPOCHS = (2, 3, 4, 6, 8, 12, 16, 24, 48, 96, 200)


@dataclass
class Runner:
    """One way to solve a task; `make` takes a tolerance, or a number of epochs where that is the finer dial."""

    name: str
    make: Callable[[float], Any]
    ladder: tuple[float, ...] = TOLERANCES


@dataclass
class Task:
    """A table, the objective that all are judged by, and who takes part. The first runner is ours."""

    name: str
    goal: float  # how many times faster than the best rival we must be
    X: Any
    y: Array
    objective: Callable[[Any], float]
    runners: list[Runner]


def tasks(scale: float) -> Iterator[Callable[[], Task]]:
    rows, wide = int(500_000 * scale), int(1_000_000 * scale)
    yield lambda: dense_logistic(rows, 100)
    yield lambda: dense_logistic(rows, 100, white=True)
    yield lambda: sparse_logistic(wide, wide)
    yield lambda: ridge(rows, 100)
    yield lambda: lasso(int(100_000 * scale), 1000)
    yield lambda: sparse_svm(wide, wide)


def dense_logistic(rows: int, columns: int, *, white: bool = False) -> Task:
    X, scores = dense_table(rows, columns, white=white)
    y = (scores + np.random.default_rng(1).logistic(size=rows) > 0).astype(np.int64)
    runners = [
        Runner(
            "weft", lambda tol: LogisticRegression(tol=tol, fit_intercept=False, n_jobs=1, random_state=0)
        ),
        Runner("sklearn newton-cholesky", lambda tol: sk_logistic("newton-cholesky", tol)),
        Runner("sklearn lbfgs", lambda tol: sk_logistic("lbfgs", tol)),
    ]
    if find_spec("sklearnex"):
        runners.append(Runner("sklearnex lbfgs", intel_logistic))
    if find_spec("snapml"):
        runners.append(Runner("snapml primal", lambda tol: snap_logistic(tol, dual=False)))
    return Task("white" if white else "dense", 8, X, y, lambda model: logistic_value(model, X, y), runners)


def sparse_logistic(rows: int, columns: int) -> Task:
    X, y = sparse_table(rows, columns)
    runners = [
        Runner(
            "weft", lambda tol: LogisticRegression(tol=tol, fit_intercept=False, n_jobs=1, random_state=0)
        ),
        Runner("liblinear dual", liblinear_dual, EPOCHS),
    ]
    if find_spec("snapml"):
        runners.append(Runner("snapml dual", lambda tol: snap_logistic(tol, dual=True)))
    return Task("sparse", 3, X, y, lambda model: logistic_value(model, X, y), runners)


def ridge(rows: int, columns: int) -> Task:
    X, scores = dense_table(rows, columns)
    y = (scores + np.random.default_rng(1).standard_normal(rows)).astype(np.float32)
    runners = [
        Runner("weft", lambda tol: Ridge(10.0, tol=tol, n_jobs=1)),
        Runner("sklearn cholesky", lambda tol: SkRidge(10.0, solver="cholesky"), (1.0,)),
    ]
    return Task("ridge", 1.5, X, y, lambda model: ridge_value(model, X, y), runners)


def lasso(rows: int, columns: int) -> Task:
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, columns), dtype=np.float32)
    coef = random.standard_normal(columns) * (random.random(columns) < 0.1)
    y = (X @ coef + 0.5 * random.standard_normal(rows)).astype(np.float32)
    alpha = 0.002
    runners = [
        Runner("weft", lambda tol: Lasso(alpha, tol=tol, fit_intercept=False, n_jobs=1)),
        Runner("sklearn Gram", lambda tol: SkLasso(alpha, tol=tol, precompute=True, fit_intercept=False)),
    ]
    if find_spec("celer"):
        runners.append(Runner("celer", lambda tol: celer_lasso(alpha, tol)))
    return Task("lasso", 1.5, X, y, lambda model: lasso_value(model, X, y, alpha), runners)


def sparse_svm(rows: int, columns: int) -> Task:
    X, y = sparse_table(rows, columns)
    runners = [
        Runner(
            "weft",
            lambda tol: LinearSVC(loss="hinge", tol=tol, fit_intercept=False, n_jobs=1, random_state=0),
        ),
        Runner("sklearn LinearSVC", sk_svm, EPOCHS),
    ]
    return Task("svm", 3, X, y, lambda model: hinge_value(model, X, y), runners)


def dense_table(rows: int, columns: int, *, white: bool = False) -> tuple[Array, Array]:
    """Columns of unit size that hang together, as measured ones do; or white ones, which suit every solver."""
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, columns), dtype=np.float32)
    if not white:
        turn = np.linalg.qr(random.standard_normal((columns, columns)))[0]
        spread = (
            np.arange(1, columns + 1) ** -1.0
        )  # standard deviations along the axes: from 1 to 1 / columns
        X = X @ (spread[:, None] * turn).astype(np.float32)
        X /= X.std(axis=0)
    scores = X @ random.standard_normal(columns)
    return X, 2 * scores / scores.std()


def sparse_table(rows: int, columns: int, per_row: int = 39) -> tuple[Any, Array]:
    """Unit rows whose columns follow a power law, as clicks do."""
    random = np.random.default_rng(0)
    indices = (columns * random.random((rows, per_row)) ** 4).astype(np.int32)
    indptr = np.arange(0, rows * per_row + 1, per_row, dtype=np.int32)
    data = np.full(rows * per_row, per_row**-0.5, np.float32)
    X = sparse.csr_matrix((data, indices.ravel(), indptr), shape=(rows, columns))
    X.sum_duplicates()
    scores = X @ (2 * random.standard_normal(columns))
    return X, (scores + random.logistic(size=rows) > 0).astype(np.int64)


def sk_logistic(solver: str, tol: float) -> Any:
    return SkLogistic(solver=solver, tol=tol, fit_intercept=False, max_iter=10_000)


def liblinear_dual(epochs: float) -> Any:
    return SkLogistic(solver="liblinear", dual=True, tol=1e-9, fit_intercept=False, max_iter=int(epochs))


def sk_svm(epochs: float) -> Any:
    return SkLinearSVC(loss="hinge", tol=1e-9, fit_intercept=False, max_iter=int(epochs))


def intel_logistic(tol: float) -> Any:
    from sklearnex.linear_model import LogisticRegression as IntelLogistic

    return IntelLogistic(solver="lbfgs", tol=tol, fit_intercept=False, max_iter=10_000)


def snap_logistic(tol: float, dual: bool) -> Any:
    from snapml import LogisticRegression as SnapLogistic

    return SnapLogistic(tol=tol, dual=dual, fit_intercept=False, max_iter=10_000, n_jobs=1)


def celer_lasso(alpha: float, tol: float) -> Any:
    from celer import Lasso as CelerLasso

    return CelerLasso(alpha=alpha, tol=tol, fit_intercept=False)


def logistic_value(model: Any, X: Any, y: Array) -> float:
    coef = np.ravel(model.coef_).astype(np.float64)
    return float(np.logaddexp(0, -np.where(y > 0, 1, -1) * (X @ coef)).sum() + coef @ coef / 2)


def hinge_value(model: Any, X: Any, y: Array) -> float:
    coef = np.ravel(model.coef_).astype(np.float64)
    return float(np.maximum(0, 1 - np.where(y > 0, 1, -1) * (X @ coef)).sum() + coef @ coef / 2)


def ridge_value(model: Any, X: Array, y: Array) -> float:
    coef = np.ravel(model.coef_).astype(np.float64)
    off = y - X @ coef - model.intercept_
    return float(off @ off / 2 + 10.0 * (coef @ coef) / 2)


def lasso_value(model: Any, X: Array, y: Array, alpha: float) -> float:
    coef = np.ravel(model.coef_).astype(np.float64)
    off = y - X @ coef
    return float(off @ off / (2 * len(y)) + alpha * np.abs(coef).sum())


def timed(runner: Runner, tol: float, task: Task) -> tuple[float, float]:
    """CPU seconds of a fit, and its objective."""
    began = time.process_time()
    model = runner.make(tol).fit(task.X, task.y)
    return time.process_time() - began, task.objective(model)


def measure(task: Task, gap: float, repeats: int) -> float:
    """Print the table of one task; returns how many times faster than the best rival ours is."""
    ours = task.runners[0]
    timed(ours, 0.1, task)  # compiles, or loads what was compiled
    optimum = timed(ours, gap / 1000, task)[1]  # as near as float32 allows
    settings = {runner.name: loosest(runner, task, optimum, gap) for runner in task.runners}
    best = dict.fromkeys(settings, np.inf)
    reached = dict.fromkeys(settings, np.inf)
    for _ in range(repeats):
        for runner in task.runners:
            tol = settings[runner.name]
            if tol is not None:
                seconds, value = timed(runner, tol, task)
                best[runner.name] = min(best[runner.name], seconds)
                reached[runner.name] = max((value - optimum) / optimum, 0.0)
    rivals = [seconds for name, seconds in best.items() if name != ours.name]
    ratio = min(rivals) / best[ours.name]
    print(f"{task.name}: {task.X.shape[0]:,} x {task.X.shape[1]:,}, to a gap of {gap:g}")
    for name, seconds in best.items():
        told = (
            f"{seconds:8.3f} s   gap {reached[name]:.1e}   at {settings[name]:g}"
            if settings[name]
            else "  not reached"
        )
        print(f"  {name:26}{told}   {seconds / best[ours.name]:.1f}x")
    print(f"  {ratio:.1f}x faster than the best rival; must be {task.goal:g}x", flush=True)
    return ratio


def loosest(runner: Runner, task: Task, optimum: float, gap: float) -> float | None:
    """The first tolerance of the ladder that gets within the gap; ours is held to what it says."""
    if runner is task.runners[0]:
        return gap
    for tol in runner.ladder:
        if timed(runner, tol, task)[1] <= optimum * (1 + gap):
            return tol
    return None


def compare_threads(count: int, scale: float, gap: float, repeats: int) -> None:
    X, y = sparse_table(int(1_000_000 * scale), int(1_000_000 * scale))
    best: dict[int, float] = {}
    for turn in range(repeats + 1):
        for threads in (1, count):
            began = time.perf_counter()
            model = LogisticRegression(tol=gap, fit_intercept=False, n_jobs=threads, random_state=0).fit(X, y)
            seconds = time.perf_counter() - began
            if turn:  # the first compiles
                best[threads] = min(best.get(threads, np.inf), seconds)
                print(
                    f"  {threads} threads: {seconds:.2f} s, {model.n_iter_[0]} epochs, gap {model.history_[-1].gap:.1e}"
                )
    print(f"sparse logistic: {best[1] / best[count]:.2f}x faster with {count} threads; must be 1.5x with 2")
    if count == 2:
        print("\n" + claims.report("learn", {"threads": best[1] / best[count]}), end="")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default="dense,white,sparse,ridge,lasso,svm")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--gap", type=float, default=1e-5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of rivals that stop early
    if options.threads:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
        compare_threads(options.threads, options.scale, options.gap, options.repeats)
        return
    names = ("dense", "white", "sparse", "ridge", "lasso", "svm")
    measured: dict[str, float] = {}
    for name, make in zip(names, tasks(options.scale), strict=True):
        if name in options.tasks.split(","):
            measured[name] = measure(make(), options.gap, options.repeats)
    from benchmarks.learn_trees import NAMES, measure_trees

    trees = [name for name in NAMES if name in options.tasks.split(",")]
    measured |= measure_trees(trees, options.scale, options.repeats)
    print("\n" + claims.report("learn", measured), end="")


if __name__ == "__main__":
    main()
