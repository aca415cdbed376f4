"""Figures of the jobs service: each is a part of its own, under benchmarks/jobs_harness.

python benchmarks/jobs.py                 the parts
python benchmarks/jobs.py list            the jobs page of 10,000 jobs
python benchmarks/jobs.py stream          from weft.log to those who watch
python benchmarks/jobs.py up              from the start to the first page
python benchmarks/jobs.py points          metric points that the store takes from 64 clients
python benchmarks/jobs.py log             what a call of weft.log costs
python benchmarks/jobs.py lines           log lines from 32 ranks
python benchmarks/jobs.py search          a search in a gigabyte of logs
python benchmarks/jobs.py chart           a chart of a million points
python benchmarks/jobs.py decide          one decision over 10,000 jobs and 1,000 hosts
python benchmarks/jobs.py simulate        a week of 64 hosts against a plain queue and checkpoints
python benchmarks/jobs.py kills           kill -9 of the service, 100 times
python benchmarks/jobs.py failover        two services on PostgreSQL, the one that schedules is lost
python benchmarks/jobs.py urgent          an urgent job beside elastic ones on a virtual cluster
python benchmarks/jobs.py paint           the console in chromium: 10,000 jobs, a million points
python benchmarks/jobs.py mlflow          MLflow's log-batch against an MLflow server (--rival PYTHON)
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

PARTS = {
    "points": "points",
    "log": "log_calls",
    "lines": "log_lines",
    "search": "log_search",
    "chart": "chart",
    "decide": "decide",
    "simulate": "simulate",
    "kills": "kills",
    "failover": "kills:failover",
    "urgent": "urgent",
    "paint": "paint",
    "list": "web_list",
    "stream": "web_stream",
    "up": "web_up",
    "mlflow": "mlflow_door",
}  # modules with main(words), or module:function


def main(words: list[str]) -> int:
    if not words or words[0] not in PARTS:
        print(__doc__)
        return 0 if not words else 2
    module, _, function = PARTS[words[0]].partition(":")
    getattr(importlib.import_module(f"benchmarks.jobs_harness.{module}"), function or "main")(words[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
