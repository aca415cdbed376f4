"""What each worker of benchmarks/learn_workers.py runs: a dense logistic fit of its share of the rows, and passes."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import weft
from weft.learn import LogisticRegression, together
from weft.learn.losses import Logistic
from weft.learn.problem import Problem
from weft.learn.tables import DenseTable
from weft.learn.threads import Crew

SHARES = 2  # parts that the rows are made in: the same rows, whoever has them


def main() -> None:
    rows, columns, passes = map(int, sys.argv[1:4])
    world = weft.init()
    mine = range(world.rank, SHARES, world.size)
    coef = np.random.default_rng(9).standard_normal(columns) / 5
    tables, targets = [], []
    for part in mine:
        random = np.random.default_rng(part)
        table = random.standard_normal((rows // SHARES, columns), dtype=np.float32)
        tables.append(table)
        targets.append(table @ coef + random.logistic(size=len(table)) > 0)
    table, y = np.concatenate(tables), np.concatenate(targets)
    with together() as others:
        problem = Problem(
            DenseTable(table),
            np.where(y, 1, -1).astype(np.float32),
            np.ones(len(y), np.float32),
            Logistic(),
            1.0,
            True,
            Crew(1, None),
        )
        point = np.zeros(problem.size)
        problem.value_and_gradient(point)  # compiles, or loads what was compiled
        times, busy = [], []
        for _ in range(passes):
            others.gathered(None)  # all begin together
            began, worked = time.perf_counter(), time.process_time()
            problem.value_and_gradient(point)
            times.append(others.largest(time.perf_counter() - began))
            busy.append(others.largest(time.process_time() - worked))
        others.gathered(None)
        began = time.perf_counter()
        model = LogisticRegression(tol=1e-6, n_jobs=1, random_state=0).fit(table, y)
        taken = others.largest(time.perf_counter() - began)
    if world.rank == 0:
        found = {
            "pass": min(times),
            "cpu": min(busy),
            "fit": taken,
            "objective": model.history_[-1].objective,
            "gap": model.history_[-1].gap,
        }
        print(json.dumps(found), flush=True)
    weft.shutdown()


if __name__ == "__main__":
    main()
