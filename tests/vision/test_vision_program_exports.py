"""Exports of labelling programs that describe many pictures in one file: CVAT, Label Studio, VIA and Create ML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testing.vision.made_pictures import picture_file

from weft.vision.formats import read
from weft.vision.geometry.masks import decode_mask
from weft.vision.records import DatasetVersion

Told = dict[str, list[tuple[str, Any, int]]]


def told(version: DatasetVersion) -> Told:
    """Return the label, the box and the number of corners of each shape, by the names of pictures."""
    return {
        one.name: [
            (shape.label, pytest.approx(shape.box, abs=1e-6), sum(map(len, shape.polygons)))
            for shape in one.shapes
        ]
        for one in version.pictures
    }


def two_pictures(folder: Path) -> None:
    for seed, name in enumerate(("images/a.jpg", "images/b.jpg")):
        picture_file(folder, name, seed=seed)


CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><name>t</name></task></meta>
<image id="0" name="a.jpg" width="32" height="24" subset="Test">
  <box label="cat" source="manual" occluded="0" xtl="2" ytl="3" xbr="10" ybr="9" z_order="0"></box>
  <box label="cat" xtl="10" ytl="8" xbr="20" ybr="12" rotation="90"></box>
  <polygon label="dog" points="1,1;9,1;9,9"></polygon>
  <ellipse label="dog" cx="16" cy="12" rx="4" ry="2"></ellipse>
  <mask label="dog" rle="0,3,1,2" left="4" top="5" width="3" height="2"></mask>
  <polyline label="dog" points="1,1;9,1"></polyline>
  <tag label="night" source="manual"></tag>
</image>
<image id="1" name="lost.jpg" width="32" height="24"><box label="cat" xtl="2" ytl="3" xbr="10" ybr="9"/></image>
</annotations>"""


def test_cvat_for_images(tmp_path: Path) -> None:
    two_pictures(tmp_path)
    (tmp_path / "annotations.xml").write_text(CVAT)
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert told(version) == {
        "a.jpg": [
            ("cat", (2, 3, 10, 9), 0),
            ("cat", (13, 5, 17, 15), 4),
            ("dog", (1, 1, 9, 9), 3),
            ("dog", (12, 10, 20, 14), 24),
            ("dog", (4, 5, 7, 7), 0),
        ],
        "b.jpg": [],
    }
    first = version.pictures[0]
    assert (first.category, first.split) == ("night", "test")
    mask = first.shapes[-1].mask
    assert mask is not None
    assert decode_mask(mask)[5:7, 4:7].tolist() == [[1, 1, 1], [0, 1, 1]]
    assert problems == [
        "annotations.xml: a.jpg: a polyline was left out: shapes must be boxes, polygons, ellipses or masks",
        "annotations.xml: 1 picture with labels must be beside it, got none named 'lost.jpg'; put the pictures "
        "into the folder",
    ]


def rectangle(**more: Any) -> dict[str, Any]:
    return {"x": 25, "y": 50, "width": 50, "height": 25, "rotation": 0, "rectanglelabels": ["cat"], **more}


def result(value: dict[str, Any], kind: str = "rectanglelabels") -> dict[str, Any]:
    return {"type": kind, "original_width": 32, "original_height": 24, "value": value}


def test_label_studio(tmp_path: Path) -> None:
    two_pictures(tmp_path)
    ellipse = {"x": 50, "y": 50, "radiusX": 25, "radiusY": 25, "ellipselabels": ["dog"]}
    polygon = {"points": [[0, 0], [50, 0], [50, 50]], "polygonlabels": ["dog"]}
    tasks = [
        {
            "data": {"image": "/data/upload/1/0a1b2c3d-a.jpg"},
            "annotations": [
                {"result": [result(rectangle(width=1))], "was_cancelled": False},
                {
                    "result": [
                        result(rectangle()),
                        result(rectangle(width=25, rotation=90)),
                        result(ellipse, "ellipselabels"),
                        result(polygon, "polygonlabels"),
                        result({"format": "rle", "rle": [1], "brushlabels": ["dog"]}, "brushlabels"),
                        {"type": "choices", "value": {"choices": ["night"]}},
                    ]
                },
                {"result": [], "was_cancelled": True},
            ],
        },
        {"data": {"image": "/data/local-files/?d=images/b.jpg"}, "annotations": []},
    ]
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    problems: list[str] = []
    version = read(tmp_path, problems)
    assert told(version) == {
        "a.jpg": [
            ("cat", (8, 12, 24, 18), 0),
            ("cat", (2, 12, 8, 20), 4),
            ("dog", (8, 6, 24, 18), 24),
            ("dog", (0, 0, 16, 12), 3),
        ],
        "b.jpg": [],
    }
    assert version.categories == ("night",)
    assert problems == [
        "export.json: a.jpg: a shape was left out: shapes must be rectangles, polygons or ellipses, got brush"
    ]


def test_label_studio_in_rows(tmp_path: Path) -> None:
    two_pictures(tmp_path)
    rows = [
        {"image": "s3://bucket/a.jpg", "id": 1, "label": [rectangle()], "annotator": 1, "annotation_id": 1},
        {
            "image": "http://host/b.jpg?key=b.jpg",
            "id": 2,
            "choice": "night",
            "annotator": 1,
            "annotation_id": 2,
        },
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(rows))
    version = read(path)
    assert told(version) == {"a.jpg": [("cat", (8, 12, 24, 18), 0)], "b.jpg": []}
    assert [one.category for one in version.pictures] == [None, "night"]


REGIONS: list[dict[str, Any]] = [
    {
        "shape_attributes": {"name": "rect", "x": 2, "y": 3, "width": 8, "height": 6},
        "region_attributes": {"colour": "red", "class": "cat"},
    },
    {
        "shape_attributes": {"name": "polygon", "all_points_x": [1, 9, 9], "all_points_y": [1, 1, 9]},
        "region_attributes": {"kind": {"cat": False, "dog": True}},
    },
    {"shape_attributes": {"name": "circle", "cx": 16, "cy": 12, "r": 4}, "region_attributes": {}},
    {"shape_attributes": {"name": "point", "cx": 1, "cy": 2}, "region_attributes": {}},
]
VIA_TOLD = {
    "a.jpg": [("cat", (2, 3, 10, 9), 0), ("dog", (1, 1, 9, 9), 3), ("object", (12, 8, 20, 16), 24)],
    "b.jpg": [],
}


@pytest.mark.parametrize("regions", [REGIONS, {str(place): one for place, one in enumerate(REGIONS)}])
@pytest.mark.parametrize("project", [True, False])
def test_via(tmp_path: Path, regions: Any, project: bool) -> None:
    two_pictures(tmp_path)
    entries = {"a.jpg99": {"filename": "a.jpg", "size": 99, "regions": regions, "file_attributes": {}}}
    (tmp_path / "via.json").write_text(json.dumps({"_via_img_metadata": entries} if project else entries))
    problems: list[str] = []
    assert told(read(tmp_path, problems)) == VIA_TOLD
    assert len(problems) == 1
    assert "got point" in problems[0]


def test_via_as_a_table(tmp_path: Path) -> None:
    two_pictures(tmp_path)
    lines = [
        "filename,file_size,file_attributes,region_count,region_id,region_shape_attributes,region_attributes"
    ]
    for place, one in enumerate(REGIONS):
        cells = [json.dumps(one[key]).replace('"', '""') for key in ("shape_attributes", "region_attributes")]
        lines.append(f'a.jpg,99,"{{}}",4,{place},"{cells[0]}","{cells[1]}"')
    lines.append('b.jpg,99,"{}",0,0,"{}","{}"')
    (tmp_path / "via.csv").write_text("\n".join(lines))
    assert told(read(tmp_path, [])) == VIA_TOLD


def test_create_ml(tmp_path: Path) -> None:
    two_pictures(tmp_path)
    place = {"x": 10, "y": 8, "width": 4, "height": 6}
    document = [
        {"image": "a.jpg", "annotations": [{"label": "cat", "coordinates": place}, {"label": "cat"}]},
        {"image": "b.jpg", "annotations": []},
    ]
    (tmp_path / "_annotations.createml.json").write_text(json.dumps(document))
    problems: list[str] = []
    assert told(read(tmp_path, problems)) == {"a.jpg": [("cat", (8, 5, 12, 11), 0)], "b.jpg": []}
    assert "a box must have a label and coordinates" in problems[0]


@pytest.mark.parametrize("text", ["[]", "{}", "[1]", '{"a": 1}', "{", '[{"image": 1}]', '[{"data": {}}]'])
def test_json_of_no_known_program_is_told(tmp_path: Path, text: str) -> None:
    two_pictures(tmp_path)
    (tmp_path / "settings.json").write_text(text)
    problems: list[str] = []
    assert len(read(tmp_path, problems).pictures) == 2
    assert len(problems) == 1
    assert problems[0].startswith("settings.json must be labels of ")


NASTY: list[Any] = [None, True, -1, 0, 10**400, "", "nan", "1e999", "http://[x", "../../a.jpg", [], [[1]], {}]
VALID: list[Any] = [
    [{"data": {"image": "a.jpg"}, "annotations": [{"result": [result(rectangle(rotation=9))]}]}],
    [{"image": "a.jpg", "annotator": 1, "label": [rectangle(original_width=32, original_height=24)]}],
    {"a.jpg99": {"filename": "a.jpg", "regions": REGIONS}},
    [{"image": "a.jpg", "annotations": [{"label": "cat", "coordinates": dict.fromkeys(["x", "y"], 9)}]}],
    {
        "imagePath": "a.jpg",
        "imageWidth": 32,
        "imageHeight": 24,
        "shapes": [{"label": "x", "points": [[1, 2]] * 3}],
    },
]


def damaged(value: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """Return a document with some of its values replaced by others that no program writes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(NASTY))
    if isinstance(value, dict):
        return {key: damaged(inner, draw) for key, inner in value.items()}
    return [damaged(inner, draw) for inner in value] if isinstance(value, list) else value


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_json_leaves_all_pictures(tmp_path: Path, data: st.DataObject) -> None:
    if not (tmp_path / "a.jpg").exists():
        picture_file(tmp_path, "a.jpg")
    (tmp_path / "a.json").write_text(json.dumps(damaged(data.draw(st.sampled_from(VALID)), data.draw)))
    assert [one.name for one in read(tmp_path, []).pictures] == ["a.jpg"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["xtl", "cx", "rle", "left", "width", "points", "rotation", "name", "label"])),
    st.data(),
)
def test_damaged_xml_leaves_all_pictures(tmp_path: Path, names: list[str], data: st.DataObject) -> None:
    if not (tmp_path / "a.jpg").exists():
        picture_file(tmp_path, "a.jpg")
    text = CVAT
    for name in names:
        wrong = data.draw(st.sampled_from(["", "x", "-1", "inf", "nan", "1e999", "9" * 400, "http://[x"]))
        text = re.sub(f' {name}="[^"]*"', f' {name}="{wrong}"', text)
    (tmp_path / "annotations.xml").write_text(text)
    assert [one.name for one in read(tmp_path, []).pictures] == ["a.jpg"]


def test_a_name_may_have_signs_of_addresses(tmp_path: Path) -> None:
    picture_file(tmp_path, "a#1?x.jpg")
    (tmp_path / "labels.json").write_text(
        json.dumps(
            [
                {
                    "image": "a#1?x.jpg",
                    "annotations": [
                        {"label": "cat", "coordinates": {**dict.fromkeys(("x", "y", "width", "height"), 9)}}
                    ],
                }
            ]
        )
    )
    assert [len(one.shapes) for one in read(tmp_path).pictures] == [1]
