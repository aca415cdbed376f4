"""Tables of labels: a CSV whose first line names a column of pictures, one of classes, and four of boxes where known.

filename,class                        filename,width,height,class,xmin,ymin,xmax,ymax         image,cat,dog
a.jpg,dog                             a.jpg,640,480,dog,10,20,110,220                         a.jpg,0,1
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weft.errors import PictureError
from weft.vision.formats.found import (
    SPLIT_WORDS,
    FoundPicture,
    FoundSet,
    in_order,
    pictures_below,
    split_of,
    text_of,
)
from weft.vision.formats.plain.naming import PictureNames
from weft.vision.records import LabelledShape

# Names of columns, in small letters, the surest first.
_PICTURES = (
    "filename",
    "filepaths",
    "file_name",
    "image_path",
    "filepath",
    "image_name",
    "file",
    "image",
    "img",
    "path",
    "picture",
    "image_id",
    "imageid",
    "id",
    "name",
)
_CLASSES = (
    "class",
    "class_name",
    "classname",
    "label",
    "labels",
    "category",
    "label_name",
    "labelname",
    "target",
    "species",
    "breed",
    "dx",
    "diagnosis",
)
_SPLITS = ("split", "subset", "partition", "set", "dataset", "data set", "data_set")
_SIDES = tuple(
    tuple(names.split())
    for names in ("xmin x_min x1 left", "ymin y_min y1 top", "xmax x_max x2 right", "ymax y_max y2 bottom")
)
_ENOUGH = 0.5  # share of the rows of a table whose pictures are there
_MOST_TOLD = 5


@dataclass(frozen=True)
class LabelTable:
    """A table that names pictures and what is on them, by the names of its columns."""

    path: Path
    picture: str
    label: str | None  # None: a column for each class, with 1 in that of the picture
    split: str | None = None
    sides: tuple[str, ...] = ()
    one_hot: tuple[str, ...] = ()
    rows: tuple[Mapping[str, str], ...] = ()


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table by the names of its columns, whichever sign parts them; none for another file."""
    try:
        lines = text_of(path).splitlines()
    except PictureError:
        return []
    if not lines:
        return []
    delimiter = max(",;\t", key=lines[0].count)
    try:
        rows = list(csv.DictReader(lines, delimiter=delimiter))
    except csv.Error:
        return []
    return [
        {key: value.strip() for key, value in row.items() if isinstance(key, str) and isinstance(value, str)}
        for row in rows
    ]


def read_table(path: Path) -> LabelTable | None:
    """Return a table of labels; None for one that names no pictures or no classes."""
    rows = rows_of(path)
    names = {name.strip().lower(): name for name in (rows[0] if rows else ())}

    def column(*known: str) -> str | None:
        return next((names[name] for name in known if name in names), None)

    picture, label, split = column(*_PICTURES), column(*_CLASSES), column(*_SPLITS)
    if picture is None:
        return None
    sides = tuple(column(*known) or "" for known in _SIDES)
    others = [name for name in names.values() if name not in (picture, split)]
    one_hot = _one_hot(rows, others) if label is None else ()
    if label is None and not one_hot:
        return None
    return LabelTable(path, picture, label, split, sides if all(sides) else (), one_hot, tuple(rows))


def _one_hot(rows: Sequence[Mapping[str, str]], names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of classes where all but that of the pictures have nothing but 0 and 1."""
    whole = len(names) > 1 and all(
        row.get(name) in ("0", "1", "0.0", "1.0") for row in rows for name in names
    )
    return tuple(names) if whole else ()


def read_tables(folder: Path, paths: Iterable[Path]) -> FoundSet | None:
    """Return the data set that tables below a folder describe; None where they name no pictures of it."""
    tables = [table for table in map(read_table, paths) if table is not None]
    if not tables:
        return None
    pictures = {one: FoundPicture(name=one.name, path=one) for one in pictures_below(folder)}
    places = PictureNames(pictures)
    problems: list[str] = []
    named = sum([_take(table, places, pictures, problems) for table in tables])
    if named < _ENOUGH * sum(len(table.rows) for table in tables) or not named:
        return None
    inside = {path: path.relative_to(folder) for path in pictures}
    found = tuple(
        replace(one, split=one.split or split_of(inside[path].parent)) for path, one in pictures.items()
    )
    categories = {one.category for one in found if one.category is not None}
    labels = {shape.label for one in found for shape in one.shapes}
    return FoundSet(
        name=folder.name,
        format="csv",
        pictures=found,
        labels=in_order((), labels),
        categories=in_order((), categories),
        problems=tuple(_shortened(problems)),
    )


def _take(
    table: LabelTable, places: PictureNames, pictures: dict[Path, FoundPicture], problems: list[str]
) -> int:
    """Put what a table says into the pictures; return how many of its rows have pictures."""
    named = 0
    for number, row in enumerate(table.rows, 2):
        path = places.find(row.get(table.picture, ""), table.path)
        if path is None:
            problems.append(
                f"{table.path.name}:{number}: the picture {row.get(table.picture, '')[:100]!r} is not there"
            )
            continue
        named += 1
        try:
            pictures[path] = _labelled(table, row, pictures[path])
        except (PictureError, ValueError) as error:
            problems.append(f"{table.path.name}:{number}: {error}; the line was left out")
    return named


def _labelled(table: LabelTable, row: Mapping[str, str], picture: FoundPicture) -> FoundPicture:
    """Return a picture with what a row says of it."""
    split = SPLIT_WORDS.get(row.get(table.split or "", "").lower())
    picture = replace(picture, split=split or picture.split)
    if table.sides and any(row.get(side) for side in table.sides):
        return _boxed(table, row, picture)
    category = row.get(table.label, "") if table.label is not None else _marked(table, row)
    if not category:
        return picture
    if picture.category not in (None, category):
        raise PictureError(f"a picture must have one category, got {picture.category} and {category}")
    return replace(picture, category=category)


def _marked(table: LabelTable, row: Mapping[str, str]) -> str:
    names = [name.strip() for name in table.one_hot if float(row.get(name) or 0) == 1]
    if len(names) > 1:
        raise PictureError(f"a picture must have one category, got {', '.join(names)}")
    return names[0] if names else ""


def _boxed(table: LabelTable, row: Mapping[str, str], picture: FoundPicture) -> FoundPicture:
    left, top, right, bottom = (float(row.get(side) or "nan") for side in table.sides)
    label = row.get(table.label or "", "") or "object"
    relative = min(left, top, right, bottom) >= 0 and max(left, top, right, bottom) <= 1
    if picture.shapes and picture.relative != relative:
        raise PictureError("all boxes of a picture must be in pixels, or in shares of its sides")
    sizes = [row.get(name, "") for name in ("width", "height")]
    size = (int(sizes[0]), int(sizes[1])) if all(one.isdecimal() for one in sizes) else picture.size
    shape = LabelledShape(label=label, box=(left, top, right, bottom))
    return replace(picture, shapes=(*picture.shapes, shape), relative=relative, size=size)


def _shortened(problems: Sequence[str]) -> list[str]:
    rest = len(problems) - _MOST_TOLD
    return [*problems[:_MOST_TOLD], *([f"and {rest} more lines of tables"] if rest > 0 else [])]
