"""One suggestion by TPE at 1,000 trials: ours and Optuna's own ask in memory, interleaved, median CPU milliseconds."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import optuna
from benchmarks import claims

from weft.tune.samplers.simple import random_point
from weft.tune.study.study import Study

SPACE = {
    "lr": "log:1e-5:1",
    "width": "int:4:512:log",
    "dropout": "float:0:0.7",
    "optimizer": "sgd,adam,rmsprop",
}


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tune.py suggest")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args(words)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    mine = Study(SPACE, minimize="loss", search="tpe")
    theirs = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    space = {
        "lr": optuna.distributions.FloatDistribution(1e-5, 1, log=True),
        "width": optuna.distributions.IntDistribution(4, 512, log=True),
        "dropout": optuna.distributions.FloatDistribution(0, 0.7),
        "optimizer": optuna.distributions.CategoricalDistribution(["sgd", "adam", "rmsprop"]),
    }
    draw = np.random.default_rng(0)
    for _ in range(options.trials):
        point: Any = random_point(mine.state.space, draw)
        value = float(draw.random())
        mine.add(point)
        mine.tell(mine.ask(), value)
        theirs.add_trial(optuna.trial.create_trial(params=point, distributions=space, value=value))
    times: dict[str, list[float]] = {"weft": [], "optuna": []}
    for _ in range(options.rounds):
        began = time.process_time()
        asked = mine.ask()
        times["weft"].append((time.process_time() - began) * 1000)
        mine.tell(asked, 0.5)
        began = time.process_time()
        trial = theirs.ask(space)
        times["optuna"].append((time.process_time() - began) * 1000)
        theirs.tell(trial, 0.5)
    middle = {name: statistics.median(values) for name, values in times.items()}
    print(
        f"weft {middle['weft']:.2f} ms, optuna {middle['optuna']:.2f} ms, ratio {middle['weft'] / middle['optuna']:.3f}"
    )
    print(claims.report("tune", {"suggest": middle["weft"] / middle["optuna"]}), end="")
