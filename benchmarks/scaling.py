"""How soon another number of workers takes effect: from `scale()` until surplus workers are gone, and new ones step.

    python benchmarks/scaling.py                       five trials with a step of 100 ms, three workers on this machine
    python benchmarks/scaling.py --trials 20 --step-ms 20
    python benchmarks/scaling.py --json

A trial shrinks a run from three workers to one and lets it grow again. "left" is the time until the others have agreed
on a view without the surplus workers, "stepped" until the one that stays has committed a step in it, "gone" until the
surplus processes have ended and their cores, memory and devices are free for another job; "joined" is the time until a
step was committed by all three again. The median and the longest of all trials are printed, with the load of the
machine, which these times depend on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from testing.elastic.local_run import WORKERS, LocalRun

from weft.elastic.launcher.scale import present_workers, scale
from weft.topology.hostlist import parse_hosts

PATIENCE_S = 120.0
MANY, FEW = 3, 1


def wait(done: Callable[[], object]) -> float:
    """Wait until something is true; return the time."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing within {PATIENCE_S:g} s")
        time.sleep(0.005)
    return time.time()


def newest_view(run: LocalRun) -> tuple[int, int]:
    """Return the number and the size of the newest view."""
    views = [(int(event["view"]), int(event["size"])) for event in run.events("agreed")]
    return max(views, default=(0, 0))


def stepped(run: LocalRun, view: int, workers: int) -> bool:
    """Return whether so many workers have committed a step in this view."""
    return sum(int(event["view"]) == view for event in run.events("stepped")) >= workers


def trial(run: LocalRun) -> dict[str, float]:
    """Shrink a run and let it grow again; return the seconds that each part took."""
    asked = time.time()
    scale(run.run_dir, parse_hosts(f"localhost:{FEW}"))
    left = wait(lambda: newest_view(run)[1] == FEW)
    view = newest_view(run)[0]
    steps = wait(lambda: stepped(run, view, FEW))
    gone = wait(lambda: present_workers(run.run_dir) == {"localhost": FEW})
    again = time.time()
    scale(run.run_dir, parse_hosts(f"localhost:{MANY}"))
    wait(lambda: newest_view(run)[1] == MANY)
    joined = wait(lambda: stepped(run, newest_view(run)[0], MANY))
    return {"left": left - asked, "stepped": steps - asked, "gone": gone - asked, "joined": joined - again}


def measure(trials: int, step_ms: float) -> list[dict[str, float]]:
    """Run all trials on one run."""
    with tempfile.TemporaryDirectory(prefix="weft-scaling-") as folder:
        hurry = Path(folder, "hurry")
        # Four micro-batches a step are shared by three workers, so that one of them computes two.
        pause = ["--pause", str(step_ms / 2000)]
        args = ["--steps", "1000000", *pause, "--hurry", str(hurry)]
        run = LocalRun(Path(folder), f"{FEW}:{MANY}", MANY, args, script=str(WORKERS / "steady.py")).start()
        try:
            run.await_event("stepped", worker=f"localhost/{MANY - 1}.0")
            return [trial(run) for _ in range(trials)]
        finally:
            run.kill_politely()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--step-ms", type=float, default=100.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.trials, asked.step_ms)
    load = os.getloadavg()[0]
    if asked.json:
        print(json.dumps({"step_ms": asked.step_ms, "load": load, "trials": found}))
        return
    print(f"step {asked.step_ms:g} ms, {asked.trials} trials, load {load:.1f} on {os.cpu_count()} cores")
    for name in found[0]:
        times = [one[name] for one in found]
        print(f"{name:<8} median {statistics.median(times):6.2f} s   longest {max(times):6.2f} s")


if __name__ == "__main__":
    main()
