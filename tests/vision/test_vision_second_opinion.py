"""A second opinion on formats: another program reads what we write, and we read what it writes (`supervision`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import supervision
from testing.vision.made_pictures import encoded, version_of

from weft.vision.formats import read, write
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape

LABELS = ("cat", "dog")
# Pascal VOC's pixels begin with 1 in that program, and with 0 in today's labelling programs and here.
WITHIN_PX = {"coco": 0.01, "yolo": 0.01, "voc": 1.01}
Found = dict[str, list[tuple[str, tuple[float, ...]]]]  # by the picture's stem: labels and boxes


@pytest.fixture
def version(tmp_path: Path) -> DatasetVersion:
    """Three pictures of 32 x 24 in one split, with boxes at whole pixels and a polygon."""
    made = []
    boxes = {0: [("cat", (2, 3, 12, 20)), ("dog", (0, 0, 32, 24))], 1: [("dog", (5, 6, 7, 9))], 2: []}
    for number, drawn in boxes.items():
        path = tmp_path / f"{number}.jpg"
        path.write_bytes(encoded(".jpg", seed=number))
        made.append(
            LabelledPicture(
                id=f"id-{number}",
                name=f"{number}.jpg",
                path=path,
                width=32,
                height=24,
                shapes=tuple(LabelledShape(label=label, box=box) for label, box in drawn),
            )
        )
    return version_of(*made, labels=LABELS, categories=())


def ours(version: DatasetVersion) -> Found:
    return {
        Path(picture.name).stem: sorted((shape.label, shape.box) for shape in picture.shapes)
        for picture in version.pictures
    }


def theirs(data: Any) -> Found:
    found: Found = {}
    for path, _, marks in data:
        rows = zip(marks.class_id, marks.xyxy, strict=True) if len(marks) else ()
        found[Path(path).stem] = sorted(
            (data.classes[number], tuple(map(float, box))) for number, box in rows
        )
    return found


def same(one: Found, other: Found, within_px: float) -> None:
    """Compare labels and boxes of pictures that have some; some formats do not list the others."""
    assert {name for name in one if one[name]} == {name for name in other if other[name]}
    for name in one:
        pairs = zip(one[name], other.get(name, []), strict=True)
        for (label, box), (label_too, box_too) in pairs:
            assert label == label_too
            assert np.abs(np.subtract(box, box_too)).max() <= within_px


def opened(format: str, folder: Path) -> Any:
    """Return what the other program reads in a folder of a format."""
    kinds = supervision.DetectionDataset
    if format == "coco":
        file = next(folder.rglob("*.json"))
        return kinds.from_coco(str(next(folder.rglob("0.jpg")).parent), str(file))
    if format == "voc":
        return kinds.from_pascal_voc(str(folder / "JPEGImages"), str(folder / "Annotations"))
    pictures = next(folder.rglob("0.jpg")).parent
    labels = next(folder.rglob("0.txt")).parent
    return kinds.from_yolo(str(pictures), str(labels), str(folder / "data.yaml"))


def saved(format: str, data: Any, folder: Path) -> None:
    """Let the other program write a data set."""
    if format == "coco":
        data.as_coco(str(folder / "images"), str(folder / "annotations.json"))
    elif format == "voc":
        data.as_pascal_voc(str(folder / "JPEGImages"), str(folder / "Annotations"))
    else:
        data.as_yolo(str(folder / "images"), str(folder / "labels"), str(folder / "data.yaml"))


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
def test_another_program_reads_what_we_write(format: str, version: DatasetVersion, tmp_path: Path) -> None:
    write(version, tmp_path / "out", format)
    same(ours(version), theirs(opened(format, tmp_path / "out")), WITHIN_PX[format])


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
def test_we_read_what_another_program_writes(format: str, version: DatasetVersion, tmp_path: Path) -> None:
    write(version, tmp_path / "first", "coco")
    saved(format, opened("coco", tmp_path / "first"), tmp_path / "second")
    problems: list[str] = []
    same(ours(version), ours(read(tmp_path / "second", problems)), WITHIN_PX[format])
    assert problems == []


def test_another_program_reads_class_folders(tmp_path: Path) -> None:
    made = []
    for number, category in enumerate(["rose", "tulip", "rose"]):
        path = tmp_path / f"{number}.jpg"
        path.write_bytes(encoded(".jpg", seed=number))
        made.append(
            LabelledPicture(id=str(number), name=path.name, path=path, width=32, height=24, category=category)
        )
    write(version_of(*made, labels=(), categories=("rose", "tulip")), tmp_path / "out", "folders")
    below = next((tmp_path / "out").rglob("rose")).parent
    found = supervision.ClassificationDataset.from_folder_structure(str(below))
    assert found.classes == ["rose", "tulip"]
    told = {Path(path).stem: found.classes[int(marks.class_id[0])] for path, _, marks in found}
    assert told == {"0": "rose", "1": "tulip", "2": "rose"}
