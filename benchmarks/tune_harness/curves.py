"""Curves that cross on 200 simulated workers: our ASHA and Hyperband, running all, and Syne Tune's ASHA.

The rival runs in a Python of its own (`--rival`), where Syne Tune, numpy and msgspec are installed; its scheduler is
driven on the same curves and the same simulated clock. Regret is the difference between the floor of the best trial
that was trained in full and the lowest floor of ten thousand random points, at equal simulated time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from weft.tune.runners.simulated import CROSSING_SPACE, CrossingCurves, SimulatedStudy
from weft.tune.samplers.simple import random_point
from weft.tune.space.space import SearchSpace
from weft.tune.study.config import convert_config
from weft.tune.study.core import StudyCore

MOST = 81
ROOT = Path(__file__).resolve().parents[2]


def lowest(curves: CrossingCurves, points: int = 10_000) -> float:
    """Return the lowest floor of many random points."""
    space = SearchSpace(CROSSING_SPACE)
    draw = np.random.default_rng(0)
    return min(curves.floor(random_point(space, draw)) for _ in range(points))


def run(schedule: str, seed: int, workers: int, most_s: float, *, pauses: bool = True) -> dict[str, Any]:
    """Return the regret, the share of busy slots and the steps of one simulated study."""
    curves = CrossingCurves(seed)
    config = convert_config(
        {
            "space": CROSSING_SPACE,
            "minimize": "loss",
            "search": "random",
            "schedule": schedule,
            "resource": {"min": 1, "max": MOST},
            "budget": {"time": most_s},
            "seed": seed,
            "checkpoints": pauses,
        }
    )
    began = time.process_time()
    study = SimulatedStudy(
        StudyCore.begin(config), curves, workers=workers, step_s=curves.step_s, start_s=0.1, most_s=most_s
    )
    result = study.run()
    full = result.state.in_state("completed")
    best = min(full, key=lambda t: (t.last_score, t.number)) if full else None
    regret = float("nan") if best is None else curves.floor(best.params) - lowest(curves)
    return {
        "regret": regret,
        "busy": result.busy_share,
        "trials": len(result.state.trials),
        "cpu_ms_per_trial": (time.process_time() - began) * 1000 / len(result.state.trials),
    }


def rival(python: str, seed: int, workers: int, most_s: float) -> dict[str, Any]:
    """Return the same of Syne Tune's ASHA."""
    script = Path(__file__).with_name("syne_tune_rival.py")
    words = [python, str(script), str(seed), str(workers), str(most_s)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT / "src")}
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    curves = CrossingCurves(seed)
    best = found.get("best")
    found["regret"] = float("nan") if best is None else curves.floor(best) - lowest(curves)
    return dict(found)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tune.py curves")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--time", type=float, default=250.0, help="simulated seconds")
    parser.add_argument("--rival", help="a Python with Syne Tune")
    options = parser.parse_args(words)
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in range(options.seeds):
        for schedule in ("asha", "hyperband", "none"):
            found.setdefault(f"weft {schedule}", []).append(
                run(schedule, seed, options.workers, options.time)
            )
        found.setdefault("weft asha that stops", []).append(
            run("asha", seed, options.workers, options.time, pauses=False)
        )
        if options.rival:
            found.setdefault("syne tune asha", []).append(
                rival(options.rival, seed, options.workers, options.time)
            )
        print(
            f"seed {seed}: " + ", ".join(f"{n} {v[-1]['regret']:.4f}" for n, v in found.items()), flush=True
        )
    for name, results in found.items():
        regret = statistics.median(one["regret"] for one in results)
        busy = statistics.median(one["busy"] for one in results)
        trials = statistics.median(one["trials"] for one in results)
        print(f"{name}: median regret {regret:.4f}, slots busy {busy:.1%}, trials {trials:g}")
