"""Configurations of trainings: read, checked, filled in; names of models; the least data; schedules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from weft.errors import UsageError
from weft.vision.config import ScheduleConfig, VisionConfig, describe, model_named, read_config, resolve
from weft.vision.config.names import IBM_NAMES, MODELS
from weft.vision.config.reading import task_of
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape
from weft.vision.training.minimum import check_minimum
from weft.vision.training.schedule import input_size, rate_factor


def version_of(counts: dict[str, int], *, boxes: bool = False) -> DatasetVersion:
    """Return a data set with so many pictures of each class."""
    pictures = tuple(
        LabelledPicture(
            id=f"{name}{number}",
            name=f"{name}{number}.png",
            path=Path(f"{name}{number}.png"),
            width=40,
            height=30,
            category=None if boxes else name,
            shapes=(LabelledShape(label=name, box=(1, 1, 9, 9)),) if boxes else (),
        )
        for name, count in counts.items()
        for number in range(count)
    )
    names = tuple(counts)
    return DatasetVersion(
        name="made",
        number=1,
        digest="d",
        pictures=pictures,
        categories=() if boxes else names,
        labels=names if boxes else (),
    )


def test_a_file_is_read_and_filled_in(tmp_path: Path) -> None:
    (tmp_path / "flowers").mkdir()
    file = tmp_path / "flowers.yaml"
    file.write_text(
        "data: flowers\nmodel: resnet-18\naugment: {mixup: 0.2}\nschedule: {epochs: 3, warmup: 0.1}\n"
    )
    config = read_config(file)
    assert config.data == str(tmp_path / "flowers")
    whole = resolve(config, version_of({"rose": 9, "tulip": 9}))
    assert (whole.task, whole.size, whole.network.name) == ("classification", 224, "resnet-18")
    assert whole.schedule.epochs == 3
    assert whole.augment.mixup == 0.2
    left_open = {"data", "name", "weights", "max_minutes", "threads", "compile"}
    assert not [name for name, value in describe(whole).items() if value is None and name not in left_open]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modle: resnet-18", "did you mean model"),
        ("size: 4", "size must be 16 to 4096"),
        ("batch: 0", "batch must be at least 1"),
        ("augment: {rotate: 400}", "augment.rotate"),
        ("optimizer: {lr: fast}", "optimizer.lr must be"),
        ("train_on: []", "train_on must name"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text + "\n")
    with pytest.raises(UsageError, match=said):
        read_config(file)


def test_names_of_ibm_stand_for_ours_and_say_so() -> None:
    for name, ours in IBM_NAMES.items():
        model, sentence = model_named(name)
        assert model is MODELS[ours]
        assert sentence is not None
        assert ours in sentence
    assert model_named("ResNet_18") == (MODELS["resnet-18"], None)
    with pytest.raises(UsageError, match="did you mean resnet-50"):
        model_named("resnet-5O")


def test_the_task_is_what_the_labels_or_the_name_say() -> None:
    boxes, classes = version_of({"cell": 6}, boxes=True), version_of({"a": 5, "b": 5})
    assert task_of(VisionConfig(), boxes) == "detection"
    assert task_of(VisionConfig(), classes) == "classification"
    assert task_of(VisionConfig(model="frcnn_mrcnn"), boxes) == "segmentation"
    assert task_of(VisionConfig(model="tiny_yolo_v3"), boxes) == "detection"
    assert task_of(VisionConfig(model="anomaly"), classes) == "anomaly"
    with pytest.raises(UsageError, match="model must be one for detection"):
        resolve(VisionConfig(task="detection", model="resnet-18"), boxes)


@pytest.mark.parametrize(
    ("counts", "boxes", "said"),
    [
        ({"a": 9}, False, "at least 2 categories"),
        ({"a": 9, "b": 4}, False, "b has 4"),
        ({"a": 4}, True, "a has 4"),
        ({}, True, "draw boxes"),
    ],
)
def test_too_little_data_is_refused_in_a_sentence(counts: dict[str, int], boxes: bool, said: str) -> None:
    config = VisionConfig(task="detection" if boxes else "classification")
    with pytest.raises(UsageError, match=said):
        check_minimum(config, version_of(counts, boxes=boxes))


def test_enough_data_is_not_refused() -> None:
    check_minimum(VisionConfig(task="classification"), version_of({"a": 5, "b": 5}))
    check_minimum(VisionConfig(task="detection"), version_of({"a": 5}, boxes=True))


def test_pictures_of_all_splits_count_and_some_are_to_learn_from() -> None:
    made = version_of({"a": 5, "b": 5})
    parted = replace(
        made,
        pictures=tuple(
            replace(one, split="test" if one.id in ("b0", "b1") else "train") for one in made.pictures
        ),
    )
    check_minimum(VisionConfig(task="classification"), parted)
    unseen = replace(
        made,
        pictures=tuple(
            replace(one, split="test" if one.category == "b" else "train") for one in made.pictures
        ),
    )
    with pytest.raises(UsageError, match=r"learn from \(train\), got none of b"):
        check_minimum(VisionConfig(task="classification"), unseen)


def test_the_rate_rises_then_falls() -> None:
    schedule = ScheduleConfig(warmup=0.2, start=0.1, final=0.05)
    assert rate_factor(schedule, 0.0) == pytest.approx(0.1)
    assert rate_factor(schedule, 0.2) == pytest.approx(1.0)
    assert rate_factor(schedule, 1.0) == pytest.approx(0.05)
    values = [rate_factor(schedule, 0.2 + step * 0.08) for step in range(11)]
    assert values == sorted(values, reverse=True)


def test_sizes_grow_in_whole_multiples() -> None:
    schedule = ScheduleConfig(sizes=(0.5, 0.75, 1.0))
    found = [input_size(schedule, (224, 320), progress) for progress in (0.0, 0.5, 0.99)]
    assert found == [(128, 160), (160, 256), (224, 320)] or all(
        side % 32 == 0 for one in found for side in one
    )
    assert found[-1] == (224, 320)
