"""What each worker of benchmarks/learn_workers.py --sparse runs: fits of its rows of a wide, sparse table, in turns."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import numpy as np
from benchmarks.learn import sparse_table

import weft
from weft.learn import LinearSVC, LogisticRegression, together

TOL = 1e-4


def logistic(**more: Any) -> Any:
    return LogisticRegression(n_jobs=1, random_state=0, **more)


def machine(**more: Any) -> Any:
    return LinearSVC(C=0.1, n_jobs=1, random_state=0, **more)


# What quasi-Newton steps take for the gap is a guess from the diagonal, often several times too small.
KINDS: dict[str, Any] = {
    "logistic, dual": lambda: logistic(tol=TOL, solver="dual"),
    "logistic, lbfgs": lambda: logistic(tol=TOL, max_iter=1000, solver="lbfgs"),
    "logistic, lbfgs, tol / 10": lambda: logistic(tol=TOL / 10, max_iter=1000, solver="lbfgs"),
    "squared hinge, dual": lambda: machine(tol=TOL, dual=True),
    "squared hinge, lbfgs": lambda: machine(tol=TOL, dual=False),
    "squared hinge, lbfgs, tol / 10": lambda: machine(tol=TOL / 10, dual=False),
    "hinge, dual": lambda: machine(tol=TOL, loss="hinge"),
}


def main() -> None:
    rows, columns, repeats = map(int, sys.argv[1:4])
    world = weft.init()
    table, y = (whole[world.rank :: world.size] for whole in sparse_table(rows, columns))
    best: dict[str, dict[str, float]] = {}
    with together() as others:
        for make in KINDS.values():  # compiles
            make().set_params(tol=100.0).fit(table[:2000], y[:2000])
        for _ in range(repeats):
            for name, make in KINDS.items():
                others.gathered(None)
                began, worked = time.perf_counter(), time.process_time()
                model = make().fit(table, y)
                took, busy = time.perf_counter() - began, time.process_time() - worked
                found = {
                    "wall": others.largest(took),
                    "cpu": others.largest(busy),
                    "passes": int(np.max(model.n_iter_)),
                    "objective": model.history_[-1].objective,
                    "gap": model.history_[-1].gap,
                }
                if name not in best or found["cpu"] < best[name]["cpu"]:
                    best[name] = found
    if world.rank == 0:
        print(json.dumps(best), flush=True)
    weft.shutdown()


if __name__ == "__main__":
    main()
