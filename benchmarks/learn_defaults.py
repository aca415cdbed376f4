"""Boosting as it comes: everyone with the parameters that it has if none are given, CPU seconds of one thread.

    python benchmarks/learn_defaults.py                             every table
    python benchmarks/learn_defaults.py --tasks cancer,diabetes     some of them

Everyone runs in this process, in turns; the best of --repeats counts. Defaults differ: XGBoost has depth 6 and a rate
of 0.3, LightGBM 31 leaves and a rate of 0.1, and we 31 leaves, XGBoost's penalty and a rate between 0.1 and 0.2. So the
quality on other rows is printed beside the time, of the small tables as a mean over five parts.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROOT / "src"), str(_ROOT)]
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is loaded: one thread means one

import numpy as np  # noqa: E402
from benchmarks import claims  # noqa: E402
from benchmarks.learn_shapes import pixel_table  # noqa: E402
from benchmarks.learn_shapes_trees import mixed_table  # noqa: E402
from sklearn.datasets import (  # noqa: E402
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
    make_friedman1,
    make_gaussian_quantiles,
    make_hastie_10_2,
)
from sklearn.metrics import log_loss, root_mean_squared_error  # noqa: E402
from sklearn.model_selection import KFold  # noqa: E402

Array = np.ndarray[Any, Any]


@dataclass
class DefaultsTask:
    """A table, and whether its target is a class; `parts` it is cut into to judge quality."""

    name: str
    X: Array
    y: Array
    classes: bool
    parts: int = 6
    all_parts: bool = False


def makers(classes: bool) -> dict[str, Callable[[], Any]]:
    kind = "Classifier" if classes else "Regressor"
    names = {"weft": ("weft.learn", f"GradientBoosting{kind}"), "XGBoost": ("xgboost", f"XGB{kind}")}
    names["LightGBM"] = ("lightgbm", f"LGBM{kind}")
    quiet = {"LightGBM": {"verbose": -1}}
    return {
        name: lambda module=module, one=one, name=name: getattr(import_module(module), one)(  # type: ignore[misc]
            n_jobs=1, **quiet.get(name, {})
        )
        for name, (module, one) in names.items()
        if find_spec(module.partition(".")[0])
    }


def measure(task: DefaultsTask, repeats: int) -> float:
    """Print the table of one task; returns how many times faster than the best rival ours is."""
    runners = makers(task.classes)
    runners["weft"]().fit(task.X[:500], task.y[:500])  # compiles, or loads what was compiled
    runners["weft"]().fit(task.X, task.y)
    best = dict.fromkeys(runners, np.inf)
    for _ in range(repeats):
        for name, make in runners.items():
            began = time.process_time()
            make().fit(task.X, task.y)
            best[name] = min(best[name], time.process_time() - began)
    ratio = min(s for name, s in best.items() if name != "weft") / best["weft"]
    print(f"{task.name}: {task.X.shape[0]:,} x {task.X.shape[1]:,}")
    for name, seconds in best.items():
        told = f"{'log-loss' if task.classes else 'RMSE'} {quality(task, runners[name]):.4f}"
        print(f"  {name:12}{seconds:8.4f} CPU s   {told}   {seconds / best['weft']:.1f}x")
    print(f"  {ratio:.2f}x faster than the best rival; must be 2x", flush=True)
    return float(ratio)


def quality(task: DefaultsTask, make: Callable[[], Any]) -> float:
    """Return the mean loss on rows that were not fitted."""
    found = []
    for train, test in KFold(task.parts, shuffle=True, random_state=0).split(task.X):
        model = make().fit(task.X[train], task.y[train])
        if task.classes:
            found.append(log_loss(task.y[test], model.predict_proba(task.X[test])))
        else:
            found.append(root_mean_squared_error(task.y[test], model.predict(task.X[test])))
        if not task.all_parts:
            break
    return float(np.mean(found))


def tabular() -> DefaultsTask:
    X, y = mixed_table(100_000)
    return DefaultsTask("tabular", X, (y > 0).astype(int), classes=True)


def numbers() -> DefaultsTask:
    return DefaultsTask("numbers", *mixed_table(100_000), classes=False)


def pixels() -> DefaultsTask:
    return DefaultsTask("pixels-boosting", *pixel_table(5_000), classes=True)


def cancer() -> DefaultsTask:
    X, y = load_breast_cancer(return_X_y=True)
    return DefaultsTask("cancer", X, y, classes=True, parts=5, all_parts=True)


def diabetes() -> DefaultsTask:
    X, y = load_diabetes(return_X_y=True)
    return DefaultsTask("diabetes", X, y, classes=False, parts=5, all_parts=True)


def bundled(name: str, load: Callable[..., Any]) -> DefaultsTask:
    X, y = load(return_X_y=True)
    return DefaultsTask(name, X, y, classes=True, parts=5, all_parts=True)


def made_classes(name: str, rows: int, classes: int) -> DefaultsTask:
    X, y = make_classification(
        rows, 30, n_informative=15, n_classes=classes, n_clusters_per_class=2, random_state=0
    )
    return DefaultsTask(name, X, y, classes=True, parts=5, all_parts=rows <= 2_000)


def friedman() -> DefaultsTask:
    X, y = make_friedman1(5_000, 10, noise=1.0, random_state=0)
    return DefaultsTask("friedman", X, y, classes=False)


def quantiles() -> DefaultsTask:
    """Classes that are shells around each other."""
    X, y = make_gaussian_quantiles(n_samples=20_000, n_features=10, n_classes=4, random_state=0)
    return DefaultsTask("shells", X, y, classes=True)


def hastie() -> DefaultsTask:
    X, y = make_hastie_10_2(12_000, random_state=0)
    return DefaultsTask("hastie", X, (y > 0).astype(int), classes=True)


def long_numbers() -> DefaultsTask:
    return DefaultsTask("long-numbers", *mixed_table(300_000, 20), classes=False)


def rare() -> DefaultsTask:
    """One row of fifty is of the other class."""
    X, y = mixed_table(60_000)
    return DefaultsTask("rare", X, (y > np.quantile(y, 0.98)).astype(int), classes=True)


TASKS: dict[str, Callable[[], DefaultsTask]] = {
    "tabular": tabular,
    "numbers": numbers,
    "pixels": pixels,
    "cancer": cancer,
    "diabetes": diabetes,
    "iris": lambda: bundled("iris", load_iris),
    "wine": lambda: bundled("wine", load_wine),
    "digits": lambda: bundled("digits", load_digits),
    "classes-3": lambda: made_classes("classes-3", 1_000, 3),
    "classes-10": lambda: made_classes("classes-10", 20_000, 10),
    "friedman": friedman,
    "shells": quantiles,
    "hastie": hastie,
    "long-numbers": long_numbers,
    "rare": rare,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    wanted = [TASKS[name]() for name in TASKS if name in options.tasks.split(",")]
    measured = {task.name: measure(task, options.repeats) for task in wanted}
    known = {claim.name for part in claims.parts(["learn"]) for claim in part.claims}
    recorded = {name: ratio for name, ratio in measured.items() if name in known}
    print("\n" + claims.report("learn", recorded), end="")


if __name__ == "__main__":
    main()
