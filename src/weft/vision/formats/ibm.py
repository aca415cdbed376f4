"""The zip of IBM's PowerAI Vision: NAME/prop.json, pictures as UUID.jpg, labels as UUID.xml beside them.

Three entries of prop.json are JSON in text: the categories, the actions and the files.
"""

from __future__ import annotations

import json
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.errors import PictureError
from weft.files import write_whole
from weft.vision.formats.documents import picture_document, picture_fields
from weft.vision.formats.exporting import Exporter
from weft.vision.formats.found import (
    LARGEST_JSON,
    SPLIT_WORDS,
    FoundPicture,
    FoundSet,
    in_order,
    pictures_below,
    text_of,
)
from weft.vision.formats.xml_labels import object_element, parse_xml, shapes_in, size_in
from weft.vision.records import DatasetVersion, LabelledPicture

PROPERTIES = "prop.json"


def read_ibm(folder: Path) -> FoundSet:
    """Return the pictures of an unpacked zip, with names, categories and labels."""
    properties = _properties(folder / PROPERTIES)
    problems: list[str] = []
    categories = {
        str(one.get("_id")): str(one.get("name")) for one in _inner(properties, "category_prop_info")
    }
    files: dict[str, Mapping[str, Any]] = {}
    for one in _inner(properties, "file_prop_info"):
        for key in ("_id", "file_name"):
            if isinstance(one.get(key), str):
                files[Path(one[key]).stem] = one
    extra = properties.get("weft")
    extra = extra if isinstance(extra, Mapping) else {}
    found = [
        _picture(path, files.get(path.stem, {}), categories, problems) for path in pictures_below(folder)
    ]
    used = {shape.label for picture in found for shape in picture.shapes}
    names = {picture.category for picture in found if picture.category is not None}
    listed = extra.get("labels")
    known = tuple(str(label) for label in listed) if isinstance(listed, list) else ()
    return FoundSet(
        name=str(properties.get("name") or folder.name),
        format="ibm",
        pictures=tuple(found),
        labels=in_order(known, used),
        categories=in_order(tuple(dict.fromkeys(categories.values())), names),
        problems=tuple(problems),
    )


def _properties(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(text_of(path, LARGEST_JSON))
    except (ValueError, RecursionError) as error:
        raise PictureError(f"{PROPERTIES} must be JSON: {error}; export the data set again") from None
    if not isinstance(document, dict):
        raise PictureError(f"{PROPERTIES} must be a mapping; export the data set again")
    return document


def _inner(properties: dict[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return a list that is given as JSON in text, or as it is."""
    given = properties.get(key) or []
    try:
        entries = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError) as error:
        raise PictureError(f"{PROPERTIES}: {key} must be JSON: {error}; export the data set again") from None
    return [one for one in entries if isinstance(one, Mapping)] if isinstance(entries, list) else []


def _picture(
    path: Path, entry: Mapping[str, Any], categories: Mapping[str, str], problems: list[str]
) -> FoundPicture:
    name = entry.get("original_file_name")
    fields: dict[str, Any] = {"name": name if isinstance(name, str) and name else path.name, "id": path.stem}
    category = entry.get("category_name") or categories.get(str(entry.get("category_id")))
    if isinstance(category, str) and category:
        fields["category"] = category
    metadata = entry.get("user_metadata")
    if isinstance(metadata, Mapping):
        fields["metadata"] = {str(key): str(value) for key, value in metadata.items()}
    fields |= picture_fields(entry.get("weft"))
    extra = entry.get("weft")
    split = SPLIT_WORDS.get(str(extra.get("split"))) if isinstance(extra, Mapping) else None
    labels = path.with_suffix(".xml")
    if not labels.is_file():
        return FoundPicture(path=path, split=split, **fields)
    try:
        root = parse_xml(labels)
    except PictureError as error:
        problems.append(f"{error}; {path.name} comes without labels")
        return FoundPicture(path=path, split=split, **fields)
    shapes = shapes_in(root, labels.name, problems)
    return FoundPicture(path=path, split=split, shapes=shapes, size=size_in(root), **fields)


def write_ibm(version: DatasetVersion, folder: Path) -> None:
    """Write prop.json, pictures and labels; ids that are no UUIDs get one that depends on them alone."""
    exporter = Exporter(folder)
    used = {picture.category for picture in version.pictures if picture.category is not None}
    names = in_order(version.categories, used)
    ids = {name: str(uuid.uuid5(uuid.NAMESPACE_URL, f"category:{name}")) for name in names}
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for picture in version.pictures:
        name = exporter.put(picture, "", stem=_uuid_of(picture))
        files.append(_file(picture, name, ids))
        if picture.shapes:
            _write_labels(folder / name, picture)
    properties = {
        "usage": "generic",
        "name": version.name,
        "type": 0,
        "scenario": "",
        "prop_version": "PROP_VESION_1",  # spelt like this in every file of theirs
        "pre_process": "",
        "category_prop_info": json.dumps([{"_id": ids[name], "name": name} for name in names]),
        "action_prop_info": "[]",
        "file_prop_info": json.dumps(files),
        "weft": {"labels": version.labels},
    }
    write_whole(folder / PROPERTIES, json.dumps(properties, ensure_ascii=False))


def _uuid_of(picture: LabelledPicture) -> str:
    try:
        return str(uuid.UUID(picture.id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"picture:{picture.id}"))


def _file(picture: LabelledPicture, name: str, categories: Mapping[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "_id": Path(name).stem,
        "file_type": "image",
        "file_name": name,
        "original_file_name": picture.name,
        "meta_data": {"width": picture.width, "height": picture.height},
        "label_type": "manual" if picture.shapes else "unlabeled",
        "weft": {"split": picture.split, **picture_document(picture, picture.name)},
    }
    if picture.category is not None:
        entry |= {"category_id": categories[picture.category], "category_name": picture.category}
    if picture.metadata:
        entry["user_metadata"] = dict(picture.metadata)
    return entry


def _write_labels(path: Path, picture: LabelledPicture) -> None:
    root = ET.Element("annotation")
    size = ET.SubElement(root, "size")
    for key, number in (("width", picture.width), ("height", picture.height), ("depth", 3)):
        ET.SubElement(size, key).text = str(number)
    root.extend(object_element(shape, ibm=True) for shape in picture.shapes)
    tree = ET.ElementTree(root)
    ET.indent(tree)
    tree.write(path.with_suffix(".xml"), encoding="utf-8", xml_declaration=True)
