"""Folders without a format of their own: which names are splits, classes and masks; tables, and LabelMe's files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from testing.vision.made_pictures import encoded, picture_file

from weft.vision.formats import read, write
from weft.vision.formats.digest import digest_of
from weft.vision.formats.plain.layout import Folders, mask_folders, places_of
from weft.vision.records import DatasetVersion


def told(*paths: str) -> dict[str, tuple[str | None, str | None]]:
    """Return the split and the category of folders, written with slashes."""
    found = places_of(tuple(path.split("/")) for path in paths)
    return {"/".join(folders): (place.split, place.category) for folders, place in found.items()}


def test_splits_are_above_or_below_the_classes() -> None:
    assert told("train/rose", "Valid/rose") == {
        "train/rose": ("train", "rose"),
        "Valid/rose": ("validation", "rose"),
    }
    assert told("rose/train", "rose/test", "tulip/train") == {
        "rose/train": ("train", "rose"),
        "rose/test": ("test", "rose"),
        "tulip/train": ("train", "tulip"),
    }
    assert told("set/images/train/rose") == {"set/images/train/rose": ("train", "rose")}
    assert told("train", "test") == {"train": ("train", None), "test": ("test", None)}


def test_a_train_beside_cars_is_a_class() -> None:
    assert told("car", "bus", "train") == {
        "car": (None, "car"),
        "bus": (None, "bus"),
        "train": (None, "train"),
    }
    assert told("test/car", "test/train", "train/car") == {
        "test/car": ("test", "car"),
        "test/train": ("test", "train"),
        "train/car": ("train", "car"),
    }


@given(st.lists(st.lists(st.sampled_from(["train", "test", "a", "images", "masks"]), max_size=4), max_size=6))
def test_every_folder_has_a_place(found: list[list[str]]) -> None:
    folders: list[Folders] = [tuple(one) for one in found]
    places = places_of(folders)
    assert set(places) == set(folders)
    for one, place in places.items():
        assert len(place.folders) + (place.split is not None) <= max(1, len(one))
        assert place.category is None or place.category in one


def test_masks_are_named_so_or_lie_beside_images() -> None:
    assert mask_folders([("test", "hole"), ("ground_truth", "hole")]) == {("ground_truth",)}
    assert mask_folders([("images",), ("masks",)]) == {("masks",)}
    assert mask_folders([("mask",), ("no mask",)]) == set()


def masked(folder: Path, name: str, width: int = 32, height: int = 24) -> None:
    """Write a mask whose left half is white."""
    pixels = np.zeros((height, width), np.uint8)
    pixels[:, : width // 2] = 255
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    done, data = cv2.imencode(".png", pixels)
    assert done
    path.write_bytes(data.tobytes())


def shapes(version: DatasetVersion) -> dict[str, list[tuple[str, tuple[float, ...], bool]]]:
    return {
        f"{one.split}/{one.name}": [(shape.label, shape.box, shape.mask is not None) for shape in one.shapes]
        for one in version.pictures
    }


def test_masks_of_anomalies_are_labels_of_their_pictures(tmp_path: Path) -> None:
    for seed, name in enumerate(("train/good/0.png", "test/good/0.png", "test/hole/0.png", "test/cut/0.png")):
        picture_file(tmp_path, name, seed=seed)
    masked(tmp_path, "ground_truth/hole/0_mask.png")
    masked(tmp_path, "ground_truth/scratch/7_mask.png")
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert version.categories == ("cut", "good", "hole")
    assert [(one.split, one.category, len(one.shapes)) for one in version.pictures] == [
        ("test", "cut", 0),
        ("test", "good", 0),
        ("test", "hole", 1),
        ("train", "good", 0),
    ]
    assert version.labels == ("hole",)
    assert problems == [
        "masks must be named as the pictures they are of, got 1 of none, as 7_mask.png; they were left out"
    ]


def test_images_and_masks_are_one_set(tmp_path: Path) -> None:
    picture_file(tmp_path, "images/a.jpg", width=64, height=48)
    picture_file(tmp_path, "images/b.jpg", seed=1)
    picture_file(tmp_path, "masks/b.png", seed=2)  # of many colours
    masked(tmp_path, "masks/a.png")
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert [one for found in shapes(version).values() for one in found] == [("object", (0, 0, 32, 48), True)]
    assert version.categories == ()
    assert len(problems) == 2
    assert "b.png must be black and one colour" in problems[0]
    assert "they were scaled to it" in problems[1]


def test_a_name_of_several_folders_is_told(tmp_path: Path) -> None:
    for seed, name in enumerate(("dog/small/1.jpg", "cat/small/1.jpg", "cat/big/1.jpg")):
        picture_file(tmp_path, name, seed=seed)
    problems: list[str] = []
    assert read(tmp_path, problems).categories == ("big", "small")
    assert problems[0].startswith("small is the name of several folders (cat/small, dog/small)")


@pytest.mark.parametrize("category", ["train", "ground_truth", "masks", "images", "data"])
def test_an_export_says_itself_what_its_folders_are(tmp_path: Path, category: str) -> None:
    for seed, name in enumerate((f"train/{category}/1.jpg", "train/images/2.jpg", "train/3.jpg")):
        picture_file(tmp_path, name, seed=seed)
    version = read(tmp_path)
    named = [replace(one, category=category) for one in version.pictures]
    version = replace(version, pictures=tuple(named), categories=(category,), labels=())
    problems: list[str] = []
    again = read(write(version, tmp_path / "out", "folders"), problems)
    assert problems == []
    assert again.digest == digest_of(version)


def test_what_file_managers_leave_is_no_data(tmp_path: Path) -> None:
    picture_file(tmp_path, "my set/train/a/1.jpg")
    picture_file(tmp_path, "my set/test/a/2.jpg", seed=1)
    for name in ("Thumbs.db", "desktop.ini", ".DS_Store"):
        (tmp_path / name).write_bytes(b"x")
    assert sorted(one.split for one in read(tmp_path).pictures) == ["test", "train"]


def test_a_table_of_classes(tmp_path: Path) -> None:
    for seed, name in enumerate("abc"):
        picture_file(tmp_path, f"train/{name}.jpg", seed=seed)
    (tmp_path / "train.csv").write_text("id;label\na;dog\nb;cat\nz;cat\n")
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert version.categories == ("cat", "dog")
    assert [(one.name, one.split, one.category) for one in version.pictures] == [
        ("a.jpg", "train", "dog"),
        ("b.jpg", "train", "cat"),
        ("c.jpg", "train", None),
    ]
    assert problems == ["train.csv:4: the picture 'z' is not there"]


def test_a_table_with_a_column_for_each_class(tmp_path: Path) -> None:
    for seed, name in enumerate("ab"):
        picture_file(tmp_path, f"{name}.jpg", seed=seed)
    (tmp_path / "_classes.csv").write_text("filename, cat, dog\na.jpg, 0, 1\nb.jpg, 1, 1\n")
    problems: list[str] = []
    assert [one.category for one in read(tmp_path, problems).pictures] == ["dog", None]
    assert "must have one category, got cat, dog" in problems[0]


@pytest.mark.parametrize("numbers", ["8,6,24,18", "0.25,0.25,0.75,0.75"])
def test_a_table_of_boxes(tmp_path: Path, numbers: str) -> None:
    picture_file(tmp_path, "train/a.jpg")
    picture_file(tmp_path, "valid/a.jpg", seed=1)
    for split in ("train", "valid"):
        (tmp_path / split / "_annotations.csv").write_text(
            f"filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,32,24,dog,{numbers}\na.jpg,32,24,dog,?,1,2,3\n"
        )
    problems: list[str] = []
    assert shapes(read(tmp_path, problems)) == {
        "train/a.jpg": [("dog", (8, 6, 24, 18), False)],
        "validation/a.jpg": [("dog", (8, 6, 24, 18), False)],
    }
    assert len(problems) == 2


@pytest.mark.parametrize(
    "text", ["", "name", "time,price\n1,2\n", "filename,class\nz.jpg,dog\n", "a,b\n\xff"]
)
def test_another_table_is_told_and_classes_stay(tmp_path: Path, text: str) -> None:
    picture_file(tmp_path, "rose/a.jpg")
    picture_file(tmp_path, "lily/b.jpg", seed=1)
    (tmp_path / "other.csv").write_bytes(text.encode("latin-1"))
    problems: list[str] = []
    assert read(tmp_path, problems).categories == ("lily", "rose")
    assert len(problems) == 1
    assert problems[0].startswith("other.csv must name pictures that are there and a class of each")


def test_shapes_of_labelme(tmp_path: Path) -> None:
    picture_file(tmp_path, "a.jpg")
    picture_file(tmp_path, "b.jpg", seed=1)
    document = {
        "imagePath": "..\\a.jpg",
        "imageWidth": 32,
        "imageHeight": 24,
        "shapes": [
            {"label": "cat", "shape_type": "polygon", "points": [[2, 2], [10, 2], [6, 9]]},
            {"label": "dog", "shape_type": "rectangle", "points": [[20, 12], [4, 3]]},
            {"label": "dog", "shape_type": "circle", "points": [[16, 12], [20, 12]]},
            {"label": "dog", "shape_type": "point", "points": [[16, 12]]},
            {"label": "dog", "points": "none"},
        ],
    }
    (tmp_path / "a.json").write_text(json.dumps(document))
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert shapes(version)["train/a.jpg"] == [
        ("cat", (2, 2, 10, 9), False),
        ("dog", (4, 3, 20, 12), False),
        ("dog", pytest.approx((12, 8, 20, 16)), False),
    ]
    assert len(problems) == 2
    assert len(version.pictures) == 2


def test_classes_of_labelimg_lie_beside_its_labels(tmp_path: Path) -> None:
    picture_file(tmp_path, "images/a.jpg")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels/a.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    problems: list[str] = []
    assert read(tmp_path, problems).labels == ("0", "1")
    assert "called by their numbers (0 to 1)" in problems[0]
    (tmp_path / "labels/classes.txt").write_text("cat\ndog\n")
    version = read(tmp_path)
    assert version.labels == ("cat", "dog")
    assert [one.label for one in version.pictures[0].shapes] == ["dog"]


def test_a_list_of_classes_without_labels_is_no_yolo(tmp_path: Path) -> None:
    picture_file(tmp_path, "images/001.wren/a.jpg")
    picture_file(tmp_path, "images/002.owl/a.jpg", seed=1)
    (tmp_path / "classes.txt").write_text("1 001.wren\n2 002.owl\n")
    assert read(tmp_path).categories == ("001.wren", "002.owl")


def test_crowds_and_lost_annotations_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(encoded())
    document = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 32, "height": 24}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "iscrowd": 1, "bbox": [0, 0, 9, 9]},
            {"id": 2, "image_id": 7, "category_id": 1, "bbox": [0, 0, 9, 9]},
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / "labels.json").write_text(json.dumps(document))
    problems: list[str] = []
    assert len(read(tmp_path, problems).pictures[0].shapes) == 1
    assert problems == [
        "labels.json: 1 annotation of images that the file does not list: left out",
        "labels.json: 1 region of crowds (iscrowd) became objects as all others; look at them",
    ]
