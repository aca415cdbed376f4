"""Formats: writing and reading again loses nothing, and files of other programs are read as they mean it."""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testing.vision.drawn_shapes import shapes
from testing.vision.made_pictures import encoded, picture_file, version_of, with_exif

from weft.errors import PictureError
from weft.vision import open_data
from weft.vision.formats import FORMATS, read, write
from weft.vision.formats.archives import ZipLimits, unpack
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape

NAMES = st.sampled_from(["a.jpg", "b.jpg", "<i>x</i>.jpg", "Ä ö.jpg", "a.b.c.jpg", "..jpg", "sub/a.jpg"])


@st.composite
def pictures(draw: st.DrawFn, number: int, folder: Path) -> LabelledPicture:
    path = folder / f"{number}.jpg"
    drawn = draw(st.none() | st.sampled_from(["rose", "train", "a/b", "..", "<b>", "tulip 1"]))
    return LabelledPicture(
        id=f"id-{number}",
        name=draw(NAMES),
        path=path,
        width=32,
        height=24,
        sha256=_DIGESTS[number],
        split=draw(st.sampled_from(["train", "validation", "test"])),
        category=drawn,
        category_confidence=draw(st.none() | st.floats(0, 1)) if drawn else None,
        shapes=tuple(draw(st.lists(shapes(), max_size=4))),
        metadata=draw(st.dictionaries(st.sampled_from(["camera", "ort"]), st.text(max_size=5), max_size=2)),
        film=draw(st.none() | st.just("film-1")),
        time_s=draw(st.none() | st.floats(0, 100)),
    )


def _digest(seed: int) -> str:
    import hashlib

    return hashlib.sha256(encoded(".jpg", seed=seed)).hexdigest()


_DIGESTS = [_digest(seed) for seed in range(3)]


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=15, deadline=None)
@given(data=st.data(), zipped=st.booleans())
def test_a_round_trip_loses_nothing(format: str, data: st.DataObject, zipped: bool) -> None:
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        folder = Path(home)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        for seed in range(3):
            (folder / f"{seed}.jpg").write_bytes(encoded(".jpg", seed=seed))
        drawn = [data.draw(pictures(number, folder)) for number in range(data.draw(st.integers(1, 3)))]
        used = {shape.label for picture in drawn for shape in picture.shapes} | {"never used"}
        categories = {picture.category for picture in drawn if picture.category} | {"zebra", "ant"}
        version = version_of(*drawn, labels=tuple(sorted(used)), categories=tuple(sorted(categories)))
        problems: list[str] = []
        path = write(version, folder / ("out.zip" if zipped else "out"), format)
        again = read(path, problems)
        assert problems == []
        assert _said(again) == _said(version)
        assert again.digest == version.digest


def _said(version: DatasetVersion) -> object:
    from dataclasses import replace

    pictures = sorted(version.pictures, key=lambda picture: picture.sha256)
    if not all(picture.id.startswith("id-") for picture in pictures):
        raise AssertionError("ids were lost")
    return version.labels, version.categories, [replace(picture, path=Path()) for picture in pictures]


def _boxes(version: DatasetVersion) -> list[tuple[str, tuple[float, ...]]]:
    return [(shape.label, shape.box) for picture in version.pictures for shape in picture.shapes]


def test_voc_as_other_programs_write_it(tmp_path: Path) -> None:
    picture_file(tmp_path, "JPEGImages/one.jpg")
    picture_file(tmp_path, "JPEGImages/two.jpg", seed=1)
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "Annotations/one.xml").write_text(
        "<annotation><filename>other.jpg</filename><size><width>32</width><height>24</height></size>"
        "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>10</xmax><ymax>12</ymax></bndbox></object>"
        "<object><name>dog</name><bndbox><xmin>5</xmin><ymin>5</ymin><xmax>5</xmax><ymax>5</ymax></bndbox></object>"
        "</annotation>"
    )
    (tmp_path / "ImageSets/Main").mkdir(parents=True)
    (tmp_path / "ImageSets/Main/train.txt").write_text("one\n")
    (tmp_path / "ImageSets/Main/test.txt").write_text("two  1\n")
    (tmp_path / "ImageSets/Main/trainval.txt").write_text("one\ntwo\n")
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert _boxes(version) == [("cat", (1, 2, 10, 12))]
    assert [picture.split for picture in version.pictures] == ["train", "test"]
    assert len(problems) == 1
    assert "width and a height" in problems[0]


def test_yolo_as_other_programs_write_it(tmp_path: Path) -> None:
    picture_file(tmp_path, "train/images/one.jpg")
    (tmp_path / "train/labels").mkdir()
    (tmp_path / "train/labels/one.txt").write_text(
        "1 0.5 0.5 0.5 0.5\n0 0.25 0.25 0.75 0.25 0.5 0.75\n9 0 0 1 1\n"
    )
    picture_file(tmp_path, "valid/images/two.jpg", seed=1)
    (tmp_path / "data.yaml").write_text(
        "train: ../train/images\nval: ../valid/images\nnc: 2\nnames: [cat, dog]\n"
    )
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert version.labels == ("cat", "dog")
    assert _boxes(version) == [("dog", (8, 6, 24, 18)), ("cat", (8, 6, 24, 18))]
    assert [picture.split for picture in version.pictures] == ["train", "validation"]
    assert len(problems) == 1
    assert "0 to 1, got 9" in problems[0]


def test_coco_as_other_programs_write_it(tmp_path: Path) -> None:
    picture_file(tmp_path, "valid/one.jpg")
    document = {
        "images": [
            {"id": 7, "file_name": "one.jpg", "width": 32, "height": 24},
            {"id": 8, "file_name": "no.jpg"},
        ],
        "categories": [{"id": 3, "name": "dog"}, {"id": 1, "name": "cat"}],
        "annotations": [
            {"image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": 0},
            {
                "image_id": 7,
                "category_id": 1,
                "segmentation": [[0, 0, 10, 0, 10, 10]],
                "bbox": [0, 0, 10, 10],
            },
            {
                "image_id": 7,
                "category_id": 1,
                "segmentation": {"size": [24, 32], "counts": [24, 24, 720]},
                "iscrowd": 1,
            },
            {"image_id": 7, "category_id": 5, "bbox": [1, 2, 3, 4]},
        ],
    }
    (tmp_path / "valid/_annotations.coco.json").write_text(json.dumps(document))
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert version.labels == ("cat", "dog")
    assert _boxes(version) == [("dog", (1, 2, 4, 6)), ("cat", (0, 0, 10, 10)), ("cat", (1, 0, 2, 24))]
    assert version.pictures[0].split == "validation"
    assert len(problems) == 3


def test_ibm_zip_as_the_product_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    identity = "0f4b0d5e-6f7a-4d9e-9c1b-2a3b4c5d6e7f"
    files = [
        {
            "_id": identity,
            "file_name": f"{identity}.jpg",
            "original_file_name": "rose.jpg",
            "category_id": "c1",
        }
    ]
    properties = {
        "usage": "generic",
        "name": "flowers",
        "category_prop_info": json.dumps([{"_id": "c1", "name": "rose"}]),
        "action_prop_info": "[]",
        "file_prop_info": json.dumps(files),
    }
    labels = (
        "<annotation><object><_id>l1</_id><name>petal</name><generate_type>manual</generate_type>"
        "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox><segment_polygons><polygon>"
        "<point><value>1</value><value>1</value></point><point><value>9</value><value>1</value></point>"
        "<point><value>9</value><value>9</value></point></polygon></segment_polygons></object></annotation>"
    )
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("flowers/prop.json", json.dumps(properties))
        archive.writestr(f"flowers/{identity}.jpg", encoded())
        archive.writestr(f"flowers/{identity}.xml", labels)
    version = open_data(tmp_path / "export.zip")
    (picture,) = version.pictures
    assert (picture.id, picture.name, picture.category) == (identity, "rose.jpg", "rose")
    assert picture.shapes[0].polygons == (((1, 1), (9, 1), (9, 9)),)


def test_class_folders_with_and_without_splits(tmp_path: Path) -> None:
    for place in ("rose/1.jpg", "tulip/2.jpg", "3.jpg"):
        picture_file(tmp_path / "plain", place, seed=len(place))
        picture_file(tmp_path / "split/val", place, seed=len(place))
    plain, parted = read(tmp_path / "plain"), read(tmp_path / "split")
    assert plain.categories == parted.categories == ("rose", "tulip")
    assert {picture.split for picture in parted.pictures} == {"validation"}
    assert [picture.category for picture in plain.pictures] == [None, "rose", "tulip"]


def test_a_folder_of_all_pictures_is_no_category(tmp_path: Path) -> None:
    picture_file(tmp_path / "shop", "images/1.jpg")
    assert read(tmp_path / "shop").categories == ()
    picture_file(tmp_path / "shop", "hats/1.jpg", seed=1)  # beside another one it may be meant so
    assert read(tmp_path / "shop").categories == ("hats", "images")


def test_labels_drawn_on_a_turned_picture_follow_it(tmp_path: Path) -> None:
    (tmp_path / "one.jpg").write_bytes(with_exif(encoded(width=32, height=24), orientation=6))
    (tmp_path / "one.xml").write_text(
        "<annotation><size><width>32</width><height>24</height></size><object><name>cat</name><bndbox>"
        "<xmin>0</xmin><ymin>0</ymin><xmax>8</xmax><ymax>4</ymax></bndbox></object></annotation>"
    )
    (picture,) = read(tmp_path).pictures
    assert (picture.width, picture.height) == (24, 32)
    assert picture.shapes[0].box == (20, 0, 24, 8)


def test_a_changed_label_file_counts_more_than_our_own_record(tmp_path: Path) -> None:
    path = picture_file(tmp_path, "a.jpg")
    shape = LabelledShape(label="cat", box=(1, 1, 9, 9), confidence=0.5)
    picture = LabelledPicture(id="1", name="a.jpg", path=path, width=32, height=24, shapes=(shape,))
    write(version_of(picture, labels=("cat",)), tmp_path / "out", "yolo")
    (tmp_path / "out/labels/train/a.txt").write_text("0 0.5 0.5 1 1\n")
    (again,) = read(tmp_path / "out").pictures
    assert again.shapes[0].box == pytest.approx((0, 0, 32, 24))
    assert again.shapes[0].confidence is None


@pytest.mark.parametrize("name", ["../x.jpg", "/etc/x.jpg", "a/../../x.jpg", "..\\x.jpg", "C:\\x.jpg"])
def test_a_zip_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "slip.zip", "w") as archive:
        archive.writestr("good.jpg", encoded())
        archive.writestr(name, encoded())
    (tmp_path / "into").mkdir()
    with pytest.raises(PictureError, match="below its own folder"):
        unpack(tmp_path / "slip.zip", tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []


def test_zip_bombs_links_and_broken_zips_are_refused(tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jpg", b"\0" * (8 << 20))
    with pytest.raises(PictureError, match="zip bomb"):
        unpack(tmp_path / "bomb.zip", into, ZipLimits(free_bytes=1 << 20))
    with pytest.raises(PictureError, match="at most"):
        unpack(tmp_path / "bomb.zip", into, ZipLimits(total_bytes=1 << 20))
    link = zipfile.ZipInfo("link.jpg")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(PictureError, match="no links"):
        unpack(tmp_path / "link.zip", into)
    (tmp_path / "cut.zip").write_bytes((tmp_path / "bomb.zip").read_bytes()[:-30])
    with pytest.raises(PictureError, match="whole zip"):
        unpack(tmp_path / "cut.zip", into)
    assert list(into.iterdir()) == []


def test_bad_pictures_are_left_out_and_told(tmp_path: Path) -> None:
    picture_file(tmp_path, "good.jpg")
    (tmp_path / "cut.jpg").write_bytes(encoded(width=200, height=200)[:-200])
    (tmp_path / "text.png").write_text("no picture")
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert [picture.name for picture in version.pictures] == ["good.jpg"]
    assert len(problems) == 2
    (tmp_path / "good.jpg").unlink()
    with pytest.raises(PictureError, match="got none"):
        read(tmp_path)


def test_markup_that_grows_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    picture_file(tmp_path, "a.jpg")
    (tmp_path / "a.xml").write_text('<!DOCTYPE x [<!ENTITY a "b">]><annotation>&a;</annotation>')
    problems: list[str] = []
    assert read(tmp_path, problems).pictures[0].shapes == ()
    assert "document type" in problems[0]
    with pytest.raises(PictureError, match="one of folders, coco"):
        write(read(tmp_path, []), tmp_path / "x", "coca")
    with pytest.raises(PictureError, match="not be there yet"):
        write(read(tmp_path, []), tmp_path, "coco")
    with pytest.raises(PictureError, match="there is none"):
        open_data(tmp_path / "missing")
