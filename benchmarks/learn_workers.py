"""Fits on several workers.

    python benchmarks/learn_workers.py [--rows 1000000] [--columns 100] [--repeats 3]      needs root
    python benchmarks/learn_workers.py --sparse 1,2,4 [--rows 100000] [--columns 300000]

Dense: a logistic pass on two hosts against one, the same objective, and how much sooner. Two virtual hosts of this
machine, cards of 1 Gbit/s, one worker and one thread on each. A pass reads all rows once and adds up over the hosts
what they found; passes of one host and of both follow each other in the same run. What counts is the best of many
passes, each as long as its slowest worker takes: neighbours that keep the two cores busy would be measured otherwise.
Both hosts have one memory here, and a pass is about as quick as memory: how much sooner two workers have just read the
rows is the most to hope for, and is told last.

Sparse: dual ascent by workers on their own rows against quasi-Newton steps over all rows, on workers of this machine;
CPU seconds of the busiest worker, for workers may share cores with each other. The gap is told as the solver says it,
and as the dual objective bounds it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.collectives import ONE_THREAD, WEFT, WORKERS
from testing.cluster.cluster import VirtualCluster, missing

PASSES = 150


def told(stdout: str, word: str) -> dict[str, Any]:
    line = next(line for line in stdout.splitlines() if f'"{word}"' in line)
    found: dict[str, Any] = json.loads(line[line.index("{") :])
    return found


def dense(rows: int, columns: int, repeats: int) -> int:
    if why := missing():
        print(f"needs the virtual cluster: {why}")
        return 0
    print(f"{date.today()}, {rows:,} x {columns} float32, load {os.getloadavg()[0]:.1f} before")
    best: dict[str, float] = {}
    reading = 0.0
    with tempfile.TemporaryDirectory() as folder, VirtualCluster(2, rate="1gbit") as cluster:
        argv = [WEFT, "run", "-H", "h1,h2", "--skip-checks", *ONE_THREAD, str(WORKERS / "learn_pass.py")]
        argv += [str(rows), str(columns), str(PASSES)]
        env = {"XDG_CACHE_HOME": str(Path(folder) / "cache"), **cluster.environment}
        for _ in range(repeats):
            found = told(cluster.run(argv, env=env, cwd=Path(folder), timeout=600).stdout, "objectives")
            one, two = found["one"], found["all"]
            print(
                f"  a pass: one host {one['pass'] * 1e3:6.1f} ms ({one['cpu'] * 1e3:.1f} CPU, median "
                f"{one['median'] * 1e3:.1f}), two {two['pass'] * 1e3:6.1f} ms ({two['cpu'] * 1e3:.1f} CPU, median "
                f"{two['median'] * 1e3:.1f}); pairs {found['paired']:.2f}x; "
                f"waiting takes {found['waiting']:.0%} of a core; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
            reading = max(found["reading"], reading)
            for name, times in (("one", one), ("two", two)):
                for kind in ("pass", "cpu"):
                    best[f"{name} {kind}"] = min(times[kind], best.get(f"{name} {kind}", times[kind]))
    apart = abs(found["objectives"][1] / found["objectives"][0] - 1)
    print(
        f"two hosts: a pass {best['one pass'] / best['two pass']:.2f}x faster "
        f"({best['one cpu'] / best['two cpu']:.2f}x by the CPU of the busiest worker), objectives {apart:.1e} apart; "
        "must be 1.6x, within 1e-6"
    )
    print(
        f"two workers that only read their halves of the rows, on this one memory: {reading:.2f}x faster than one"
    )
    return 0


def sparse(workers: list[int], rows: int, columns: int, repeats: int) -> int:
    print(f"{date.today()}, sparse {rows:,} x {columns:,}, 39 a row, load {os.getloadavg()[0]:.1f} before")
    for count in workers:
        argv = [WEFT, "run", "-n", str(count), *ONE_THREAD, str(WORKERS / "learn_sparse.py")]
        argv += [str(rows), str(columns), str(repeats)]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)
        if ended.returncode:
            print(ended.stderr, file=sys.stderr)
            return 1
        best = told(ended.stdout, "objective")
        for name, one in best.items():
            bound = best[f"{name.split(',')[0]}, dual"]
            off = one["objective"] / (bound["objective"] * (1 - bound["gap"])) - 1
            print(
                f"  {count} workers, {name:30} {one['cpu']:6.2f} CPU s of the busiest, {one['wall']:6.2f} s, "
                f"{one['passes']:3d} passes, gap {one['gap']:.1e} by its own words, {off:.1e} at most",
                flush=True,
            )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sparse", help="numbers of workers, with commas")
    options = parser.parse_args()
    if options.sparse:
        counts = [int(count) for count in options.sparse.split(",")]
        return sparse(counts, options.rows or 100_000, options.columns or 300_000, options.repeats)
    return dense(options.rows or 1_000_000, options.columns or 100, options.repeats)


if __name__ == "__main__":
    sys.exit(main())
