"""A simulated week of a cluster of 64 hosts: our scheduling against a plain queue and against preemption by checkpoint.

    python benchmarks/jobs.py simulate [--seeds 2] [--load 0.85]

All three play the same made-up jobs: about 700 accelerators' worth of work for 512, more by day, a few urgent. To ours,
60 % of the jobs are elastic, from a quarter of the size their users would ask for without that to twice of it; to the
other two, each has the size that is asked for. The plain queue starts jobs in the order of priority and age, and none
before one that waits. The other one has backfill and fair share, and pauses jobs at checkpoints for urgent ones.
"""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor

from benchmarks import claims

from weft.jobs.scheduler.model import Policy
from weft.jobs.scheduler.simulation import Simulation, SimulationResult, make_hosts, make_trace, rigid
from weft.text import format_table

HOSTS = 64
POLICIES = {
    "ours": Policy(),
    "plain queue": Policy(backfill=False, preempt=False, share_points=0.0),
    "checkpoints": Policy(shrink=False),
}


def play(name: str, seed: int, load: float, days: float) -> tuple[str, int, SimulationResult]:
    """Return what becomes of one week under one policy."""
    trace = make_trace(seed, days=days, hosts=HOSTS, load=load)
    result = Simulation(make_hosts(HOSTS), POLICIES[name]).play(trace if name == "ours" else rigid(trace))
    return name, seed, result


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--load", type=float, default=0.85)
    parser.add_argument("--days", type=float, default=7.0)
    asked = parser.parse_args(words)
    with ProcessPoolExecutor(2) as pool:
        tasks = [
            pool.submit(play, name, seed, asked.load, asked.days)
            for seed in range(asked.seeds)
            for name in POLICIES
        ]
        done = [task.result() for task in tasks]
    rows = [
        (
            str(seed), name, str(found.jobs), f"{found.mean_wait_s / 60:.1f}", f"{found.mean_urgent_wait_s / 60:.2f}",
            f"{found.mean_turnaround_s / 60:.0f}", f"{found.use:.3f}", str(found.shrinks), str(found.pauses),
        )
        for name, seed, found in done
    ]  # fmt: skip
    header = (
        "seed",
        "policy",
        "jobs",
        "wait min",
        "urgent min",
        "turnaround min",
        "use",
        "shrinks",
        "pauses",
    )
    print("\n".join(format_table((header, *rows), left=("seed", "policy"))))
    found = {
        name: {key: statistics.mean(getattr(r, key) for n, _, r in done if n == name) for key in _KEYS}
        for name in POLICIES
    }
    ours = found.pop("ours")
    figures = {}
    for name, other in found.items():
        short = "fifo" if name == "plain queue" else "checkpoint"
        figures[f"wait-{short}"] = ours["mean_wait_s"] / other["mean_wait_s"]
        figures[f"use-{short}"] = ours["use"] / other["use"]
    figures["urgent-wait"] = ours["mean_urgent_wait_s"]
    print(claims.report("jobs_scheduling", figures), end="")


_KEYS = ("mean_wait_s", "mean_urgent_wait_s", "use")
