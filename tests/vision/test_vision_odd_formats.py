"""Odd files of other programs: variants that they write, what is wrong in them, and names of what is not theirs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testing.vision.made_pictures import encoded, picture_file, version_of

from weft.errors import PictureError
from weft.vision.formats import read, write
from weft.vision.library import Library
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape, RunLengths

YAML = "train: images\nval: images\nnames: [cat, dog]\n"


def data_set(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files; those that end in .jpg are pictures of 32 x 24."""
    for place, content in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def found(version: DatasetVersion) -> list[tuple[str, tuple[float, ...], int, float | None]]:
    """Return label, rounded box, number of polygons and confidence of every shape."""
    return [
        (one.label, tuple(round(side) for side in one.box), len(one.polygons), one.confidence)
        for picture in version.pictures
        for one in picture.shapes
    ]


@pytest.mark.parametrize(
    ("line", "yaml", "shape"),
    [
        ("1.0 0.5 0.5 0.5 0.5", YAML, ("dog", (8, 6, 24, 18), 0, None)),
        ("0 0.25 0.25 0.75 0.25 0.5 0.75 0.9", YAML, ("cat", (8, 6, 24, 18), 1, 0.9)),
        ("0 0.25 0.25 0.75 0.25 0.75 0.75 0.25 0.75", YAML, ("cat", (8, 6, 24, 18), 1, None)),
        ("0 0.25 0.25 0.75 0.25 0.75 0.75 0.25 0.75 0.5", YAML, ("cat", (8, 6, 24, 18), 1, 0.5)),
        (
            "1 0.5 0.5 0.5 0.5 0.1 0.1 2 0.9 0.9 0",
            YAML + "kpt_shape: [2, 3]\n",
            ("dog", (8, 6, 24, 18), 0, None),
        ),
        ("2 0.5 0.5 0.5 0.5", "train: images\nnames: {0: cat, 2: ox}\n", ("ox", (8, 6, 24, 18), 0, None)),
    ],
    ids=[
        "number as a fraction",
        "polygon, confidence",
        "turned box",
        "turned, confidence",
        "pose",
        "gap in names",
    ],
)
def test_lines_of_yolo(
    tmp_path: Path, line: str, yaml: str, shape: tuple[str, tuple[float, ...], int, float | None]
) -> None:
    data_set(tmp_path, {"data.yaml": yaml, "images/a.jpg": encoded(), "labels/a.txt": line + "\r\n"})
    assert found(read(tmp_path, [])) == [shape]


@pytest.mark.parametrize(
    "files",
    [
        {
            "obj.names": "cat\n",
            "obj.data": "classes=1",
            "train.txt": "data/obj_train_data/a.jpg",
            "obj_train_data/a": "",
        },
        {"train/images/a": "", "train/labels": ""},
        {"set/data.yaml": YAML, "set/images/a": "", "README.md": "# set", "LICENSE": "MIT"},
        {"classes.txt": "cat\ndog\n", "a": ""},
    ],
    ids=["darknet and CVAT", "without a description", "papers beside the folder", "LabelImg"],
)
def test_homes_of_yolo(tmp_path: Path, files: dict[str, str]) -> None:
    """A picture `a` with the line of a box is found wherever these programs put the two."""
    line = "0 0.5 0.5 0.5 0.5\n"
    for place, content in files.items():
        if place.endswith("images/a"):
            data_set(tmp_path, {f"{place}.jpg": encoded(), f"{place.replace('images', 'labels')}.txt": line})
        elif place.endswith("a"):
            data_set(tmp_path, {f"{place}.jpg": encoded(), f"{place}.txt": line})
        elif "." in place or place == "LICENSE":
            data_set(tmp_path, {place: content})
    version = read(tmp_path, [])
    assert [shape[1:] for shape in found(version)] == [((8, 6, 24, 18), 0, None)]
    assert version.categories == ()


def outside(tmp_path: Path) -> list[dict[str, str]]:
    """Return descriptions that name a picture outside of their data set."""
    secret = tmp_path / "secret"
    picture_file(secret, "images/secret.jpg")
    up = "../" * 20
    return [
        {"data.yaml": f"path: {secret}\ntrain: images\nnames: [a]\n"},
        {"data.yaml": f"path: /\ntrain: {str(secret)[1:]}/images\nnames: [a]\n"},
        {"data.yaml": f"train: {up}{str(secret)[1:]}/images\nnames: [a]\n"},
        {"data.yaml": "path: /\ntrain: list.txt\nnames: [a]\n", "list.txt": f"{secret}/images/secret.jpg\n"},
        {"data.yaml": f"train: {'x' * 5000}\nnames: [a]\n"},
        {"data.yaml": 'train: "a\\0b"\nnames: [a]\n'},
        {"obj.names": "a\n", "train.txt": f"{secret}/images/secret.jpg\n{'y' * 5000}.jpg\n\0.jpg\n"},
        {
            "coco.json": json.dumps(
                {"images": [{"file_name": f"{secret}/images/secret.jpg"}, {"file_name": "\0"}]}
            )
        },
    ]


@pytest.mark.parametrize("number", range(8))
def test_a_zip_names_no_picture_outside_of_it(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = tmp_path / "set.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for place, content in outside(tmp_path)[number].items():
            opened.writestr(place, content)
        opened.writestr("images/mine.jpg", encoded(seed=1))
    with Library(tmp_path / "library") as library:
        library.create("set")
        with contextlib.suppress(PictureError):  # where nothing of its own was named
            library.import_from("set", archive)
        assert {one.name for one in library.files("set").files} <= {"mine.jpg"}
    with contextlib.suppress(PictureError):
        assert {one.name for one in read(archive, []).pictures} <= {"mine.jpg"}


def test_a_description_of_ones_own_may_name_another_folder(tmp_path: Path) -> None:
    picture_file(tmp_path / "store", "images/one.jpg")
    data_set(tmp_path / "here", {"data.yaml": f"path: {tmp_path / 'store'}\ntrain: images\nnames: [cat]\n"})
    assert [one.name for one in read(tmp_path / "here", []).pictures] == ["one.jpg"]


def test_files_of_coco_about_the_same_pictures_are_one_data_set(tmp_path: Path) -> None:
    """COCO 2017 comes with instances, keypoints and captions of each split."""
    picture_file(tmp_path, "val2017/1.jpg")
    images = [{"id": 1, "file_name": "1.jpg", "width": 32, "height": 24}]
    box = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}
    person = [{"id": 1, "name": "person"}]
    for name, document in {
        "instances": {"images": images, "annotations": [box], "categories": person},
        "person_keypoints": {
            "images": images,
            "annotations": [{**box, "keypoints": [1, 1, 2]}],
            "categories": person,
        },
        "captions": {"images": images, "annotations": [{"image_id": 1, "caption": "somebody"}]},
    }.items():
        data_set(tmp_path, {f"annotations/{name}_val2017.json": json.dumps(document)})
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert [one.split for one in version.pictures] == ["validation"]
    assert found(version) == [("person", (1, 2, 4, 6), 0, None)]
    assert len(problems) == 1
    assert "captions" in problems[0]


@pytest.mark.parametrize(
    "document",
    [
        {"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": [1], "name": "x"}]},
        {"images": [{"id": [1], "file_name": "a.jpg"}]},
        {"images": ["a.jpg", 7, {"file_name": 7}]},
        {"images": [{"id": 1, "file_name": "a.jpg"}], "categories": "no"},
        {"images": {"a": 1}},
    ],
)
def test_coco_of_wrong_types_is_refused_with_a_sentence(tmp_path: Path, document: object) -> None:
    data_set(tmp_path, {"a.json": json.dumps(document), "a.jpg": encoded()})
    with pytest.raises(PictureError, match="must"):
        read(tmp_path, [])


@pytest.mark.parametrize(
    "properties",
    [
        {"category_prop_info": 5, "weft": {"labels": 5}},
        {"file_prop_info": '[{"_id": "a", "user_metadata": [1]}]'},
        {},
    ],
)
def test_properties_of_wrong_types_are_passed_over(tmp_path: Path, properties: object) -> None:
    data_set(tmp_path, {"prop.json": json.dumps(properties), "a.jpg": encoded()})
    assert found(read(tmp_path, [])) == []


BOX = "<bndbox><xmin>8</xmin><ymin>6</ymin><xmax>24</xmax><ymax>18</ymax></bndbox>"


@pytest.mark.parametrize("coding", ["utf-8", "latin-1", "utf-16"])
def test_labels_in_the_coding_that_they_declare(tmp_path: Path, coding: str) -> None:
    first = f'<?xml version="1.0" encoding="{coding}"?>\n'
    text = f"{first}<annotation><object><name>café</name>{BOX}</object></annotation>"
    data_set(tmp_path, {"a.jpg": encoded(), "a.xml": text.encode(coding)})
    assert found(read(tmp_path, [])) == [("café", (8, 6, 24, 18), 0, None)]
    grows = text.replace("<annotation>", '<!DOCTYPE x [<!ENTITY a "b">]><annotation>')
    data_set(tmp_path, {"a.xml": grows.encode(coding)})
    problems: list[str] = []
    assert found(read(tmp_path, problems)) == []
    assert "document type" in problems[0]


def test_objects_of_voc_with_more_and_with_less(tmp_path: Path) -> None:
    turned = "<robndbox><cx>16</cx><cy>12</cy><w>12</w><h>16</h><angle>1.5707963</angle></robndbox>"
    part = f"<part><name>head</name>{BOX}</part>"
    objects = (
        f"<object><name>cat</name><difficult>1</difficult><truncated>1</truncated>{BOX}{part}</object>",
        f"<object><name>dog</name>{turned}</object>",
        f"<object>{BOX}</object>",
    )
    data_set(tmp_path, {"a.jpg": encoded(), "a.xml": f"<annotation>{''.join(objects)}</annotation>"})
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert found(version) == [("cat", (8, 6, 24, 18), 0, None), ("dog", (8, 6, 24, 18), 1, None)]
    assert version.labels == ("cat", "dog")
    assert problems == ["a.xml: an object must have a name, got none; the object was left out"]


def changed(document: Any, draw: st.DrawFn) -> Any:
    """Return a document with one value somewhere in it that is of another type."""
    inside = list(document) if isinstance(document, dict) else list(range(len(document)))
    place = draw(st.sampled_from(inside))
    value = document[place]
    if isinstance(value, (dict, list)) and value and draw(st.booleans()):
        value = changed(value, draw)
    else:
        value = draw(
            st.sampled_from([None, [], {}, "", -1, 1e308, math.nan, [[]], True, {"a": 1}, "\0", [1, 2]])
        )
    copy = document.copy()
    copy[place] = value
    return copy


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a data set in every format that has JSON, and that file."""
    folder = tmp_path_factory.mktemp("written")
    path = picture_file(folder, "a.jpg")
    shapes = (
        LabelledShape(label="c", box=(1, 1, 9, 9), confidence=0.5, track="t"),
        LabelledShape(label="d", box=(1, 1, 9, 9), polygons=(((1, 1), (9, 1), (9, 9)),)),
        LabelledShape(label="m", box=(0, 0, 1, 24), mask=RunLengths(32, 24, (0, 24, 744))),
    )
    picture = LabelledPicture(
        id="1", name="a.jpg", path=path, width=32, height=24, shapes=shapes, category="k", metadata={"x": "y"}
    )
    version = version_of(picture, labels=("c", "d", "m"), categories=("k",))
    files = {
        "coco": "annotations/instances_train.json", "yolo": "weft.json", "folders": "weft.json", "ibm": "prop.json"
    }  # fmt: skip
    return {format: write(version, folder / format, format) / name for format, name in files.items()}


@pytest.mark.parametrize("format", ["coco", "yolo", "folders", "ibm"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_values_of_wrong_types_are_refused_or_passed_over(
    format: str, data: st.DataObject, written: dict[str, Path]
) -> None:
    path = written[format]
    whole = path.read_text()
    home = path.parent.parent if format == "coco" else path.parent
    try:
        path.write_text(json.dumps(data.draw(st.composite(lambda draw: changed(json.loads(whole), draw))())))
        with contextlib.suppress(PictureError):
            read(home, [])
    finally:
        path.write_text(whole)


def test_labels_of_a_picture_that_was_made_smaller_shrink_with_it(tmp_path: Path) -> None:
    picture_file(tmp_path, "a.jpg", width=32, height=24)
    document = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 640, "height": 480}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [100, 100, 300, 200]},
            {
                "id": 2,
                "image_id": 1,
                "category_id": 1,
                "segmentation": {"size": [480, 640], "counts": [0, 480 * 320, 480 * 320]},
            },
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (tmp_path / "labels.json").write_text(json.dumps(document))
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert found(version) == [("cat", (5, 5, 20, 15), 0, None), ("cat", (0, 0, 16, 24), 0, None)]
    assert len(problems) == 1
    assert "they were scaled to it" in problems[0]


@pytest.mark.parametrize("size", [(24, 32), (200_000, 150_000), (640, 100)])
def test_labels_of_quite_another_picture_are_told(tmp_path: Path, size: tuple[int, int]) -> None:
    picture_file(tmp_path, "a.jpg", width=32, height=24)
    (tmp_path / "a.xml").write_text(
        f"<annotation><size><width>{size[0]}</width><height>{size[1]}</height></size><object><name>cat</name><bndbox>"
        "<xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>"
    )
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert found(version) == [("cat", (2, 2, 9, 9), 0, None)]
    assert len(problems) == 1
    assert "taken as they are" in problems[0]


def test_two_numbers_of_one_name_are_one_label(tmp_path: Path) -> None:
    picture_file(tmp_path / "yolo/images", "a.jpg")
    data_set(
        tmp_path / "yolo",
        {"labels/a.txt": "0 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.2 0.2\n", "data.yaml": YAML.replace("dog", "cat")},
    )
    picture_file(tmp_path / "coco", "a.jpg")
    document = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "annotations": [
            {"id": number, "image_id": 1, "category_id": number, "bbox": [1, 1, 9, 9 + number]}
            for number in (1, 2)
        ],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "cat"}],
    }
    (tmp_path / "coco/labels.json").write_text(json.dumps(document))
    for name in ("yolo", "coco"):
        version = read(tmp_path / name)
        assert version.labels == ("cat",)
        assert [one.label for one in version.pictures[0].shapes] == ["cat", "cat"]


def test_pictures_that_cannot_be_read_are_counted_by_kind(tmp_path: Path) -> None:
    picture_file(tmp_path, "cat/a.jpg")
    data_set(tmp_path, {"cat/b.HEIC": b"x", "cat/c.heic": b"x", "cat/d.svg": b"<svg/>"})
    problems: list[str] = []
    assert len(read(tmp_path, problems).pictures) == 1
    assert [problem.split("got ")[1] for problem in problems] == [
        "2 of .heic; convert them",
        "1 of .svg; convert them",
    ]
    (tmp_path / "cat/a.jpg").unlink()
    with Library(tmp_path / "library") as library:
        library.create("cats")
        with pytest.raises(PictureError, match=r"2 of \.heic"):
            library.import_from("cats", tmp_path / "cat")


def test_a_name_that_is_no_utf8_is_made_plain(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    picture_file(folder, "fine.jpg")
    odd = os.fsencode(folder) + b"/k\xe4tz.jpg"
    try:
        Path(os.fsdecode(odd)).write_bytes(encoded(seed=1))
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    with Library(tmp_path / "library") as library:
        library.create("cats")
        assert library.import_from("cats", folder).added == 2
        assert library.import_from("cats", folder).there == 2
        names = [one.name for one in library.files("cats").files]
    assert sorted(names) == ["fine.jpg", "k\ufffdtz.jpg"]


def test_coco_finds_names_told_twice_in_the_folder_of_its_split(tmp_path: Path) -> None:
    """As COCO itself lies: annotations/instances_train2017.json beside train2017/."""
    (tmp_path / "annotations").mkdir()
    for place, name in enumerate(("train2017", "val2017")):
        picture_file(tmp_path / name, "1.jpg", seed=place)
        document = {
            "images": [{"id": 1, "file_name": "1.jpg"}],
            "categories": [{"id": 1, "name": "a"}],
            "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5 + place]}],
        }
        (tmp_path / "annotations" / f"instances_{name}.json").write_text(json.dumps(document))
    found = {one.split: one for one in read(tmp_path).pictures}
    assert {split: one.path.parent.name for split, one in found.items()} == {
        "train": "train2017",
        "validation": "val2017",
    }
    assert found["validation"].shapes[0].box == (1, 1, 6, 7)
