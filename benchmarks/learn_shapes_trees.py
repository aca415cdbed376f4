"""Boosting on other tables than that of learn_trees.py: sparse ones, many categories, many classes, missing values.

    python benchmarks/learn_shapes_trees.py                               every task, one thread, CPU seconds
    python benchmarks/learn_shapes_trees.py --tasks sparse-boosting       some of them

Everyone has 100 rounds at a rate of 0.1, and runs in this process, in turns; the best of --repeats counts. The quality
on other rows is printed beside the time: a lead that costs quality is none. Rivals that are not installed are left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
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
from sklearn.metrics import log_loss, roc_auc_score  # noqa: E402

from weft.learn import GradientBoostingClassifier, GradientBoostingRegressor  # noqa: E402

Array = np.ndarray[Any, Any]

# Ours: those that were measured, whatever the defaults become.
SETTINGS: dict[str, Any] = {
    "max_depth": 6,
    "max_leaf_nodes": None,
    "learning_rate": 0.1,
    "l2_regularization": 0.0,
    "n_jobs": 1,
    "random_state": 0,
}


@dataclass
class ShapeTask:
    """A table, who is fitted to it, and how predictions of other rows are judged. The first runner is ours."""

    name: str
    goal: float
    X: Any
    y: Array
    train: int  # rows that are fitted; the others are predicted
    quality: Callable[[Any, Any, Array], float]
    measure: str
    runners: dict[str, Callable[[], Any]]
    fit: Callable[[Any, Any, Array], Any] = lambda model, X, y: model.fit(X, y)


def sparse_boosting() -> ShapeTask:
    random = np.random.default_rng(0)
    X = sparse.random(60_000, 2_000, 0.02, "csr", random_state=0, dtype=np.float32)
    X.data = random.exponential(size=X.nnz).astype(np.float32)
    pairs = np.asarray(X[:, :50].multiply(X[:, 50:100]).sum(axis=1)).ravel()
    scores = X @ random.standard_normal(2_000) + 3 * pairs
    y = (scores + random.logistic(size=60_000) > 0).astype(np.int64)
    # LightGBM's lead in quality is its 20 rows a leaf: with one row, as here and in XGBoost by default, it has none.
    runners: dict[str, Callable[[], Any]] = {
        "weft": lambda: GradientBoostingClassifier(**SETTINGS),
        "weft, one row a leaf": lambda: GradientBoostingClassifier(min_samples_leaf=1, **SETTINGS),
    } | rivals("Classifier", depth=6)
    return ShapeTask("sparse-boosting", 1, X, y, 50_000, area, "AUC", runners)


def sparse_counts() -> ShapeTask:
    """Small whole numbers, a tenth of whose columns matter, and a class that is rare."""
    random = np.random.default_rng(3)
    X = sparse.random(40_000, 1_000, 0.02, "csr", random_state=3, dtype=np.float32)
    X.data = np.ceil(random.exponential(size=X.nnz) * 2).astype(np.float32)
    scores = X @ (random.standard_normal(1_000) * (random.random(1_000) < 0.1))
    y = (scores - 2 * scores.std() + random.logistic(size=40_000) > 0).astype(np.int64)
    runners: dict[str, Callable[[], Any]] = {"weft": lambda: GradientBoostingClassifier(**SETTINGS)} | rivals(
        "Classifier", depth=6
    )
    return ShapeTask("sparse-counts", 1, X, y, 32_000, area, "AUC", runners)


def many_categories() -> ShapeTask:
    """Five columns of 5,000 categories, each with an effect of its own, and five of numbers."""
    random = np.random.default_rng(0)
    rows, codes = 120_000, 5_000
    X = np.empty((rows, 10))
    scores = np.zeros(rows)
    for column in range(5):
        X[:, column] = (codes * random.random(rows) ** 1.5).astype(int)
        scores += 0.6 * random.standard_normal(codes)[X[:, column].astype(int)]
    X[:, 5:] = random.standard_normal((rows, 5))
    scores += X[:, 5] * X[:, 6] + 0.5 * X[:, 7]
    y = (scores + random.logistic(size=rows) > 0).astype(np.int64)
    places = [0, 1, 2, 3, 4]
    runners: dict[str, Callable[[], Any]] = {
        "weft": lambda: GradientBoostingClassifier(categorical_features=places, **SETTINGS),
        "weft, as numbers": lambda: GradientBoostingClassifier(**SETTINGS),
    }
    if find_spec("lightgbm"):
        runners["LightGBM"] = lambda: Framed(lightgbm("Classifier", 6), places)
    if find_spec("catboost"):
        runners["CatBoost"] = lambda: Catted(places)
    return ShapeTask("categories", 2, X, y, 100_000, negative_log_loss, "log-loss", runners)


def regression() -> ShapeTask:
    random = np.random.default_rng(0)
    X = random.standard_normal((360_000, 20), dtype=np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] * (X[:, 4] > 0) + 0.3 * X[:, 5:12].sum(axis=1)
    y = (y + 0.5 * random.standard_normal(len(y))).astype(np.float32)
    runners: dict[str, Callable[[], Any]] = {"weft": lambda: GradientBoostingRegressor(**SETTINGS)} | rivals(
        "Regressor", depth=6
    )
    return ShapeTask("regression", 2, X, y, 300_000, root_error, "RMSE", runners)


def mixed_table(rows: int, columns: int = 30) -> tuple[Array, Array]:
    """Half of the columns matter, some of them together; the target is a number."""
    random = np.random.default_rng(5)
    X = random.standard_normal((rows, columns), dtype=np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] * (X[:, 4] > 0) + 0.3 * X[:, 5:15].sum(axis=1)
    return X, y + random.logistic(size=rows)


def missing() -> ShapeTask:
    """A fifth of the values are missing, more often where they are large."""
    X, y = mixed_table(240_000)
    X[np.random.default_rng(6).random(X.shape) < 0.3 / (1 + np.exp(-X))] = np.nan
    runners = ours_and_theirs("Classifier")
    return ShapeTask("missing", 2, X, (y > 0).astype(int), 200_000, area, "AUC", runners)


def weighted() -> ShapeTask:
    X, y = mixed_table(240_000)
    weights = np.random.default_rng(6).exponential(size=200_000)
    return ShapeTask(
        "weights",
        2,
        X,
        (y > 0).astype(int),
        200_000,
        area,
        "AUC",
        ours_and_theirs("Classifier"),
        lambda model, X, y: model.fit(X, y, sample_weight=weights[: len(y)]),
    )


def thirty_classes() -> ShapeTask:
    X, y = mixed_table(60_000)
    edges = np.quantile(y, np.linspace(0, 1, 31)[1:-1])
    runners = ours_and_theirs("Classifier", n_estimators=30)
    return ShapeTask(
        "classes-30", 2, X, np.digitize(y, edges), 50_000, negative_log_loss_of_all, "log-loss", runners
    )


def subsampling() -> ShapeTask:
    """Half of the rows in each round."""
    X, y = mixed_table(240_000)
    runners = ours_and_theirs("Classifier", subsample=0.5)
    return ShapeTask("subsampling", 2, X, (y > 0).astype(int), 200_000, area, "AUC", runners)


def stopping() -> ShapeTask:
    """Up to 500 rounds, until ten of them have not helped on a tenth of the rows."""
    X, y = mixed_table(240_000)
    runners = ours_and_theirs("Classifier", n_estimators=500, learning_rate=0.3)

    def fit(model: Any, X: Array, y: Array) -> Any:
        inside, held = slice(len(y) // 10, None), slice(0, len(y) // 10)
        kind = type(model).__module__.partition(".")[0]
        if kind == "weft":
            model.set_params(n_iter_no_change=10, tol=0.0)
            return model.fit(X[inside], y[inside], X_val=X[held], y_val=y[held])
        if kind == "xgboost":
            model.set_params(early_stopping_rounds=10)
            return model.fit(X[inside], y[inside], eval_set=[(X[held], y[held])], verbose=False)
        from lightgbm import early_stopping

        return model.fit(
            X[inside],
            y[inside],
            eval_set=[(X[held], y[held])],
            callbacks=[early_stopping(10, verbose=False)],
        )

    return ShapeTask("stopping", 2, X, (y > 0).astype(int), 200_000, area, "AUC", runners, fit)


def ours_and_theirs(kind: str, **options: Any) -> dict[str, Callable[[], Any]]:
    """Return everyone with trees of depth 6 and the same options; those of LightGBM have its names."""
    make: Any = GradientBoostingClassifier if kind == "Classifier" else GradientBoostingRegressor

    def with_options(theirs: Any) -> Any:
        more = {"subsample_freq": 1} if "LGBM" in type(theirs).__name__ and "subsample" in options else {}
        return theirs.set_params(**options, **more)

    runners: dict[str, Callable[[], Any]] = {"weft": lambda: make(**SETTINGS | options)}
    for name, rival in rivals(kind, depth=6).items():
        runners[name] = lambda rival=rival: with_options(rival())  # type: ignore[misc]
    return runners


def rivals(kind: str, depth: int) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    if find_spec("xgboost"):
        found["XGBoost"] = lambda: xgboost(kind, depth)
    if find_spec("lightgbm"):
        found["LightGBM"] = lambda: lightgbm(kind, depth)
    return found


def xgboost(kind: str, depth: int) -> Any:
    import xgboost as library

    make = getattr(library, f"XGB{kind}")
    return make(n_estimators=100, max_depth=depth, learning_rate=0.1, tree_method="hist", n_jobs=1)


def lightgbm(kind: str, depth: int) -> Any:
    import lightgbm as library

    make = getattr(library, f"LGBM{kind}")
    return make(n_estimators=100, max_depth=depth, num_leaves=2**depth, n_jobs=1, verbose=-1)


class Framed:
    """A model that is given some columns as a frame's categories."""

    def __init__(self, model: Any, places: list[int]):
        self.model, self.places = model, places

    def frame(self, X: Array) -> Any:
        import pandas as pd

        frame = pd.DataFrame(X)
        return frame.astype({place: pd.CategoricalDtype(np.arange(5_000.0)) for place in self.places})

    def fit(self, X: Array, y: Array) -> Framed:
        self.model.fit(self.frame(X), y)
        return self

    def predict_proba(self, X: Array) -> Array:
        shares: Array = self.model.predict_proba(self.frame(X))
        return shares


class Catted(Framed):
    """CatBoost, which takes categories as whole numbers."""

    def __init__(self, places: list[int]):
        from catboost import CatBoostClassifier

        model = CatBoostClassifier(
            n_estimators=100,
            depth=6,
            learning_rate=0.1,
            cat_features=places,
            thread_count=1,
            verbose=0,
            allow_writing_files=False,
        )
        super().__init__(model, places)

    def frame(self, X: Array) -> Any:
        import pandas as pd

        return pd.DataFrame(X).astype(dict.fromkeys(self.places, int))


def area(model: Any, X: Any, y: Array) -> float:
    return float(roc_auc_score(y, model.predict_proba(X)[:, 1]))


def negative_log_loss(model: Any, X: Any, y: Array) -> float:
    return float(log_loss(y, model.predict_proba(X)[:, 1]))


def negative_log_loss_of_all(model: Any, X: Any, y: Array) -> float:
    return float(log_loss(y, model.predict_proba(X)))


def root_error(model: Any, X: Any, y: Array) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def measure(task: ShapeTask, repeats: int) -> float:
    """Print the table of one task; returns how many times faster than the best rival ours is."""
    X, y, rest = task.X[: task.train], task.y[: task.train], slice(task.train, None)
    task.fit(task.runners["weft"](), X[:5_000], y[:5_000])  # compiles, or loads what was compiled
    best = dict.fromkeys(task.runners, np.inf)
    quality = dict.fromkeys(task.runners, 0.0)
    for _ in range(repeats):
        for name, make in task.runners.items():
            began = time.process_time()
            model = task.fit(make(), X, y)
            best[name] = min(best[name], time.process_time() - began)
            quality[name] = task.quality(model, task.X[rest], task.y[rest])
    ratio = min(s for name, s in best.items() if not name.startswith("weft")) / best["weft"]
    print(f"{task.name}: {task.train:,} x {task.X.shape[1]:,}")
    for name, seconds in best.items():
        print(
            f"  {name:22}{seconds:8.2f} CPU s   {task.measure} {quality[name]:.4f}   {seconds / best['weft']:.1f}x"
        )
    print(f"  {ratio:.2f}x faster than the best rival; must be {task.goal:g}x", flush=True)
    return float(ratio)


TASKS: dict[str, Callable[[], ShapeTask]] = {
    "sparse-boosting": sparse_boosting,
    "sparse-counts": sparse_counts,
    "categories": many_categories,
    "regression": regression,
    "missing": missing,
    "weights": weighted,
    "classes-30": thirty_classes,
    "subsampling": subsampling,
    "stopping": stopping,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    measured = {
        name: measure(TASKS[name](), options.repeats) for name in TASKS if name in options.tasks.split(",")
    }
    known = {claim.name for part in claims.parts(["learn"]) for claim in part.claims}
    recorded = {name: ratio for name, ratio in measured.items() if name in known}
    print("\n" + claims.report("learn", recorded), end="")


if __name__ == "__main__":
    main()
