"""The cost of `weft.log` on the training thread, while its thread writes to a file; and that no call is lost.

python benchmarks/jobs.py log [--calls 20000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import claims

# A training loop that logs ten times after each step; what the loop itself takes is taken off.
LOOP = """
import sys, time, torch, weft
calls, kind = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
rows = torch.randn(64, 256)
value = torch.tensor(0.25) if kind == "tensor" else 0.25
weft.log(loss=0.25, step=0)
used = empty = 0
for first in range(1, calls, 10):
    model(rows).square().mean().backward()
    began = time.thread_time_ns()
    for step in range(first, min(first + 10, calls)):
        weft.log({"loss": value, "rate": 0.1}, step=step)
    used += time.thread_time_ns() - began
    began = time.thread_time_ns()
    for step in range(first, min(first + 10, calls)):
        {"loss": value, "rate": 0.1}
    empty += time.thread_time_ns() - began
print((used - empty) / calls / 1000)
"""


def one(calls: int, kind: str) -> tuple[float, int]:
    """Return microseconds of a call on the training thread, and the lines that were lost."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WEFT_RUN_DIR": folder}
        command = [sys.executable, "-c", LOOP, str(calls), kind]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        kept = Path(folder, "metrics", "rank-0.jsonl").read_bytes().count(b"\n")
        return float(done.stdout), calls - kept


def main(words: list[str]) -> None:
    """Print the figures beside the claims."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(words)
    measured, lost = {}, 0
    for kind in ("number", "tensor"):
        results = [one(given.calls, kind) for _ in range(given.rounds)]
        measured[f"log-{kind}"] = statistics.median(us for us, _ in results)
        lost += sum(missing for _, missing in results)
    print(claims.report("jobs_reports", measured | {"log-lost": lost}))
