"""Shards of a training: the same samples with and without, made once, resumed, mended, refused without room."""

from __future__ import annotations

import shutil
from collections import namedtuple
from dataclasses import replace as replaced
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weft.errors import UsageError, WeftError
from weft.vision.config import AugmentConfig, ScheduleConfig, VisionConfig
from weft.vision.config.schema import Task
from weft.vision.records import DatasetVersion, LabelledPicture
from weft.vision.training import train
from weft.vision.training.feeding.affines import fit_for, random_maps
from weft.vision.training.feeding.batches import PictureBatch, PictureSet
from weft.vision.training.feeding.sets import picture_set
from weft.vision.training.feeding.shards import ShardRoomError, open_shards, reduced_sizes, wants_shards
from weft.vision.training.schedule import input_size

CPU = torch.device("cpu")
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of caches for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "weft" / "vision-shards"


@pytest.fixture
def pictures(tmp_path: Path) -> list[LabelledPicture]:
    """Eight smooth JPEGs of 240 x 180, and a PNG that is no larger than a training needs."""
    generator = np.random.default_rng(0)
    found = []
    for number in range(9):
        size, kind = ((24, 18), "png") if number == 4 else ((240, 180), "jpg")
        few = generator.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        path = tmp_path / f"{number}.{kind}"
        cv2.imwrite(str(path), cv2.resize(few, size, interpolation=cv2.INTER_CUBIC))
        found.append(
            LabelledPicture(
                id=str(number),
                name=path.name,
                path=path,
                width=size[0],
                height=size[1],
                category="ab"[number % 2],
            )
        )
    return found


CONFIG = VisionConfig(
    task="classification",
    size=32,
    shards="always",
    augment=AugmentConfig(flip=True, crop=0.4, rotate=8, zoom=0.2, brightness=0.2),
    schedule=ScheduleConfig(epochs=4),
    threads=2,
)


def batch_of(kept: PictureSet, config: VisionConfig = CONFIG) -> PictureBatch:
    order = np.random.default_rng(5).permutation(len(kept))
    return kept.training_batch(order, config, config.sides, np.random.default_rng(7), CPU)


@pytest.mark.parametrize("task", ["classification", "detection"])
def test_samples_and_their_order_are_the_same_with_and_without(
    pictures: list[LabelledPicture], cache: Path, task: Task
) -> None:
    found = {}
    for shards in ("never", "always"):
        config = replace(CONFIG, task=task, shards=shards)
        kept = picture_set(pictures, config, ("a", "b"))
        if shards == "always":
            kept.keep(config, CPU)
            assert kept.shards is not None
            assert not kept.stored
        found[shards] = batch_of(kept, config)
    one, other = found["never"], found["always"]
    assert one.indices.tolist() == other.indices.tolist()
    assert np.array_equal(one.maps, other.maps)
    if one.classes is not None and other.classes is not None:
        assert one.classes.tolist() == other.classes.tolist()
    difference = (one.pixels.float() - other.pixels.float()).abs().mean((1, 2, 3))
    # Of 255, by the second JPEG: these colours are as strong as they come. Other pictures differ by some 60.
    assert float(difference.max()) < 5
    assert float(difference[one.indices.tolist().index(4)]) == 0  # was small enough: kept byte for byte


@given(
    seed=st.integers(0, 2**32),
    task=st.sampled_from(["classification", "detection"]),
    crop=st.sampled_from([0.0, 0.3, 0.7]),
    aspect=st.sampled_from([0.0, 0.33, 1.0]),
    zoom=st.sampled_from([0.0, 0.5]),
    shares=st.sampled_from([(), (0.5, 1.0), (1.0, 1.5)]),
)
def test_no_map_reads_more_pixels_than_are_kept(
    seed: int, task: Task, crop: float, aspect: float, zoom: float, shares: tuple[float, ...]
) -> None:
    augment = AugmentConfig(flip=True, rotate=20, crop=crop, aspect=aspect, zoom=zoom, translate=0.1)
    config = VisionConfig(task=task, size=(64, 96), augment=augment, schedule=ScheduleConfig(sizes=shares))
    generator = np.random.default_rng(seed)
    sizes = generator.integers(20, 2000, (64, 2)).astype(float)
    reduced = reduced_sizes(sizes, config)
    assert bool((reduced <= sizes).all())
    out = input_size(config.schedule, config.sides, 0.99)
    maps = random_maps(generator, sizes, out, fit_for(config), augment)
    steps = np.sqrt(np.abs(np.linalg.det(maps[:, :, :2])))
    read = np.minimum(sizes, sizes / steps[:, None])
    assert bool((read <= reduced + 1e-6).all())


def test_files_are_made_once_whatever_the_labels_say(pictures: list[LabelledPicture], cache: Path) -> None:
    sizes = np.array([(one.width, one.height) for one in pictures], float)
    first = open_shards(pictures, sizes, CONFIG, part_pixels=10_000)
    assert first is not None
    assert len(first) > 2
    made = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert len(made) == len(first)  # no lock and no draft is left
    relabelled = [replaced(one, category="b") for one in pictures]
    again = open_shards(relabelled, sizes, CONFIG, part_pixels=10_000)
    assert again is not None
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == made
    assert [again.read(place) for place in range(9)] == [first.read(place) for place in range(9)]
    larger = open_shards(pictures, sizes, replace(CONFIG, size=64), part_pixels=10_000)
    assert larger is not None
    assert larger.size_bytes > first.size_bytes


def test_an_interrupted_build_goes_on_and_damaged_files_are_made_anew(
    pictures: list[LabelledPicture], cache: Path
) -> None:
    sizes = np.array([(one.width, one.height) for one in pictures], float)
    whole = open_shards(pictures, sizes, CONFIG, part_pixels=10_000)
    assert whole is not None
    before = {path.name: path.read_bytes() for path in cache.iterdir()}
    gone, cut, kept = sorted(cache.iterdir())[:3]
    written = kept.stat().st_mtime_ns
    gone.unlink()
    cut.write_bytes(before[cut.name][:-5])
    again = open_shards(pictures, sizes, CONFIG, part_pixels=10_000)
    assert again is not None
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == before
    assert kept.stat().st_mtime_ns == written


def test_a_damaged_picture_is_read_from_its_own_file(
    pictures: list[LabelledPicture], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = picture_set(pictures, CONFIG, ("a", "b"))
    kept.keep(CONFIG, CPU)
    good = batch_of(kept).pixels.float()
    (file,) = cache.iterdir()
    data = bytearray(file.read_bytes())
    data[40] ^= 255
    file.write_bytes(data)
    assert float((batch_of(kept).pixels.float() - good).abs().mean()) < 5
    assert "got a damaged picture" in caplog.text
    assert not file.exists()
    kept.keep(CONFIG, CPU)
    assert bool((batch_of(kept).pixels.float() == good).all())


def test_without_room_shards_are_refused_or_done_without(
    pictures: list[LabelledPicture],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    cache: Path,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1000, 990, 10))
    sizes = np.array([(one.width, one.height) for one in pictures], float)
    with pytest.raises(
        ShardRoomError, match=r"must have .* free for shards of 9 pictures, got 10 B; make room"
    ):
        open_shards(pictures, sizes, CONFIG)
    assert open_shards(pictures, sizes, replace(CONFIG, shards="auto")) is None
    assert "reads pictures from their own files" in caplog.text
    assert not list(cache.iterdir())


def test_a_file_that_is_no_picture_is_named(pictures: list[LabelledPicture], cache: Path) -> None:
    pictures[2].path.write_text("no picture")
    with pytest.raises(WeftError, match=r"2\.jpg must be a picture that can be decoded.*take it out"):
        picture_set(pictures, CONFIG, ("a", "b")).keep(CONFIG, CPU)
    assert not list(cache.glob("*.shard"))
    assert not list(cache.glob(".draft-*"))


def test_shards_are_for_sets_that_do_not_fit_and_are_larger_than_needed() -> None:
    large, small = np.full((10, 2), 4000.0), np.full((10, 2), 40.0)
    auto = replace(CONFIG, shards="auto")
    assert wants_shards(auto, large, fits=False)
    assert not wants_shards(auto, large, fits=True)
    assert not wants_shards(auto, small, fits=False)
    assert not wants_shards(replace(auto, schedule=ScheduleConfig(epochs=1)), large, fits=False)
    assert wants_shards(CONFIG, small, fits=True)
    assert not wants_shards(replace(CONFIG, shards="never"), large, fits=False)


def test_another_word_is_refused(tmp_path: Path) -> None:
    from weft.vision.config import read_config

    file = tmp_path / "wrong.yaml"
    file.write_text("shards: sometimes\n")
    with pytest.raises(UsageError, match=r"got: Invalid enum value .sometimes. - at `\$.shards`"):
        read_config(file)


def test_a_training_reads_shards_and_says_so(pictures: list[LabelledPicture], tmp_path: Path) -> None:
    version = DatasetVersion(
        name="made",
        number=1,
        digest="d",
        pictures=tuple(replaced(one, id=f"{one.id}-{part}") for one in pictures for part in range(2)),
        categories=("a", "b"),
    )
    config = replace(CONFIG, model="small", schedule=ScheduleConfig(epochs=1))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a tiny net's threads would only wait for one another
    trained = train(config, version, tmp_path / "model", export=False)
    torch.set_num_threads(threads)
    assert trained.results["shards"]["files"] == 1
    assert trained.results["shards"]["bytes"] > 1000
    assert trained.config.shards == "always"
