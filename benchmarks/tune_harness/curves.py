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
from benchmarks import claims

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


OURS = {
    "weft asha": ("asha", True),
    "weft hyperband": ("hyperband", True),
    "weft none": ("none", True),
    "weft asha that stops": ("asha", False),
}  # by name: the schedule, and whether it pauses trials
RIVAL = "syne tune asha"


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tune.py curves")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed, to measure in pieces")
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--time", type=float, default=250.0, help="simulated seconds")
    parser.add_argument("--only", nargs="*", choices=list(OURS), default=list(OURS), help="some of ours")
    parser.add_argument("--rival", help="a Python with Syne Tune")
    parser.add_argument("--log", type=Path, help="a file that seeds are added to; all in it count")
    options = parser.parse_args(words)
    seeds: list[dict[str, dict[str, Any]]] = []
    for seed in range(options.first, options.first + options.seeds):
        found = {name: run(OURS[name][0], seed, options.workers, options.time, pauses=OURS[name][1])
                 for name in options.only}  # fmt: skip
        if options.rival:
            found[RIVAL] = rival(options.rival, seed, options.workers, options.time)
        print(
            f"seed {seed}: " + ", ".join(f"{n} {one['regret']:.4f}" for n, one in found.items()), flush=True
        )
        seeds.append(found)
        if options.log is not None:
            with options.log.open("a") as file:
                file.write(json.dumps(found) + "\n")
    if options.log is not None:
        seeds = [json.loads(line) for line in options.log.read_text().splitlines()]
    report(seeds)


def paired_interval(
    ours: list[float], theirs: list[float], draws: int = 10_000
) -> tuple[float, float, float]:
    """Return the ratio of mean regrets, and its middle 95 % when seeds are drawn anew, both of a seed together."""
    pairs = np.array([ours, theirs])
    chosen = np.random.default_rng(0).integers(pairs.shape[1], size=(draws, pairs.shape[1]))
    above, below = pairs[:, chosen].mean(axis=2)
    low, high = np.quantile(above / below, [0.025, 0.975])
    return float(pairs[0].mean() / pairs[1].mean()), float(low), float(high)


def report(seeds: list[dict[str, dict[str, Any]]]) -> None:
    """Print medians, and the figures that claims are made of."""
    middle = {
        name: {
            key: statistics.median(one[name][key] for one in seeds) for key in ("regret", "busy", "trials")
        }
        for name in seeds[0]
    }
    for name, one in middle.items():
        print(f"{name}: median regret {one['regret']:.4f} of {len(seeds)} seeds, slots busy {one['busy']:.1%}, "
              f"trials {one['trials']:g}")  # fmt: skip
    figures = {
        "curves-busy": 100 * min(one["busy"] for seed in seeds for name, one in seed.items() if name in OURS)
    }
    if RIVAL in middle:
        ours = middle["weft asha"]["regret"], middle.get("weft hyperband", {}).get("regret")
        figures["curves-asha"] = ours[0] / middle[RIVAL]["regret"]
        for name in (one for one in middle if one != RIVAL):
            mine, theirs = ([seed[which]["regret"] for seed in seeds] for which in (name, RIVAL))
            ratio, low, high = paired_interval(mine, theirs)
            print(
                f"{name}: mean regret {ratio:.3f} of the rival's, 95 % of {low:.3f} to {high:.3f} by pairs of seeds"
            )
        if ours[1] is not None:
            figures["curves-hyperband"] = ours[1] / middle[RIVAL]["regret"]
    known = {claim.name for part in claims.parts(["tune"]) for claim in part.claims}
    print(claims.report("tune", {key: one for key, one in figures.items() if key in known}), end="")
