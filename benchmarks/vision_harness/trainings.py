"""Trainings of `benchmarks/vision.py`: what a configuration file says, on all of the data or with a part held out.

Settings are chosen on pictures that the figure is not told on: `--hold-out` takes some of the training pictures
away, or of a folder its validation split, and judges on those; the test split is not read.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace as altered
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from weft.vision.config import VisionConfig, describe, read_config
from weft.vision.records import DatasetVersion

CONFIGS = Path(__file__).parent.parent / "vision_configs"


def with_settings(config: VisionConfig, settings: Sequence[str]) -> VisionConfig:
    """Return a configuration with values such as `schedule.epochs=12` in place of its own."""
    plain: Any = describe(config)
    for setting in settings:
        name, _, value = setting.partition("=")
        *outer, last = name.split(".")
        place = plain
        for part in outer:
            place = place[part]
        place[last] = json.loads(value)
    return msgspec.convert(plain, VisionConfig)


def held_out_arrays(data: Path, count: int, target: Path) -> None:
    """Write a file of arrays whose test pictures are drawn from the training pictures of another."""
    with np.load(data) as arrays:
        pixels, classes = arrays["train_x"], arrays["train_y"]
    order = np.random.default_rng(2026).permutation(len(classes))
    learned, judged = np.sort(order[count:]), np.sort(order[:count])
    np.savez(
        target,
        train_x=pixels[learned],
        train_y=classes[learned],
        test_x=pixels[judged],
        test_y=classes[judged],
    )


def held_out_version(version: DatasetVersion) -> DatasetVersion:
    """Return a version that is judged on its validation split, without its test split."""
    kept = [one for one in version.pictures if one.split != "test"]
    return altered(
        version,
        pictures=tuple(altered(one, split="test") if one.split == "validation" else one for one in kept),
    )


class TrainingCase:
    """One configuration file with its data, ready to be trained again and again."""

    def __init__(self, name: str, data: str, settings: Sequence[str], device: str | None) -> None:
        self.name, self.device = name, device
        self.config = replace(with_settings(read_config(CONFIGS / f"{name}.yaml"), settings), data=data)

    def run(self, seed: int, version: DatasetVersion, folder: Path, part_s: float = 0) -> dict[str, float]:
        """Train once and return the figures; with `part_s`, end after a checkpoint that is taken up by the next."""
        import torch

        from weft.vision.training.run import train
        from weft.vision.training.world import SoloWorld

        world = SoloWorld(torch.device(self.device) if self.device else None)
        report = _Progress(folder, part_s)
        found = train(
            replace(self.config, seed=seed), version, folder, report=report, world=world, export=False
        )
        results = found.results
        figures = {"training_s": results["training_s"], "epochs": results["epochs"], **results["metrics"]}
        told = {name: round(value, 4) for name, value in figures.items()}
        print(
            json.dumps({"benchmark": self.name, "seed": seed, "device": str(world.device), **told}),
            flush=True,
        )
        return figures

    def runs(self, seeds: Sequence[int], hold_out: int) -> list[dict[str, float]]:
        """Train for every seed, on all of the data or with a part of it held out."""
        from weft.vision.opening import open_data
        from weft.vision.training.run import data_version

        with tempfile.TemporaryDirectory() as folder:
            case = self
            if hold_out and self.config.data.endswith(".npz"):
                held_out_arrays(Path(self.config.data), hold_out, Path(folder) / "held-out.npz")
                case = self._with(replace(self.config, data=str(Path(folder) / "held-out.npz")))
            version = data_version(case.config, open_data)
            if hold_out and version.pictures:
                version = held_out_version(version)
                case = self._with(replace(self.config, train_on=("train",)))
            return [case.run(seed, version, Path(folder) / f"model-{seed}") for seed in seeds]

    def _with(self, config: VisionConfig) -> TrainingCase:
        other = TrainingCase.__new__(TrainingCase)
        other.name, other.device, other.config = self.name, self.device, config
        return other


def chosen_epochs(
    case: TrainingCase, choices: Sequence[float], reach: float, seeds: Sequence[int], hold_out: int
) -> TrainingCase:
    """Return the case with the fewest epochs whose mean accuracy on held-out pictures is at least `reach`."""
    for epochs in choices:
        tried = case._with(replace(case.config, schedule=replace(case.config.schedule, epochs=epochs)))
        found = tried.runs(seeds, hold_out)
        mean = statistics.mean(one["accuracy"] for one in found)
        print(f"held out: {epochs:g} epochs reach {mean:.4f} (mean of {len(found)})", flush=True)
        if mean >= reach:
            break
    print(f"chosen: {tried.config.schedule.epochs:g} epochs", flush=True)
    return tried


def told(name: str, found: Sequence[Mapping[str, float]]) -> None:
    """Print the mean and the spread of several runs."""
    for key in found[0]:
        values = [one[key] for one in found]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{name} {key}: mean {statistics.mean(values):.4f}, sd {spread:.4f}, least {min(values):.4f}")


class _Progress:
    """Prints the loss now and then; ends the process after a checkpoint where a part's time is over."""

    def __init__(self, folder: Path, part_s: float) -> None:
        self._checkpoint, self._part_s, self._began = folder / "checkpoint.pt", part_s, time.time()

    def __call__(self, values: Mapping[str, Any]) -> None:
        if values.get("step", 0) % 50 == 0 and "loss" in values:
            print(f"step {values['step']}  loss {values['loss']:.3f}", file=sys.stderr)
        if "val_map50" in values:
            print(f"step {values['step']}  mAP@.5 {values['val_map50']:.3f}", file=sys.stderr)
        if self._part_s and time.time() - self._began > self._part_s and self._checkpoint.exists():
            written = self._checkpoint.stat().st_mtime
            if written - self._began > self._part_s - 60:
                print(f"a part of {self._part_s:g} s is over; call again to go on", file=sys.stderr)
                sys.exit(3)
