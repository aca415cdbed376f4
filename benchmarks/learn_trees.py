"""Trees, forests and boosting of weft.learn beside their rivals: CPU seconds of a fit, and its worth on other rows.

    python benchmarks/learn.py --tasks tree8,tree16,boosting,forest     one thread, CPU seconds
    python benchmarks/learn_trees.py --threads 2                        the same with two threads, wall seconds

Everyone runs in this process, in turns; the best of --repeats counts. Rivals that are not installed are left out:
scikit-learn is needed, lightgbm, xgboost and snapml are not (`pip install '.[bench]'`). scikit-learn's exact tree takes
a minute and is run with --slow only. --rivals names those to run, where not all are wanted.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from benchmarks import claims
from sklearn import ensemble, tree
from sklearn.metrics import accuracy_score, log_loss

from weft.learn import DecisionTreeClassifier, GradientBoostingClassifier, RandomForestClassifier

Array = np.ndarray[Any, Any]
NAMES = ("tree8", "tree10", "tree12", "tree16", "boosting", "forest")


@dataclass
class Runner:
    name: str
    make: Callable[[], Any]


@dataclass
class TreeTask:
    """What is fitted, by whom, and how many times faster than the best rival we must be. The first runner is ours."""

    name: str
    goal: float
    rows: int
    runners: list[Runner]


def table(rows: int, columns: int = 50) -> tuple[Array, Array]:
    """Half of the columns matter, some of them together."""
    random = np.random.default_rng(0)
    X = random.standard_normal((rows, columns), dtype=np.float32)
    scores = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] * (X[:, 4] > 0) + 0.3 * X[:, 5:25].sum(axis=1)
    return X, (scores + random.logistic(size=rows) > 0).astype(np.int64)


def tree_task(depth: int, rows: int, threads: int, slow: bool) -> TreeTask:
    runners = [
        Runner("weft", lambda: DecisionTreeClassifier(max_depth=depth, n_jobs=threads, random_state=0))
    ]
    if find_spec("snapml"):
        runners.append(Runner("snapml", lambda: snap("DecisionTreeClassifier", threads, max_depth=depth)))
    if find_spec("lightgbm"):
        runners.append(Runner("LightGBM, one tree", lambda: lightgbm(1, depth, threads, 1.0)))
    if find_spec("xgboost"):
        runners.append(Runner("XGBoost, one tree", lambda: xgboost(1, depth, threads, 1.0)))
    if slow:
        runners.append(Runner("scikit-learn exact", lambda: tree.DecisionTreeClassifier(max_depth=depth)))
    return TreeTask(f"tree{depth}", {8: 4, 16: 2.5}.get(depth, 2), rows, runners)


def boosting_task(rows: int, threads: int) -> TreeTask:
    runners = [
        Runner(
            "weft",
            lambda: GradientBoostingClassifier(
                max_depth=6,
                max_leaf_nodes=None,
                learning_rate=0.1,
                l2_regularization=0.0,
                n_jobs=threads,
                random_state=0,
            ),
        ),
        Runner("scikit-learn HistGB", hist_boosting),
    ]
    if find_spec("snapml"):
        options = {"max_depth": 6, "num_round": 100, "learning_rate": 0.1}
        runners.append(Runner("snapml", lambda: snap("BoostingMachineClassifier", threads, **options)))
    if find_spec("lightgbm"):
        runners.append(Runner("LightGBM", lambda: lightgbm(100, 6, threads, 0.1)))
    if find_spec("xgboost"):
        runners.append(Runner("XGBoost", lambda: xgboost(100, 6, threads, 0.1)))
    return TreeTask("boosting", 2, rows, runners)


def forest_task(rows: int, threads: int) -> TreeTask:
    runners = [
        Runner("weft", lambda: RandomForestClassifier(n_jobs=threads, random_state=0)),
        Runner("scikit-learn", lambda: ensemble.RandomForestClassifier(n_jobs=threads, random_state=0)),
    ]
    if find_spec("snapml"):
        options: dict[str, Any] = {"n_estimators": 100, "max_features": "sqrt"}
        runners.append(Runner("snapml exact", lambda: snap("RandomForestClassifier", threads, **options)))
        runners.append(
            Runner(
                "snapml hist", lambda: snap("RandomForestClassifier", threads, use_histograms=True, **options)
            )
        )
    return TreeTask("forest", 4, rows, runners)


def hist_boosting() -> Any:
    return ensemble.HistGradientBoostingClassifier(
        max_iter=100, max_depth=6, max_leaf_nodes=64, early_stopping=False, random_state=0
    )


def snap(kind: str, threads: int, **options: Any) -> Any:
    import snapml

    return getattr(snapml, kind)(n_jobs=threads, random_state=0, **options)


def lightgbm(rounds: int, depth: int, threads: int, rate: float) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(
        n_estimators=rounds,
        max_depth=depth,
        num_leaves=2**depth,
        learning_rate=rate,
        min_child_samples=1 if rounds == 1 else 20,
        n_jobs=threads,
        verbose=-1,
    )


def xgboost(rounds: int, depth: int, threads: int, rate: float) -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(
        n_estimators=rounds, max_depth=depth, learning_rate=rate, tree_method="hist", n_jobs=threads
    )


def measure_trees(
    names: list[str],
    scale: float,
    repeats: int,
    *,
    threads: int = 1,
    slow: bool = False,
    rivals: tuple[str, ...] = (),
) -> dict[str, float]:
    """Print the tables of some tasks; returns how many times faster than the best rival ours is, by claim."""
    rows = int(500_000 * scale)
    made = {
        "tree8": lambda: tree_task(8, rows, threads, slow),
        "tree10": lambda: tree_task(10, rows, threads, slow),
        "tree12": lambda: tree_task(12, rows, threads, slow),
        "tree16": lambda: tree_task(16, rows, threads, slow),
        "boosting": lambda: boosting_task(rows, threads),
        "forest": lambda: forest_task(rows // 5, threads),
    }
    claimed = {name: name.replace("tree", "tree-") for name in NAMES}
    measured = {}
    for name in names:
        task = made[name]()
        if rivals:
            task.runners = [task.runners[0], *(one for one in task.runners if one.name in rivals)]
        clock = time.process_time if threads == 1 else time.perf_counter
        measured[claimed[name]] = measure(task, repeats, clock)
    return measured


def measure(task: TreeTask, repeats: int, clock: Callable[[], float]) -> float:
    X, y = table(task.rows * 6 // 5)
    train, test = slice(0, task.rows), slice(task.rows, None)
    warm = task.runners[0].make()
    warm.fit(X[:20_000], y[:20_000])  # compiles, or loads what was compiled
    best = {runner.name: np.inf for runner in task.runners}
    worth: dict[str, tuple[float, float]] = {}
    for _ in range(repeats):
        for runner in task.runners:
            began = clock()
            model = runner.make().fit(X[train], y[train])
            best[runner.name] = min(best[runner.name], clock() - began)
            shares = np.clip(np.asarray(model.predict_proba(X[test]), np.float64), 1e-15, 1)
            worth[runner.name] = (
                log_loss(y[test], shares[:, 1]),
                accuracy_score(y[test], shares.argmax(axis=1)),
            )
    ours = best[task.runners[0].name]
    kind = "CPU s" if clock is time.process_time else "wall s"
    print(f"{task.name}: {task.rows:,} x {X.shape[1]}")
    for name, seconds in best.items():
        loss, right = worth[name]
        print(
            f"  {name:22}{seconds:8.2f} {kind}   log-loss {loss:.4f}   accuracy {right:.4f}   {seconds / ours:.1f}x"
        )
    ratio = min(seconds for name, seconds in best.items() if name != task.runners[0].name) / ours
    print(f"  {ratio:.1f}x faster than the best rival; must be {task.goal:g}x", flush=True)
    return float(ratio)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(NAMES))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--rivals", default="", help="names as they are printed, with commas")
    options = parser.parse_args()
    names = [name for name in NAMES if name in options.tasks.split(",")]
    rivals = tuple(name for name in options.rivals.split(",") if name)
    measured = measure_trees(
        names, options.scale, options.repeats, threads=options.threads, slow=options.slow, rivals=rivals
    )
    if options.threads == 1:
        print("\n" + claims.report("learn", measured), end="")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
