"""COCO: one JSON file of images, annotations and categories, for all pictures or for each split.

Read from annotations/instances_train.json with pictures in images/train, from Roboflow's
train/_annotations.coco.json with pictures beside it, and from any other place where the named pictures can be found.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.errors import PictureError
from weft.files import write_whole
from weft.text import plural
from weft.vision.formats.documents import (
    box_of,
    extras_of,
    mask_document,
    mask_of,
    picture_document,
    picture_fields,
    shape_extras,
)
from weft.vision.formats.exporting import Exporter
from weft.vision.formats.found import (
    LARGEST_JSON,
    SPLIT_WORDS,
    SPLITS,
    FoundPicture,
    FoundSet,
    in_order,
    is_there,
    pictures_below,
    split_of,
    text_of,
)
from weft.vision.geometry.boxes import union_box
from weft.vision.geometry.masks import mask_box
from weft.vision.geometry.validity import shape_area
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape, Split

_WORD = re.compile("[a-z]+")


def is_coco(path: Path) -> bool:
    """Return whether a JSON file is COCO's, by the names of its first lists."""
    with path.open("rb") as file:
        head = file.read(1 << 16).removeprefix(codecs.BOM_UTF8).lstrip()
    if head[:1] != b"{":
        return False
    if b'"images"' in head:
        return True
    if path.stat().st_size > LARGEST_JSON:
        return False
    try:
        document = json.loads(text_of(path, LARGEST_JSON))
    except (ValueError, RecursionError, PictureError):
        return False
    return isinstance(document, dict) and "images" in document


def read_coco(folder: Path, files: list[Path]) -> FoundSet:
    """Return the pictures of COCO files; those of one data set may be in several files, one for each split."""
    pictures: list[FoundPicture] = []
    problems: list[str] = []
    labels: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    places = _Places(folder)
    for path in files:
        document = _document(path)
        if len(files) > 1 and not document.get("categories") and document.get("annotations"):
            problems.append(
                f"{path.name} has annotations without categories, as captions are; it was left out"
            )
            continue
        names = _names(document, path)
        labels = tuple(dict.fromkeys((*labels, *names.values())))  # two ids may have one name
        extra = document.get("weft")
        if isinstance(extra, Mapping) and isinstance(extra.get("categories"), list):
            categories = (*categories, *(str(c) for c in extra["categories"] if str(c) not in categories))
        split = _split(path.relative_to(folder) if path.is_relative_to(folder) else Path(path.name))
        pictures.extend(_pictures(document, path, names, split, places, problems))
    pictures = list(_merged(pictures))
    used = {picture.category for picture in pictures if picture.category is not None}
    return FoundSet(
        name=folder.name,
        format="coco",
        pictures=tuple(pictures),
        labels=labels,
        categories=in_order(categories, used),
        problems=tuple(problems),
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(text_of(path, LARGEST_JSON))
    except (ValueError, RecursionError) as error:
        raise PictureError(f"{path.name} must be JSON: {error}; export it again") from None
    if not isinstance(document, dict) or not isinstance(document.get("images"), list):
        raise PictureError(f"{path.name} must have a list of images to be COCO's; export it again")
    for name in ("annotations", "categories"):
        if not isinstance(document.get(name) or [], list):
            raise PictureError(
                f"{path.name}: {name} must be a list, got {str(document[name])[:60]}; export it again"
            )
    return document


def _names(document: dict[str, Any], path: Path) -> dict[Any, str]:
    """Return the labels by their ids, in the order of the ids."""
    found = {}
    for category in document.get("categories") or ():
        if not isinstance(category, Mapping) or "id" not in category or "name" not in category:
            raise PictureError(
                f"{path.name}: a category must have an id and a name, got {str(category)[:60]}"
            )
        if not isinstance(category["id"], (int, float, str)):
            raise PictureError(
                f"{path.name}: the id of a category must be a number or text, got {str(category['id'])[:60]}"
            )
        found[category["id"]] = str(category["name"])
    try:
        return dict(sorted(found.items()))
    except TypeError:
        return found


def _split(path: Path) -> Split | None:
    """Return the split that the name of a file tells, or one of its folders."""
    for word in _WORD.findall(path.stem.lower()):
        if word in SPLIT_WORDS:
            return SPLIT_WORDS[word]
    return split_of(path.parent)


class _Places:
    """The pictures below a folder, found by what a COCO file calls them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_name: dict[str, list[Path]] | None = None

    def find(self, name: str, path: Path, split: Split | None) -> Path | None:
        relative = Path(name.replace("\\", "/"))
        if relative.is_absolute() or ".." in relative.parts:
            relative = Path(relative.name)
        homes = [path.parent, self._folder]
        homes += [home / "images" for home in (path.parent, path.parent.parent, self._folder)]
        for home in homes:
            for place in (home / relative, *((home / word / relative) for word in _words_of(split))):
                if place.is_relative_to(self._folder) and is_there(place) and place.is_file():
                    return place
        if self._by_name is None:
            self._by_name = defaultdict(list)
            for picture in pictures_below(self._folder):
                self._by_name[picture.name].append(picture)
        found = self._by_name.get(relative.name, [])
        if len(found) > 1:  # as in train2017 and val2017, beside instances_train2017.json
            found = [place for place in found if self._is_near(place, path, split)]
        return found[0] if len(found) == 1 else None

    def _is_near(self, place: Path, path: Path, split: Split | None) -> bool:
        """Return whether a picture lies in a folder that a file of labels is named after, or in that of its split."""
        homes = place.parent.relative_to(self._folder)
        if any(part.lower() in path.stem.lower() for part in homes.parts):
            return True
        return split is not None and _split(homes / "any") == split


def _words_of(split: Split | None) -> list[str]:
    return [word for word, meant in SPLIT_WORDS.items() if meant == split]


def _pictures(
    document: dict[str, Any],
    path: Path,
    names: dict[Any, str],
    split: Split | None,
    places: _Places,
    problems: list[str],
) -> Iterator[FoundPicture]:
    shapes: dict[Any, list[LabelledShape]] = defaultdict(list)
    for annotation in document.get("annotations") or ():
        try:
            shapes[annotation["image_id"]].append(_shape(annotation, names))
        except (PictureError, KeyError, TypeError, ValueError) as error:
            problems.append(f"{path.name}: an annotation was left out: {error}")
    problems.extend(_of_annotations(document, shapes, path.name))
    for image in document["images"]:
        if not isinstance(image, Mapping) or not isinstance(image.get("file_name"), str):
            problems.append(f"{path.name}: an image must have a file_name, got {str(image)[:60]}")
            continue
        if not _is_key(image.get("id")):
            problems.append(
                f"{path.name}: the id of an image must be a number or text, got {str(image)[:60]}"
            )
            continue
        place = places.find(image["file_name"], path, split)
        if place is None:
            problems.append(
                f"{path.name}: the picture {image['file_name'][:100]!r} is not there; it was left out"
            )
            continue
        fields = {"name": place.name, **picture_fields(image.get("weft"))}
        size = (image.get("width"), image.get("height"))
        yield FoundPicture(
            path=place,
            split=split,
            shapes=tuple(shapes.get(image.get("id"), ())),
            size=size if isinstance(size[0], int) and isinstance(size[1], int) else None,  # type: ignore[arg-type]
            **fields,
        )


def _of_annotations(
    document: Mapping[str, Any], shapes: Mapping[Any, list[LabelledShape]], name: str
) -> Iterator[str]:
    """Yield what a reader should know of the annotations of a file as a whole."""
    images = {
        one.get("id") for one in document["images"] if isinstance(one, Mapping) and _is_key(one.get("id"))
    }
    lost = sum(len(of_one) for image, of_one in shapes.items() if image not in images)
    if lost:
        yield f"{name}: {plural(lost, 'annotation')} of images that the file does not list: left out"
    crowds = sum(
        one.get("iscrowd") in (1, True)
        for one in document.get("annotations") or ()
        if isinstance(one, Mapping)
    )
    if crowds:
        yield f"{name}: {plural(crowds, 'region')} of crowds (iscrowd) became objects as all others; look at them"


def _is_key(value: Any) -> bool:
    return isinstance(value, (int, float, str, type(None)))


def _merged(pictures: list[FoundPicture]) -> Iterator[FoundPicture]:
    """Yield each picture once, with the shapes of all files: COCO has several files about the same pictures."""
    found: dict[tuple[Path, str], FoundPicture] = {}
    for picture in pictures:
        key = (picture.path, picture.id)
        before = found.get(key)
        if before is None:
            found[key] = picture
        else:
            more = tuple(shape for shape in picture.shapes if shape not in before.shapes)
            found[key] = replace(
                before, shapes=before.shapes + more, category=before.category or picture.category
            )
    yield from found.values()


def _shape(annotation: Mapping[str, Any], names: dict[Any, str]) -> LabelledShape:
    if annotation["category_id"] not in names:
        raise PictureError(f"the category {annotation['category_id']!r} is not among the file's categories")
    extras = annotation.get("weft")
    fields = extras_of(extras)
    if "confidence" not in fields and isinstance(annotation.get("score"), (int, float)):
        fields["confidence"] = float(annotation["score"])
    found = annotation.get("segmentation")
    mask = mask_of(found) if isinstance(found, Mapping) else None
    rings = tuple(_ring(ring) for ring in found or ()) if mask is None else ()
    if isinstance(extras, Mapping) and "box" in extras:
        box = box_of(extras["box"])
    elif annotation.get("bbox") is not None:
        left, top, width, height = (float(number) for number in annotation["bbox"])
        box = (left, top, left + width, top + height)
    elif rings:
        box = union_box(point for ring in rings for point in ring)
    else:
        around = mask_box(mask) if mask is not None else None
        if around is None:
            raise PictureError("an annotation must have a bbox or a segmentation")
        box = around
    return LabelledShape(label=names[annotation["category_id"]], box=box, polygons=rings, mask=mask, **fields)


def _ring(numbers: Any) -> tuple[tuple[float, float], ...]:
    values = [float(number) for number in numbers]
    if len(values) % 2:
        raise PictureError(f"a polygon must have pairs of numbers, got {len(values)} numbers")
    return tuple(zip(values[::2], values[1::2], strict=True))


def write_coco(version: DatasetVersion, folder: Path) -> None:
    """Write annotations/instances_SPLIT.json and images/SPLIT, for each split that has pictures."""
    exporter = Exporter(folder)
    used = {shape.label for picture in version.pictures for shape in picture.shapes}
    labels = in_order(version.labels, used)
    (folder / "annotations").mkdir(parents=True)
    for split in SPLITS:
        pictures = list(version.of_split(split))
        if pictures or (split == "train" and not version.pictures):
            document = _written(version, pictures, labels, exporter, split)
            write_whole(
                folder / "annotations" / f"instances_{split}.json", json.dumps(document, ensure_ascii=False)
            )


def _written(
    version: DatasetVersion,
    pictures: list[LabelledPicture],
    labels: tuple[str, ...],
    exporter: Exporter,
    split: Split,
) -> dict[str, Any]:
    ids = {label: place for place, label in enumerate(labels, 1)}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, picture in enumerate(pictures, 1):
        name = Path(exporter.put(picture, f"images/{split}")).name
        size = {"width": picture.width, "height": picture.height}
        extra = picture_document(picture, name)
        images.append({"id": number, "file_name": name, **size, "weft": extra})
        for shape in picture.shapes:
            annotations.append(_annotation(shape, len(annotations) + 1, number, ids[shape.label]))
    return {
        "info": {"description": version.name, "version": str(version.number)},
        "licenses": [],
        "weft": {"categories": version.categories},
        "images": images,
        "annotations": annotations,
        "categories": [{"id": ids[label], "name": label, "supercategory": ""} for label in labels],
    }


def _annotation(shape: LabelledShape, number: int, image: int, category: int) -> dict[str, Any]:
    left, top, right, bottom = shape.box
    width, height = right - left, bottom - top
    extras = shape_extras(shape)
    if (left + width, top + height) != (right, bottom):  # the last digit would be lost
        extras["box"] = list(shape.box)
    segmentation: Any = [[value for point in ring for value in point] for ring in shape.polygons]
    if shape.mask is not None:
        segmentation = mask_document(shape.mask)
    found: dict[str, Any] = {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": [left, top, width, height],
        "area": shape_area(shape),
        "iscrowd": 0,
        "segmentation": segmentation,
    }
    if shape.confidence is not None:
        found["score"] = shape.confidence
    if extras:
        found["weft"] = extras
    return found
