"""YOLO: a text file for each picture, a line for each object, in shares of the picture's sides; names in data.yaml.

0 0.5 0.5 0.25 0.25           the middle, the width and the height of a box; a sixth number is a confidence
1 0.1 0.1 0.9 0.1 0.5 0.9     the points of a polygon, or the four corners of a turned box; a confidence may follow

Darknet's and CVAT's obj.names, LabelImg's classes.txt and folders named `labels` beside `images` are read as well.
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
    is_there,
    pictures_below,
    split_of,
    text_of,
)
from weft.vision.formats.sidecar import read_sidecar, record_of, write_sidecar
from weft.vision.geometry.boxes import union_box
from weft.vision.geometry.polygons import polygon_area
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape, Split

_MOST_CLASSES = 10_000
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
    for pattern in ("classes.txt", "obj.names", "*.names"):
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and any(_labels_of(one) is not None for one in pictures_below(folder)):
                return path
    for home in (folder, *sorted(path for path in folder.iterdir() if path.name.lower() in SPLIT_WORDS)):
        labels = home / "labels"
        if labels.is_dir() and (home / "images").is_dir() and any(labels.rglob("*.txt")):
            return labels / "classes.txt" if (labels / "classes.txt").is_file() else labels
    return None


def _yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(text_of(path))
    except (yaml.YAMLError, RecursionError) as error:
        raise PictureError(f"{path.name} must be YAML: {str(error).splitlines()[0]}; mend the file") from None
    return document if isinstance(document, dict) else {}


def read_yolo(folder: Path, described: Path, *, confined: bool = False) -> FoundSet:
    """Return the pictures of a YOLO data set; `confined`: of those below its own folder alone."""
    known, keypoints, pictures = _described(folder, described, confined=confined)
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
                shapes.append(_shape(line, names, grows=not known, keypoints=keypoints))
            except PictureError as error:
                problems.append(f"{labels.name if labels else path.name}:{number}: {error}; it was left out")
        place = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
        picture = FoundPicture(name=path.name, path=path, split=split, shapes=tuple(shapes), relative=True)
        found.append(sidecar.complete(picture, place, words))
    if keypoints and any(picture.shapes for picture in found):
        problems.append(
            f"{described.name}: objects have keypoints; their boxes were read, the points left out"
        )
    if not known and names:
        problems.append(
            f"labels are called by their numbers (0 to {len(names) - 1}), since no data.yaml names them"
        )
    categories = {picture.category for picture in found if picture.category is not None}
    return FoundSet(
        name=folder.name,
        format="yolo",
        pictures=tuple(found),
        labels=tuple(dict.fromkeys(names)),  # two numbers may have one name
        categories=in_order(sidecar.categories, categories),
        problems=tuple(problems),
    )


def _described(
    folder: Path, described: Path, *, confined: bool
) -> tuple[list[str], int, list[tuple[Path, Split | None]]]:
    """Return the names, how many numbers of keypoints follow each box, and the pictures with their splits."""
    names: list[str] = []
    keypoints = 0
    pictures: dict[Path, Split | None] = {}
    if described.suffix in (".yaml", ".yml"):
        document = _yaml(described)
        names, keypoints = _names(document["names"], described), _keypoints(document.get("kpt_shape"))
        root = described.parent / str(document.get("path") or ".")
        bounds = (folder,) if confined else (described.parent, root)
        for key, split in _KEYS.items():
            for path in _listed(document.get(key), root, described.parent, bounds):
                pictures.setdefault(path, SPLIT_WORDS[split])
    elif described.is_file():
        names = [line.strip() for line in text_of(described).splitlines() if line.strip()]
        for (
            word,
            split,
        ) in SPLIT_WORDS.items():  # Darknet's lists, whose paths begin at the folder above, or at data/
            for path in _listed(f"{word}.txt", folder, folder, (folder,)):
                pictures.setdefault(path, split)
    if not pictures:
        pictures = {path: split_of(path.relative_to(folder)) for path in pictures_below(folder)}
    return names, keypoints, list(pictures.items())


def _keypoints(given: Any) -> int:
    """Return how many numbers the keypoints of an object are, by `kpt_shape`: points and numbers a point."""
    if isinstance(given, list) and len(given) == 2 and all(isinstance(one, int) and one > 0 for one in given):
        return int(given[0] * given[1])
    return 0


def _names(given: Any, path: Path) -> list[str]:
    """Return the names by their numbers; a number without a name is its own."""
    if isinstance(given, list):
        return [str(name) for name in given]
    try:
        numbered = {int(key): str(name) for key, name in given.items()}
    except (TypeError, ValueError):
        raise PictureError(
            f"{path.name}: names must be a list or be numbered, got {str(given)[:60]}"
        ) from None
    if numbered and not (min(numbered) >= 0 and max(numbered) < _MOST_CLASSES):
        raise PictureError(
            f"{path.name}: names must be numbered from 0 to {_MOST_CLASSES - 1}, got {sorted(numbered)[:20]}"
        )
    return [numbered.get(number, str(number)) for number in range(max(numbered, default=-1) + 1)]


def _listed(given: Any, root: Path, home: Path, bounds: tuple[Path, ...]) -> list[Path]:
    """Return the pictures of one split: of a folder, of a list in a text file, or of several of those.

    What does not lie below one of the bounds is not there.
    """
    if isinstance(given, list):
        return [path for one in given for path in _listed(one, root, home, bounds)]
    if not isinstance(given, str):
        return []
    # Roboflow writes ../train/images for folders beside the file.
    tried = [root / given, home / given, home / given.removeprefix("../")]
    place = next((path for path in tried if _inside(path, bounds) and is_there(path)), None)
    if place is None:
        return []
    if place.is_dir():
        return [path for path in pictures_below(place) if _inside(path, bounds)]
    if place.suffix != ".txt" or not place.is_file():
        return []
    found = []
    for line in text_of(place).splitlines():
        named = Path(line.strip())
        tried = [place.parent / named, root / named, place.parent / Path(*named.parts[1:])]
        path = next(
            (one for one in tried if is_picture(one) and _inside(one, bounds) and is_there(one)), None
        )
        if path is not None:
            found.append(path)
    return found


def _inside(path: Path, bounds: tuple[Path, ...]) -> bool:
    try:
        whole = path.resolve()
    except (OSError, ValueError):  # a name that no file system takes
        return False
    return any(whole.is_relative_to(bound.resolve()) for bound in bounds)


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


def _shape(line: str, names: list[str], *, grows: bool, keypoints: int) -> LabelledShape:
    try:
        number, *values = line.split()
        place = int(number) if number.isdigit() else _whole(float(number))
        numbers = [float(value) for value in values]
    except ValueError:
        raise PictureError(f"a line must be a class and numbers, got {line[:60]!r}") from None
    if keypoints and len(numbers) >= 4 + keypoints:
        numbers = [*numbers[:4], *numbers[4 + keypoints :]]
    if grows and 0 <= place < _MOST_CLASSES:
        names.extend(str(missing) for missing in range(len(names), place + 1))
    if not 0 <= place < len(names):
        raise PictureError(f"a class must be from 0 to {len(names) - 1}, got {place}")
    if len(numbers) in (4, 5):
        x, y, width, height = numbers[:4]
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        return LabelledShape(
            label=names[place], box=box, confidence=numbers[4] if len(numbers) == 5 else None
        )
    if len(numbers) < 6:
        raise PictureError(
            f"a line must have 4 numbers or the points of a polygon, got {len(numbers)} numbers"
        )
    confidence = numbers.pop() if len(numbers) % 2 else None
    ring = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return LabelledShape(label=names[place], box=union_box(ring), polygons=(ring,), confidence=confidence)


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError(number)
    return int(number)


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
