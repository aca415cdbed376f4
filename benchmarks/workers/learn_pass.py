"""What each worker of benchmarks/learn_workers.py runs: dense logistic passes by one worker and by all, in turns.

Rank 0 has all rows, the others their share of them. A pass of rank 0 alone and one of all workers follow each other,
so that both meet the same neighbours; what a worker that waits uses of its core is measured, too.
"""

from __future__ import annotations

import json
import sys
import time
from contextvars import Context
from typing import Any

import numpy as np

import weft
from weft.learn import LogisticRegression, together
from weft.learn.solvers.losses import Logistic
from weft.learn.solvers.problem import Problem
from weft.learn.tables.tables import DenseTable
from weft.learn.threads import ThreadTeam
from weft.learn.workers.group import Workers

Array = np.ndarray[Any, Any]


def made(part: int, rows: int, columns: int) -> tuple[Array, Array]:
    coef = np.random.default_rng(9).standard_normal(columns) / 5
    random = np.random.default_rng(part)
    table = random.standard_normal((rows, columns), dtype=np.float32)
    return table, table @ coef + random.logistic(size=rows) > 0


def problem_of(table: Array, y: Array) -> Problem:
    targets = np.where(y, 1, -1).astype(np.float32)
    return Problem(
        DenseTable(table), targets, np.ones(len(y), np.float32), Logistic(), 1.0, True, ThreadTeam(1, None)
    )


def timed(others: Workers, work: Any) -> tuple[float, float]:
    """Seconds until the last worker is done, and CPU seconds of the busiest."""
    others.gathered(None)  # all begin together
    began, worked = time.perf_counter(), time.process_time()
    work()
    taken, busy = time.perf_counter() - began, time.process_time() - worked
    found = others.gathered((taken, busy))
    return max(one[0] for one in found), max(one[1] for one in found)


def reads(others: Workers, table: Array, share: Array) -> float:
    """How much sooner all workers at once have read their shares, with nothing to compute, than rank 0 all rows."""
    one = min(timed(others, lambda: table.max(initial=0))[0] for _ in range(20))
    both = min(timed(others, lambda: share.max(initial=0))[0] for _ in range(20))
    return one / both


def idle(others: Workers) -> float:
    """The share of a core that a worker uses which waits a second for rank 0."""
    if others.rank == 0:
        time.sleep(1)
    worked = time.process_time()
    others.gathered(None)
    return others.largest(time.process_time() - worked if others.rank else 0.0)


def main() -> None:
    rows, columns, passes = map(int, sys.argv[1:4])
    world = weft.init()
    parts = [made(part, rows // world.size, columns) for part in range(world.size)]
    mine, mine_y = parts[world.rank]
    share = problem_of(mine, mine_y)
    table, y = (np.concatenate(both) for both in zip(*parts, strict=True))
    whole = problem_of(table, y) if world.rank == 0 else None
    del parts
    point = np.zeros(share.size)
    found: dict[str, list[tuple[float, float]]] = {"one": [], "all": []}
    with together() as others:

        def alone() -> None:
            if whole is not None:
                Context().run(whole.value_and_gradient, point)

        for turn in range(passes + 1):
            first, second = timed(others, alone), timed(others, lambda: share.value_and_gradient(point))
            if turn:  # the first compiles, or loads what was compiled
                found["one"].append(first)
                found["all"].append(second)
        reading = reads(others, table if whole is not None else mine[:0], mine)
        model = LogisticRegression(tol=1e-6, n_jobs=1, random_state=0)
        taken, _ = timed(others, lambda: model.fit(mine, mine_y))
        waiting = idle(others)
    if world.rank == 0:
        single = Context().run(LogisticRegression(tol=1e-6, n_jobs=1, random_state=0).fit, table, y)
        told: dict[str, Any] = {
            name: {
                "pass": min(wall for wall, _ in times),
                "median": float(np.median([wall for wall, _ in times])),
                "cpu": min(cpu for _, cpu in times),
            }
            for name, times in found.items()
        }
        pairs = zip(found["one"], found["all"], strict=True)
        told["paired"] = float(np.median([one / both for (one, _), (both, _) in pairs]))
        told["objectives"] = [single.history_[-1].objective, model.history_[-1].objective]
        told |= {"gap": model.history_[-1].gap, "fit": taken, "waiting": waiting, "reading": reading}
        print(json.dumps(told), flush=True)
    weft.shutdown()


if __name__ == "__main__":
    main()
