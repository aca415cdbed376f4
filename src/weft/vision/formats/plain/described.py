"""Files of labels that describe many pictures each, as labelling programs export them: one reader for each program.

A reader is pure: it takes a parsed file and returns what that says of each picture, or None if the file is not its
program's. What does not name a picture that is there is told.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.errors import PictureError
from weft.text import plural
from weft.vision.formats.found import (
    LARGEST_JSON,
    FoundPicture,
    FoundSet,
    in_order,
    pictures_below,
    split_of,
    text_of,
)
from weft.vision.formats.plain import createml, cvat, label_studio, via
from weft.vision.formats.plain.naming import PictureLabels, PictureNames
from weft.vision.formats.plain.tables import rows_of
from weft.vision.formats.xml_labels import parse_xml

_MOST_TOLD = 5  # problems of each file
_HEAD = 4096  # bytes of an XML file that tell its program


Reader = Callable[[Any], Sequence[PictureLabels] | None]


def read_described(folder: Path, paths: Iterable[Path]) -> FoundSet | None:
    """Return the pictures below a folder with the labels of those files that a known program wrote; None for none."""
    known = [(path, program, labels) for path in paths for program, labels in _labels(path)]
    if not known:
        return None
    pictures = {one: FoundPicture(name=one.name, path=one) for one in pictures_below(folder)}
    names = PictureNames(pictures)
    problems: list[str] = []
    for path, _, labels in known:
        taken = list(_taken(path, labels, names, pictures))
        problems += taken[:_MOST_TOLD]
        if len(taken) > _MOST_TOLD:
            problems.append(f"{path.name}: and {len(taken) - _MOST_TOLD} more of this kind")
    found = [
        replace(one, split=one.split or split_of(path.relative_to(folder).parent))
        for path, one in pictures.items()
    ]
    labels_used = {shape.label for one in found for shape in one.shapes}
    return FoundSet(
        name=folder.name,
        format=known[0][1],
        pictures=tuple(found),
        labels=in_order((), labels_used),
        categories=in_order((), {one.category for one in found if one.category is not None}),
        problems=tuple(problems),
    )


def _labels(path: Path) -> Iterator[tuple[str, Sequence[PictureLabels]]]:
    """Yield the program that wrote a file, and what the file says; nothing for a file of another kind."""
    opened, readers = _READERS[path.suffix.lower()]
    document = opened(path)
    for program, reader in readers.items():
        if document is not None and (found := reader(document)) is not None:
            yield program, found
            return


def _json(path: Path) -> Any:
    try:
        return json.loads(text_of(path, LARGEST_JSON))
    except (PictureError, ValueError, RecursionError):
        return None


def _xml(path: Path) -> ET.Element | None:
    with path.open("rb") as file:
        if b"<annotations" not in file.read(_HEAD):
            return None
    try:
        return parse_xml(path)
    except PictureError:
        return None


_READERS: dict[str, tuple[Callable[[Path], Any], dict[str, Reader]]] = {
    ".json": (
        _json,
        {
            "label-studio": label_studio.picture_labels,
            "via": via.picture_labels,
            "createml": createml.picture_labels,
        },
    ),
    ".xml": (_xml, {"cvat": cvat.picture_labels}),
    ".csv": (rows_of, {"via": via.row_labels}),
}


def _taken(
    path: Path, labels: Sequence[PictureLabels], names: PictureNames, pictures: dict[Path, FoundPicture]
) -> Iterator[str]:
    """Put what a file says into the pictures that it names; yield a sentence for what could not be used."""
    lost = []
    for one in labels:
        place = names.find_address(one.name, path)
        if place is None:
            lost.append(one.name)
            continue
        yield from (f"{path.name}: {place.name}: {problem}" for problem in one.problems)
        before = pictures[place]
        pictures[place] = replace(
            before,
            shapes=(*before.shapes, *one.shapes),
            category=one.category or before.category,
            split=one.split or before.split,
            size=one.size or before.size,
            relative=one.relative or before.relative,
        )
    if lost:
        yield (
            f"{path.name}: {plural(len(lost), 'picture')} with labels must be beside it, got none named "
            f"{lost[0][:100]!r}; put the pictures into the folder"
        )
