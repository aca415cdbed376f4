"""weft.learn on other tables than those of learn.py: wide ones, many classes, text, one-hot columns, awkward scales.

    python benchmarks/learn_shapes.py                               every task, one thread, gap 1e-5
    python benchmarks/learn_shapes.py --tasks wide,wide-ridge       some of them

As in learn.py everyone runs in this process, in turns, and each rival at the loosest tolerance (or number of epochs)
whose objective, computed here in float64, is within the gap of the least that anyone found.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROOT / "src"), str(_ROOT)]
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is loaded: one thread means one

import numpy as np  # noqa: E402
from benchmarks import claims  # noqa: E402
from benchmarks.learn import EPOCHS, Runner, Task, measure  # noqa: E402
from scipy import sparse  # noqa: E402
from scipy.special import log_softmax  # noqa: E402
from sklearn.linear_model import LogisticRegression as SkLogistic  # noqa: E402
from sklearn.linear_model import Ridge as SkRidge  # noqa: E402

from weft.learn import LogisticRegression, Ridge  # noqa: E402

Array = np.ndarray[Any, Any]


def wide(rows: int, columns: int) -> Task:
    """Few rows of many columns, as genes are."""
    X, y = wide_table(rows, columns)
    return Task(
        "wide", 2, X, y, lambda m: logistic_value(m, X, y), logistic_runners(intercept=False, tall=False)
    )


def wide_ridge(rows: int, columns: int) -> Task:
    X, scores = wide_scores(rows, columns)
    y = (scores + np.random.default_rng(1).standard_normal(rows)).astype(np.float32)
    runners = [
        Runner("weft", lambda tol: Ridge(10.0, tol=tol, n_jobs=1)),
        Runner("sklearn cholesky", lambda tol: SkRidge(10.0, solver="cholesky"), (1.0,)),
        Runner("sklearn lsqr", lambda tol: SkRidge(10.0, solver="lsqr", tol=tol, max_iter=10_000)),
    ]
    return Task("wide-ridge", 2, X, y, lambda m: ridge_value(m, X, y, 10.0), runners)


def many_classes(rows: int, columns: int, classes: int) -> Task:
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, columns), dtype=np.float32)
    X += random.standard_normal((rows, 1), dtype=np.float32)  # columns that hang together
    scores = X @ (random.standard_normal((columns, classes)) * 2 / np.sqrt(columns))
    y = (scores + random.gumbel(size=scores.shape)).argmax(axis=1)
    runners = [
        Runner("weft", lambda tol: LogisticRegression(tol=tol, n_jobs=1, random_state=0)),
        Runner("sklearn lbfgs", lambda tol: SkLogistic(solver="lbfgs", tol=tol, max_iter=10_000)),
        Runner("sklearn newton-cg", lambda tol: SkLogistic(solver="newton-cg", tol=tol, max_iter=10_000)),
    ]
    return Task("classes", 2, X, y, lambda m: classes_value(m, X, y), runners)


def text_l1(rows: int, columns: int) -> Task:
    """Words by a power law, scaled as TF-IDF scales them; an L1 penalty keeps a few hundred."""
    X, y = text_table(rows, columns)
    runners = [
        Runner("weft", lambda tol: LogisticRegression(l1_ratio=1.0, tol=tol, fit_intercept=False, n_jobs=1)),
        Runner(
            "liblinear",
            lambda tol: SkLogistic(
                solver="liblinear", l1_ratio=1.0, tol=tol, fit_intercept=False, max_iter=10_000
            ),
        ),
    ]
    if find_spec("snapml"):
        runners.append(Runner("snapml", lambda tol: snap(tol, dual=False, penalty="l1")))
    return Task("text-l1", 2, X, y, lambda m: logistic_value(m, X, y, l1=1.0, l2=0.0), runners)


def one_hot(rows: int, columns: int, *, intercept: bool) -> Task:
    X, y = one_hot_table(rows, columns)
    name = "one-hot-intercept" if intercept else "one-hot"
    return Task(
        name, 1.5, X, y, lambda m: logistic_value(m, X, y), logistic_runners(intercept=intercept, tall=True)
    )


def imbalanced(rows: int, columns: int) -> Task:
    """One row of 200 is of the second class."""
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, columns), dtype=np.float32)
    scores = X @ random.standard_normal(columns) / np.sqrt(columns)
    y = (scores - 6.2 + random.logistic(size=rows) > 0).astype(np.int64)
    runners = logistic_runners(intercept=True, tall=True, dense=True)
    return Task("imbalanced", 2, X, y, lambda m: logistic_value(m, X, y), runners)


def scaled(rows: int, columns: int) -> Task:
    """Columns whose units differ by six powers of ten."""
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, columns)) + random.standard_normal((rows, 1))
    scores = X @ random.standard_normal(columns) / np.sqrt(columns)
    X *= 10.0 ** random.uniform(-3, 3, columns)
    y = (scores + random.logistic(size=rows) > 0).astype(np.int64)
    runners = logistic_runners(intercept=True, tall=True, dense=True)
    return Task("scaled", 2, X, y, lambda m: logistic_value(m, X, y), runners)


def low_rank(rows: int, columns: int, rank: int) -> Task:
    random = np.random.default_rng(0)
    X = (random.standard_normal((rows, rank)) @ random.standard_normal((rank, columns))).astype(np.float32)
    scores = X @ random.standard_normal(columns)
    y = (2 * scores / scores.std() + random.logistic(size=rows) > 0).astype(np.int64)
    runners = logistic_runners(intercept=True, tall=True, dense=True)
    return Task("low-rank", 2, X, y, lambda m: logistic_value(m, X, y), runners)


def pixels(rows: int) -> Task:
    """Ten classes of pictures of 28 x 28, four fifths of whose pixels are dark."""
    X, y = pixel_table(rows)
    runners = [
        Runner("weft", lambda tol: LogisticRegression(tol=tol, n_jobs=1, random_state=0)),
        Runner("sklearn lbfgs", lambda tol: SkLogistic(solver="lbfgs", tol=tol, max_iter=10_000)),
        Runner("sklearn newton-cg", lambda tol: SkLogistic(solver="newton-cg", tol=tol, max_iter=10_000)),
    ]
    return Task("pixels", 2, X, y, lambda m: classes_value(m, X, y), runners)


def pixel_table(rows: int) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    y = random.integers(0, 10, rows)
    coarse = random.standard_normal((10, 3, 7, 7))  # each class has three ways of being drawn
    shapes = coarse.repeat(4, axis=2).repeat(4, axis=3).reshape(10, 3, 784)
    X = shapes[y, random.integers(0, 3, rows)] + 1.5 * random.standard_normal((rows, 784))
    return np.clip(X - 1.2, 0, 2).astype(np.float32) / 2, y


def wide_scores(rows: int, columns: int) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, columns), dtype=np.float32)
    scores = X[:, :50] @ random.standard_normal(50)
    return X, 2 * scores / scores.std()


def wide_table(rows: int, columns: int) -> tuple[Array, Array]:
    X, scores = wide_scores(rows, columns)
    return X, (scores + np.random.default_rng(1).logistic(size=rows) > 0).astype(np.int64)


def text_table(rows: int, columns: int, per_row: int = 60) -> tuple[Any, Array]:
    random = np.random.default_rng(0)
    indices = (columns * random.random((rows, per_row)) ** 3).astype(np.int32)
    data = random.exponential(size=(rows, per_row)).astype(np.float32) + np.float32(0.1)
    data /= np.linalg.norm(data, axis=1, keepdims=True)
    indptr = np.arange(0, rows * per_row + 1, per_row, dtype=np.int32)
    X = sparse.csr_matrix((data.ravel(), indices.ravel(), indptr), shape=(rows, columns))
    X.sum_duplicates()
    coef = random.standard_normal(columns) * (random.random(columns) < 0.05) * 8
    scores = X @ coef
    return X, (scores + random.logistic(size=rows) > 0).astype(np.int64)


def one_hot_table(rows: int, columns: int, per_row: int = 12) -> tuple[Any, Array]:
    """A few columns of categories, each as a block of zeros and ones."""
    random = np.random.default_rng(0)
    sizes = np.geomspace(1, 300, per_row)
    sizes = np.maximum(2, sizes * columns / sizes.sum()).astype(int)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    indices = np.stack(
        [
            start + (size * random.random(rows) ** 2).astype(np.int32)
            for start, size in zip(starts, sizes, strict=True)
        ],
        axis=1,
    ).astype(np.int32)
    data = np.ones(rows * per_row, np.float32)
    indptr = np.arange(0, rows * per_row + 1, per_row, dtype=np.int32)
    X = sparse.csr_matrix((data, indices.ravel(), indptr), shape=(rows, int(sizes.sum())))
    scores = X @ (0.5 * random.standard_normal(X.shape[1]))
    return X, (scores - 1 + random.logistic(size=rows) > 0).astype(np.int64)


def logistic_runners(*, intercept: bool, tall: bool, dense: bool = False) -> list[Runner]:
    def ours(tol: float) -> Any:
        return LogisticRegression(tol=tol, fit_intercept=intercept, n_jobs=1, random_state=0)

    def theirs(solver: str) -> Callable[[float], Any]:
        return lambda tol: SkLogistic(solver=solver, tol=tol, fit_intercept=intercept, max_iter=10_000)

    runners = [Runner("weft", ours), Runner("sklearn lbfgs", theirs("lbfgs"))]
    if tall:
        runners.append(Runner("sklearn newton-cg", theirs("newton-cg")))
    if dense:
        runners.append(Runner("sklearn newton-cholesky", theirs("newton-cholesky")))
    if not intercept:  # theirs would be penalised
        runners.append(
            Runner(
                "liblinear dual",
                lambda epochs: SkLogistic(
                    solver="liblinear", dual=True, tol=1e-9, fit_intercept=False, max_iter=int(epochs)
                ),
                EPOCHS,
            )
        )
        if find_spec("snapml"):
            runners.append(Runner("snapml primal", lambda tol: snap(tol, dual=False)))
            runners.append(Runner("snapml dual", lambda tol: snap(tol, dual=True)))
    return runners


def snap(tol: float, dual: bool, penalty: str = "l2") -> Any:
    from snapml import LogisticRegression as SnapLogistic

    return SnapLogistic(tol=tol, dual=dual, penalty=penalty, fit_intercept=False, max_iter=10_000, n_jobs=1)


def logistic_value(model: Any, X: Any, y: Array, l1: float = 0.0, l2: float = 1.0) -> float:
    coef = np.ravel(model.coef_).astype(np.float64)
    margins = X @ coef + float(np.ravel(model.intercept_)[0] if np.size(model.intercept_) else 0.0)
    losses = np.logaddexp(0, -np.where(y > 0, 1, -1) * margins).sum()
    return float(losses + l1 * np.abs(coef).sum() + l2 * (coef @ coef) / 2)


def classes_value(model: Any, X: Array, y: Array) -> float:
    coef = np.asarray(model.coef_, np.float64)
    shares = log_softmax(X @ coef.T + model.intercept_, axis=1)
    return float(-shares[np.arange(len(y)), y].sum() + (coef * coef).sum() / 2)


def ridge_value(model: Any, X: Array, y: Array, alpha: float) -> float:
    coef = np.ravel(model.coef_).astype(np.float64)
    off = y - X @ coef - model.intercept_
    return float(off @ off / 2 + alpha * (coef @ coef) / 2)


TASKS: dict[str, Callable[[], Task]] = {
    "wide": lambda: wide(500, 20_000),
    "wide-ridge": lambda: wide_ridge(2_000, 50_000),
    "classes": lambda: many_classes(200_000, 64, 10),
    "text-l1": lambda: text_l1(100_000, 50_000),
    "imbalanced": lambda: imbalanced(400_000, 40),
    "scaled": lambda: scaled(200_000, 50),
    "low-rank": lambda: low_rank(200_000, 200, 20),
    "pixels": lambda: pixels(20_000),
    "one-hot": lambda: one_hot(600_000, 20_000, intercept=False),
    "one-hot-intercept": lambda: one_hot(600_000, 20_000, intercept=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--gap", type=float, default=1e-5)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of rivals that stop early
    measured = {
        name: measure(TASKS[name](), options.gap, options.repeats)
        for name in TASKS
        if name in options.tasks.split(",")
    }
    known = {claim.name for part in claims.parts(["learn"]) for claim in part.claims}
    recorded = {name: ratio for name, ratio in measured.items() if name in known}
    print("\n" + claims.report("learn", recorded), end="")


if __name__ == "__main__":
    main()
