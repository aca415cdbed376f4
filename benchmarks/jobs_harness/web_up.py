"""The time from the start of `weft up` on fresh data to its first page.

python benchmarks/jobs.py up --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from benchmarks import claims
from benchmarks.jobs_harness.service import service, summary


def measure(rounds: int) -> list[tuple[float, float]]:
    """Return the seconds of each start, and the processor time of each."""
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, service(Path(folder) / "data") as running:
            found.append((running.to_page_s, running.to_page_cpu_s))
    return found


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="jobs.py up")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(words)
    measured = measure(given.rounds)
    found = [one[0] for one in measured]
    print(f"from weft up to the first page, fresh data, {given.rounds} starts: {summary(found)}")
    print(f"  processor time of each: {', '.join(f'{one[1]:.2f} s' for one in measured)}")
    cpu_s = statistics.median(one[1] for one in measured)
    print(claims.report("jobs_web", {"up-s": statistics.median(found), "up-cpu-s": cpu_s}))
