"""Time to a target accuracy on digits: ours, Optuna's TPE with its Hyperband pruner, and random search, interleaved.

All search the same space with the same trainings, one at a time on one core. The clock is the processor time of this
process, suggestions included, until any report reaches the target. A search that has not by `--most` seconds counts as
that long: the median of a rival's times is then a lower bound, and the ratio to it an upper one. Optuna's side runs
where Optuna is installed, and random search is Optuna's, or else ours. The case cifar10 is for a GPU, and goes by the
clock on the wall.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks import claims
from benchmarks.tune_harness import cifar
from benchmarks.tune_harness.trainings import CASES, StepTraining, TargetCase
from threadpoolctl import threadpool_limits

import weft.tune as tune
from weft.tune.samplers.simple import random_point
from weft.tune.space.domains import FloatRange, IntRange, LogRange, OrderedChoices
from weft.tune.space.space import SearchSpace

try:
    optuna: Any = import_module("optuna")
except ModuleNotFoundError:
    optuna = None

Stepper = Callable[[StepTraining], float]  # takes one step of a training, and looks at the clock
SearchRun = Callable[[Stepper], None]


class SearchOver(Exception):  # noqa: N818 (an end, not an error)
    """The target was reached, or the time is over."""


def ours(case: TargetCase, seed: int, step: Stepper, trials: int, schedule: str, search: str = "tpe") -> None:
    """Search by weft.tune until the stepper ends it."""

    def train(trial: Any) -> None:
        training = trial.kept.get("training")
        if training is None:
            training = trial.kept["training"] = case.training(trial.params, seed)
            trial.kept["steps"] = 0
        while trial.kept["steps"] < case.steps:
            trial.kept["steps"] += 1
            trial.report(step(training), trial.kept["steps"])
            if trial.should_prune():
                raise tune.TrialPruned

    study = tune.Study(
        case.space,
        train,
        maximize="accuracy",
        search=search,
        schedule=schedule,
        resource={"name": case.resource, "max": case.steps},
        seed=seed,
        checkpoints=True,
    )
    try:
        study.optimize(trials=trials)
    finally:
        study.close()


def suggested(case: TargetCase, trial: Any) -> dict[str, Any]:
    """Return a point of the same space by Optuna's suggestions."""
    params: dict[str, Any] = {}
    for name, domain in SearchSpace.of(case.space).domains.items():
        match domain:
            case LogRange(low=low, high=high):
                params[name] = trial.suggest_float(name, low, high, log=True)
            case FloatRange(low=low, high=high):
                params[name] = trial.suggest_float(name, low, high)
            case IntRange(low=low, high=high, log=log):
                params[name] = trial.suggest_int(name, low, high, log=log)
            case OrderedChoices(values=values):
                params[name] = values[trial.suggest_int(name, 0, len(values) - 1)]
            case _:
                params[name] = trial.suggest_categorical(name, domain.grid(2))
    return params


def optunas(case: TargetCase, seed: int, step: Stepper, trials: int, *, random: bool) -> None:
    """Search by Optuna until the stepper ends it."""

    def objective(trial: Any) -> float:
        training = case.training(suggested(case, trial), seed)
        accuracy = 0.0
        for count in range(1, case.steps + 1):
            accuracy = step(training)
            trial.report(accuracy, count)
            if trial.should_prune():
                raise optuna.TrialPruned
        return accuracy

    sampler: Any = (optuna.samplers.RandomSampler if random else optuna.samplers.TPESampler)(seed=seed)
    pruner: Any = optuna.pruners.NopPruner()
    if not random:
        pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=case.steps, reduction_factor=3)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    study.optimize(objective, n_trials=trials)


def time_to(
    target: float, most_s: float, search: SearchRun, clock: Callable[[], float]
) -> tuple[float, bool]:
    """Return the seconds until a search reports the target, and whether it did within the time."""
    start = clock()
    reached = [False]

    def step(training: StepTraining) -> float:
        accuracy = training.step()
        reached[0] = accuracy >= target
        if reached[0] or clock() - start > most_s:
            raise SearchOver
        return accuracy

    with contextlib.suppress(SearchOver):
        search(step)
    spent_s = clock() - start
    return (spent_s, True) if reached[0] else (max(most_s, spent_s), False)


def contenders(case: TargetCase, seed: int, trials: int) -> Iterator[tuple[str, SearchRun]]:
    """Yield the searches of one seed by name."""
    search = "tpe" if optuna is not None else "random"  # TPE is Optuna's
    yield "weft", lambda step: ours(case, seed, step, trials, "asha", search)
    if optuna is not None:
        yield "optuna", lambda step: optunas(case, seed, step, trials, random=False)
        yield "random", lambda step: optunas(case, seed, step, trials, random=True)
    else:
        yield "random", lambda step: ours(case, seed, step, trials, "none", "random")


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tune.py target")
    parser.add_argument("--case", choices=list(CASES), default="cnn")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed, to measure in pieces")
    parser.add_argument("--target", type=float, help="another target than the case's")
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--most", type=float, default=60.0, help="processor seconds of one search")
    parser.add_argument("--only", nargs="*", help="names of searches")
    parser.add_argument("--data", type=Path, help="cifar10.npz, for the case cifar10")
    parser.add_argument("--calibrate", type=int, help="only train so many random points, and print quantiles")
    parser.add_argument("--log", type=Path, help="a file that pieces are added to; all in it count")
    options = parser.parse_args(words)
    case = CASES[options.case]
    if options.case == "cifar10":
        if options.data is None:
            parser.error("the case cifar10 must have --data, got none; write --data cifar10.npz")
        cifar.place[:] = [options.data]
    target = options.target or case.target
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if optuna is not None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
    warm = SearchSpace.of(case.space)
    case.training({name: domain.grid(2)[0] for name, domain in warm.domains.items()}, 0).step()
    if options.calibrate:
        calibrate(case, options.calibrate)
        return
    with threadpool_limits(1):  # of scikit-learn, whose threads would wait for each other on a busy machine
        measure(options, case, target)


def measure(options: argparse.Namespace, case: TargetCase, target: float) -> None:
    """Search by each contender for each seed, and report."""
    times: dict[str, list[float]] = {}
    if options.log is not None and options.log.exists():
        times = json.loads(options.log.read_text())
    for seed in range(options.first, options.first + options.seeds):
        for name, search in contenders(case, seed, options.trials):
            if options.only and name not in options.only:
                continue
            spent_s, reached = time_to(target, options.most, search, case.clock)
            times.setdefault(name, []).append(spent_s)
            print(f"seed {seed}: {name} {spent_s:.1f} s{'' if reached else ', not reached'}", flush=True)
            if options.log is not None:
                options.log.write_text(json.dumps(times))
    report(options.case, target, times)


def calibrate(case: TargetCase, points: int) -> None:
    """Train random points, and print what shares of them ever reach."""
    space, best = SearchSpace.of(case.space), []
    for number in range(points):
        training = case.training(random_point(space, np.random.default_rng([11, number])), number)
        best.append(max(training.step() for _ in range(case.steps)))
        print(f"{number}: {best[-1]:.4f}", flush=True)
    for share in (0.5, 0.8, 0.9, 0.95):
        print(f"{1 - share:.0%} of random points reach {np.quantile(best, share):.4f}")


def report(name: str, target: float, times: dict[str, list[float]]) -> None:
    """Print medians and ratios."""
    middle = {rival: statistics.median(values) for rival, values in times.items()}
    for rival, value in middle.items():
        print(f"{rival}: median {value:.2f} s to {target} of {len(times[rival])} seeds")
    if "weft" not in middle:
        return
    ratios = {f"target-{name}-{rival}": middle["weft"] / middle[rival] for rival in middle if rival != "weft"}
    for key, ratio in ratios.items():
        print(f"{key}: {ratio:.3f}")
    known = {claim.name for part in claims.parts(["tune"]) for claim in part.claims}
    print(claims.report("tune", {key: ratio for key, ratio in ratios.items() if key in known}), end="")
