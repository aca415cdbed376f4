"""Pascal VOC: an XML file for each picture in Annotations, pictures in JPEGImages, splits in ImageSets/Main.

XML files beside their pictures are read as well. Coordinates are taken as they are written: from 0, as labelling
programs of today write them.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path, PurePosixPath

from weft.errors import PictureError
from weft.files import write_whole
from weft.vision.formats.documents import picture_document, picture_fields
from weft.vision.formats.exporting import Exporter
from weft.vision.formats.found import (
    SPLIT_WORDS,
    SPLITS,
    FoundPicture,
    FoundSet,
    in_order,
    pictures_below,
    split_of,
    text_of,
)
from weft.vision.formats.xml_labels import object_element, parse_xml, shapes_in, size_in, xml_text
from weft.vision.records import DatasetVersion, LabelledPicture, Split

_LIST_NAMES: dict[Split, str] = {"train": "train", "validation": "val", "test": "test"}


def read_voc(folder: Path) -> FoundSet:
    """Return the pictures of a folder, with the labels of the XML files of the same names."""
    problems: list[str] = []
    annotations = folder / "Annotations"
    files = _by_place(annotations if annotations.is_dir() else folder)
    splits = _splits(folder)
    found = []
    for path in pictures_below(folder):
        if _is_mask(path.relative_to(folder)):
            continue
        xml = files.get(path.stem) or next((p for p in (path.with_suffix(".xml"),) if p.is_file()), None)
        split = splits.get(path.stem) if splits else split_of(path.relative_to(folder))
        found.append(_picture(path, xml, split, problems))
    used = {shape.label for picture in found for shape in picture.shapes}
    categories = {picture.category for picture in found if picture.category is not None}
    known, known_categories = _known(folder)
    return FoundSet(
        name=folder.name,
        format="voc",
        pictures=tuple(found),
        labels=in_order(known, used),
        categories=in_order(known_categories, categories),
        problems=tuple(problems),
    )


def _by_place(folder: Path) -> dict[str, Path]:
    """Return the XML files below a folder by stem; names that occur twice only count beside their pictures."""
    found: dict[str, Path] = {}
    twice = set()
    for path in sorted(folder.rglob("*.xml")):
        if path.stem in found:
            twice.add(path.stem)
        found[path.stem] = path
    return {stem: path for stem, path in found.items() if stem not in twice}


def _is_mask(place: Path) -> bool:
    return place.parts[0] in ("SegmentationClass", "SegmentationObject")


def _picture(path: Path, xml: Path | None, split: Split | None, problems: list[str]) -> FoundPicture:
    if xml is None:
        return FoundPicture(name=path.name, path=path, split=split)
    try:
        root = parse_xml(xml)
    except PictureError as error:
        problems.append(f"{error}; {path.name} comes without labels")
        return FoundPicture(name=path.name, path=path, split=split)
    fields = {"name": path.name}
    if root.findtext("weft"):
        try:
            fields |= picture_fields(json.loads(root.findtext("weft") or "{}"))
        except (ValueError, RecursionError):
            problems.append(f"{xml.name}: <weft> must be JSON; it was left out")
    shapes = shapes_in(root, xml.name, problems)
    return FoundPicture(path=path, split=split, shapes=shapes, size=size_in(root), **fields)  # type: ignore[arg-type]


def _splits(folder: Path) -> dict[str, Split]:
    """Return the split of each stem that a list in ImageSets/Main names; `trainval` says nothing more."""
    found: dict[str, Split] = {}
    for home in (folder / "ImageSets" / "Main", folder / "ImageSets"):
        for path in sorted(home.glob("*.txt")) if home.is_dir() else ():
            if path.stem in SPLIT_WORDS:
                for line in text_of(path).splitlines():
                    if line.strip():  # VOC's own lists have a second column; names may have spaces
                        found.setdefault(_stem(line.strip(), home), SPLIT_WORDS[path.stem])
    return found


def _stem(line: str, home: Path) -> str:
    name, _, rest = line.rpartition(" ")
    return name.strip() if name and rest in ("1", "-1", "0") else line


def _known(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return labels and categories in the order of labels.txt and categories.txt, where they are there."""
    lists = []
    for name in ("labels.txt", "categories.txt"):
        path = folder / name
        lines = text_of(path).splitlines() if path.is_file() else []
        lists.append(tuple(dict.fromkeys(line.strip() for line in lines if line.strip())))
    return lists[0], lists[1]


def write_voc(version: DatasetVersion, folder: Path) -> None:
    """Write Annotations, JPEGImages, ImageSets/Main and the order of labels."""
    exporter = Exporter(folder)
    lists: dict[Split, list[str]] = {split: [] for split in SPLITS}
    (folder / "Annotations").mkdir(parents=True)
    for picture in version.pictures:
        place = PurePosixPath(exporter.put(picture, "JPEGImages"))
        lists[picture.split].append(place.stem)
        tree = ET.ElementTree(_annotation(picture, place.name))
        ET.indent(tree)
        tree.write(folder / "Annotations" / f"{place.stem}.xml", encoding="utf-8", xml_declaration=True)
    main = folder / "ImageSets" / "Main"
    main.mkdir(parents=True)
    for split, stems in lists.items():
        write_whole(main / f"{_LIST_NAMES[split]}.txt", "".join(f"{stem}\n" for stem in stems))
    write_whole(folder / "labels.txt", "".join(f"{label}\n" for label in version.labels))
    write_whole(folder / "categories.txt", "".join(f"{category}\n" for category in version.categories))


def _annotation(picture: LabelledPicture, name: str) -> ET.Element:
    root = ET.Element("annotation")
    ET.SubElement(root, "folder").text = "JPEGImages"
    ET.SubElement(root, "filename").text = xml_text(name)
    size = ET.SubElement(root, "size")
    for key, number in (("width", picture.width), ("height", picture.height), ("depth", 3)):
        ET.SubElement(size, key).text = str(number)
    ET.SubElement(root, "segmented").text = "1" if any(shape.polygons for shape in picture.shapes) else "0"
    ET.SubElement(root, "weft").text = json.dumps(picture_document(picture, name))
    root.extend(object_element(shape) for shape in picture.shapes)
    return root
