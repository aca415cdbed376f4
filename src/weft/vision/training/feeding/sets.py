"""Sets of pictures for training, from a version of a data set or from arrays in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.errors import UsageError
from weft.vision.config.schema import VisionConfig
from weft.vision.records import DatasetVersion, LabelledPicture, Split
from weft.vision.training.feeding.batches import PictureSet
from weft.vision.training.feeding.targets import objects_of


@dataclass(frozen=True)
class TrainingData:
    """The pictures that a training learns from, chooses by and is judged on."""

    train: PictureSet
    choose: PictureSet | None  # None: the last state is kept
    test: PictureSet | None
    classes: tuple[str, ...]


def training_data(config: VisionConfig, version: DatasetVersion) -> TrainingData:
    """Return the sets of a resolved configuration."""
    arrays = array_file(config.data)
    if arrays is not None:
        return _from_arrays(arrays, config)
    classes = version.labels if config.task in ("detection", "segmentation") else version.categories

    def chosen(splits: tuple[Split, ...]) -> PictureSet | None:
        wanted = [one for one in version.pictures if one.split in splits and _has_label(one, config)]
        return picture_set(wanted, config, classes) if wanted else None

    train = chosen(config.train_on)
    if train is None:
        raise UsageError(
            f"{version.name} must have labelled pictures for {', '.join(config.train_on)}, got none"
        )
    choose = None if config.choose_on in config.train_on else chosen((config.choose_on,))
    return TrainingData(train, choose, chosen(("test",)), tuple(classes))


def picture_set(
    pictures: list[LabelledPicture], config: VisionConfig, classes: tuple[str, ...]
) -> PictureSet:
    """Return a set with the labels that the task needs."""
    sizes = np.array([(one.width, one.height) for one in pictures], float).reshape(-1, 2)
    if config.task in ("detection", "segmentation"):
        objects = [objects_of(one, classes) for one in pictures]
        return PictureSet(sizes, pictures=pictures, objects=objects)
    numbers = {name: number for number, name in enumerate(classes)}
    labels = np.array([numbers.get(one.category or "", -1) for one in pictures], np.int64)
    return PictureSet(sizes, pictures=pictures, classes=labels)


def _has_label(picture: LabelledPicture, config: VisionConfig) -> bool:
    """A detector learns from pictures without objects as well, once a person or a file said that there are none."""
    return config.task in ("detection", "segmentation") or picture.category is not None


def array_file(data: str) -> Path | None:
    path = Path(data)
    return path if path.suffix == ".npz" and path.is_file() else None


def array_version(path: Path) -> DatasetVersion:
    """Return the empty version that stands for arrays in a file: its name and classes."""
    with np.load(path) as arrays:
        wrong = {"train_x", "train_y", "test_x", "test_y"} - set(arrays)
        if wrong:
            raise UsageError(
                f"{path} must hold train_x, train_y, test_x and test_y, got no {', '.join(sorted(wrong))}"
            )
        count = int(arrays["train_y"].max()) + 1
        names = tuple(map(str, arrays["classes"])) if "classes" in arrays else tuple(map(str, range(count)))
    return DatasetVersion(name=path.stem, number=0, digest="", pictures=(), categories=names)


def _from_arrays(path: Path, config: VisionConfig) -> TrainingData:
    """Read pictures as n x height x width x 3 in uint8, and class numbers."""
    with np.load(path) as arrays:
        sets = [_array_set(arrays[f"{part}_x"], arrays[f"{part}_y"]) for part in ("train", "test")]
    return TrainingData(sets[0], None, sets[1], array_version(path).categories)


def _array_set(pixels: np.ndarray, classes: np.ndarray) -> PictureSet:
    sizes = np.tile([pixels.shape[2], pixels.shape[1]], (len(pixels), 1))
    return PictureSet(sizes, pixels=np.ascontiguousarray(pixels), classes=classes.astype(np.int64))
