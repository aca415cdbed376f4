"""The cost of the scheduler and the journal for each of 1,000 trials, training not counted: CPU milliseconds."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import claims

from weft.tune.runners.simulated import CROSSING_SPACE, SimulatedStudy
from weft.tune.study.config import convert_config
from weft.tune.study.core import StudyCore
from weft.tune.study.journal import StudyJournal


def run(schedule: str, trials: int, workers: int, journal: StudyJournal | None) -> tuple[float, int]:
    """Return CPU milliseconds for each trial, and how many reports there were."""
    config = convert_config(
        {
            "space": CROSSING_SPACE,
            "minimize": "loss",
            "search": "random",
            "schedule": schedule,
            "resource": {"min": 1, "max": 27 if schedule != "none" else 5},
            "budget": {"trials": trials},
        }
    )
    record: Any = None if journal is None else journal.write
    core = StudyCore.begin(config, record)
    study = SimulatedStudy(core, lambda params, step: params["decay"] + 1 / step, workers=workers)
    began = time.process_time()
    result = study.run()
    return (time.process_time() - began) * 1000 / len(result.state.trials), result.steps


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tune.py overhead")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args(words)
    found: dict[str, float] = {}
    for schedule in ("none", "asha", "hyperband"):
        with tempfile.TemporaryDirectory() as folder:
            journal = StudyJournal(Path(folder))
            each_ms, reports = run(schedule, options.trials, options.workers, journal)
            journal.close()
        print(f"{schedule}, with its journal: {each_ms:.2f} ms of CPU for each of {options.trials} trials, "
              f"{reports} reports")  # fmt: skip
        if schedule == "asha":
            found["overhead"] = each_ms
    print(claims.report("tune", found), end="")
