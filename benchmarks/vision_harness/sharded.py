"""Batches of a training from large JPEGs, read from their own files and from shards: CPU time a picture."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from msgspec.structs import replace

from weft.vision.config import ScheduleConfig, VisionConfig, resolve
from weft.vision.records import DatasetVersion, LabelledPicture
from weft.vision.training.feeding.sets import picture_set
from weft.vision.training.feeding.shards import open_shards


def sharded(count: int, rounds: int, width: int, height: int) -> None:
    """Print CPU milliseconds of making an augmented picture of 224 px from both, in turns, by one thread."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # where shards go
        version = _made(Path(folder), count, width, height)
        asked = VisionConfig(
            data="made",
            task="classification",
            model="resnet-18",
            threads=1,
            schedule=ScheduleConfig(epochs=10),
        )
        config = resolve(asked, version)
        sizes = np.tile([width, height], (count, 1)).astype(float)
        began = time.process_time()
        shards = open_shards(version.pictures, sizes, replace(config, shards="always"))
        assert shards is not None
        files = sum(picture.path.stat().st_size for picture in version.pictures)
        made_ms = (time.process_time() - began) / count * 1e3
        print(f"made {made_ms:.2f} ms a picture, {shards.size_bytes / files:.1%} of the bytes")
        # A set that is not kept is one too large for memory.
        sets = {
            how: picture_set(list(version.pictures), config, version.categories)
            for how in ("never", "always")
        }
        sets["always"].keep(replace(config, shards="always"), torch.device("cpu"))
        times: dict[str, list[float]] = {how: [] for how in sets}
        for number in range(rounds):
            for how, pictures in sets.items():
                generator = np.random.default_rng(number)
                began = time.process_time()
                pictures.training_batch(
                    np.arange(count), config, config.sides, generator, torch.device("cpu")
                )
                times[how].append((time.process_time() - began) / count * 1e3)
        for how, found in times.items():
            print(f"shards: {how:<7} median {sorted(found)[rounds // 2]:.2f} ms a picture of one core")


def _made(folder: Path, count: int, width: int, height: int) -> DatasetVersion:
    """Return pictures with noise as a camera's, whose JPEGs have some 2 bits a pixel."""
    generator = np.random.default_rng(0)
    found = []
    for number in range(count):
        few = generator.integers(0, 256, (height // 50, width // 50, 3), dtype=np.uint8)
        large = cv2.resize(few, (width, height), interpolation=cv2.INTER_CUBIC)
        noisy = np.clip(large + generator.normal(0, 6, large.shape), 0, 255).astype(np.uint8)
        path = folder / f"{number}.jpg"
        cv2.imwrite(str(path), noisy, [cv2.IMWRITE_JPEG_QUALITY, 88])
        found.append(
            LabelledPicture(
                id=str(number),
                name=path.name,
                path=path,
                width=width,
                height=height,
                category="ab"[number % 2],
            )
        )
    return DatasetVersion(name="made", number=1, digest="", pictures=tuple(found), categories=("a", "b"))
