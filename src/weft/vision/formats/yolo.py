"""YOLO: a text file for each picture, a line for each object, in shares of the picture's sides; names in data.yaml.

0 0.5 0.5 0.25 0.25           the middle, the width and the height of a box; a sixth number is a confidence
1 0.1 0.1 0.9 0.1 0.5 0.9     the points of a polygon
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.errors import PictureError
from weft.files import write_whole
from weft.vision.formats.exporting import Exporter
from weft.vision.formats.found import (
    SPLIT_WORDS,
    SPLITS,
    FoundPicture,
    FoundSet,
    in_order,
    is_picture,
    pictures_below,
    split_of,
    text_of,
)
from weft.vision.formats.sidecar import read_sidecar, record_of, write_sidecar
from weft.vision.geometry.boxes import union_box
from weft.vision.geometry.polygons import polygon_area
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape, Split

_KEYS = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}


def find_yolo(folder: Path) -> Path | None:
    """Return the file that describes a YOLO data set, or its folder of labels."""
    for pattern in ("data.yaml", "dataset.yaml", "*.yaml", "*.yml"):
        for path in sorted(folder.glob(pattern)):
            if isinstance(_yaml(path).get("names"), (list, dict)):
                return path
    names = folder / "classes.txt"
    if names.is_file():
        return names
    labels = folder / "labels"
    return labels if labels.is_dir() and any(labels.rglob("*.txt")) else None


def _yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(text_of(path))
    except (yaml.YAMLError, RecursionError) as error:
        raise PictureError(f"{path.name} must be YAML: {str(error).splitlines()[0]}; mend the file") from None
    return document if isinstance(document, dict) else {}


def read_yolo(folder: Path, described: Path) -> FoundSet:
    """Return the pictures of a YOLO data set."""
    known, pictures = _described(folder, described)
    sidecar = read_sidecar(folder)
    found: list[FoundPicture] = []
    problems: list[str] = []
    names = list(known)
    for path, split in pictures:
        labels = _labels_of(path)
        words = text_of(labels) if labels is not None else ""
        shapes = []
        for number, line in enumerate(words.splitlines(), 1):
            if not line.strip():
                continue
            try:
                shapes.append(_shape(line, names, grows=not known))
            except PictureError as error:
                problems.append(f"{labels.name if labels else path.name}:{number}: {error}; it was left out")
        place = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
        picture = FoundPicture(name=path.name, path=path, split=split, shapes=tuple(shapes), relative=True)
        found.append(sidecar.complete(picture, place, words))
    categories = {picture.category for picture in found if picture.category is not None}
    return FoundSet(
        name=folder.name,
        format="yolo",
        pictures=tuple(found),
        labels=tuple(names),
        categories=in_order(sidecar.categories, categories),
        problems=tuple(problems),
    )


def _described(folder: Path, described: Path) -> tuple[list[str], list[tuple[Path, Split | None]]]:
    names: list[str] = []
    pictures: dict[Path, Split | None] = {}
    if described.suffix in (".yaml", ".yml"):
        document = _yaml(described)
        names = _names(document["names"], described)
        root = described.parent / str(document.get("path") or ".")
        for key, split in _KEYS.items():
            for path in _listed(document.get(key), root, described.parent):
                pictures.setdefault(path, SPLIT_WORDS[split])
    elif described.is_file():
        names = [line.strip() for line in text_of(described).splitlines() if line.strip()]
    if not pictures:
        pictures = {path: split_of(path.relative_to(folder)) for path in pictures_below(folder)}
    return names, list(pictures.items())


def _names(given: Any, path: Path) -> list[str]:
    if isinstance(given, list):
        return [str(name) for name in given]
    try:
        numbered = {int(key): str(name) for key, name in given.items()}
    except ValueError:
        raise PictureError(
            f"{path.name}: names must be a list or be numbered, got {str(given)[:60]}"
        ) from None
    if sorted(numbered) != list(range(len(numbered))):
        raise PictureError(
            f"{path.name}: names must be numbered from 0 without gaps, got {sorted(numbered)[:20]}"
        )
    return [numbered[number] for number in range(len(numbered))]


def _listed(given: Any, root: Path, home: Path) -> list[Path]:
    """Return the pictures of one split: of a folder, of a list in a text file, or of several of those."""
    if isinstance(given, list):
        return [path for one in given for path in _listed(one, root, home)]
    if not isinstance(given, str):
        return []
    # Roboflow writes ../train/images for folders beside the file.
    tried = [root / given, home / given, home / given.removeprefix("../")]
    place = next((path for path in tried if path.exists() and _inside(path, home, root)), None)
    if place is None:
        return []
    if place.is_dir():
        return list(pictures_below(place))
    lines = [Path(line.strip()) for line in text_of(place).splitlines() if line.strip()]
    found = [next((p for p in (place.parent / line, root / line) if p.is_file()), None) for line in lines]
    return [path for path in found if path is not None and is_picture(path) and _inside(path, home, root)]


def _inside(path: Path, home: Path, root: Path) -> bool:
    whole = path.resolve()
    return whole.is_relative_to(home.resolve()) or whole.is_relative_to(root.resolve())


def _labels_of(picture: Path) -> Path | None:
    """Return the text file of a picture: the last folder `images` of its path is `labels`, or it lies beside it."""
    parts = list(picture.parts)
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] in ("images", "JPEGImages"):
            parts[place] = "labels"
            path = Path(*parts).with_suffix(".txt")
            if path.is_file():
                return path
            break
    beside = picture.with_suffix(".txt")
    return beside if beside.is_file() else None


def _shape(line: str, names: list[str], *, grows: bool) -> LabelledShape:
    try:
        number, *values = line.split()
        place = int(number)
        numbers = [float(value) for value in values]
    except ValueError:
        raise PictureError(f"a line must be a class and numbers, got {line[:60]!r}") from None
    if grows and 0 <= place < 10_000:
        names.extend(str(missing) for missing in range(len(names), place + 1))
    if not 0 <= place < len(names):
        raise PictureError(f"a class must be from 0 to {len(names) - 1}, got {place}")
    if len(numbers) in (4, 5):
        x, y, width, height = numbers[:4]
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        return LabelledShape(
            label=names[place], box=box, confidence=numbers[4] if len(numbers) == 5 else None
        )
    if len(numbers) < 6 or len(numbers) % 2:
        raise PictureError(
            f"a line must have 4 numbers or the points of a polygon, got {len(numbers)} numbers"
        )
    ring = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return LabelledShape(label=names[place], box=union_box(ring), polygons=(ring,))


def write_yolo(version: DatasetVersion, folder: Path) -> None:
    """Write data.yaml, images/SPLIT and labels/SPLIT."""
    import yaml

    exporter = Exporter(folder)
    used = {shape.label for picture in version.pictures for shape in picture.shapes}
    labels = in_order(version.labels, used)
    ids = {label: place for place, label in enumerate(labels)}
    records = {}
    for picture in version.pictures:
        place = exporter.put(picture, f"images/{picture.split}")
        words = "".join(_line(shape, picture, ids) for shape in picture.shapes)
        target = (folder / "labels" / Path(place).relative_to("images")).with_suffix(".txt")
        if words:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(words)
        records[place] = record_of(picture, Path(place).name, words)
    there = [split for split in SPLITS if any(True for _ in version.of_split(split))]
    for split in ("train", "validation"):  # which trainers look for
        (folder / "images" / split).mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"path": ".", "train": "images/train", "val": "images/validation"}
    if "test" in there:
        document["test"] = "images/test"
    document["names"] = dict(enumerate(labels))
    write_whole(folder / "data.yaml", yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    write_sidecar(folder, records, version.labels, version.categories)


def _line(shape: LabelledShape, picture: LabelledPicture, ids: Mapping[str, int]) -> str:
    """Return a shape's line; of several polygons the largest is written, of a mask its box: weft.json has the rest."""
    width, height = picture.width, picture.height
    if shape.polygons:
        ring = max(shape.polygons, key=polygon_area)
        numbers = [value for x, y in ring for value in (x / width, y / height)]
    else:
        left, top, right, bottom = shape.box
        numbers = [
            (left + right) / 2 / width,
            (top + bottom) / 2 / height,
            (right - left) / width,
            (bottom - top) / height,
        ]
    return " ".join([str(ids[shape.label]), *(f"{number:.8g}" for number in numbers)]) + "\n"


def in_pixels(shape: LabelledShape, width: int, height: int) -> LabelledShape:
    """Return a shape whose coordinates were shares of a picture's sides."""
    left, top, right, bottom = shape.box
    rings = tuple(tuple((x * width, y * height) for x, y in ring) for ring in shape.polygons)
    return replace(shape, box=(left * width, top * height, right * width, bottom * height), polygons=rings)
