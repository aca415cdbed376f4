"""Class folders: a folder for each category, below folders for the splits where there are some.

flowers/rose/1.jpg                    flowers/train/rose/1.jpg
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from weft.vision.formats.exporting import Exporter
from weft.vision.formats.found import SPLIT_WORDS, FoundPicture, FoundSet, in_order, pictures_below
from weft.vision.formats.sidecar import read_sidecar, record_of, write_sidecar
from weft.vision.records import DatasetVersion, Split

_PLAIN = " !#$&'()+,;=@[]{}~^-_."  # characters of a category that a folder's name may have, beside letters
# Names of a folder that say what is in it, and not of what class it is, when it is the only one.
CONTAINERS = frozenset(
    ("images", "imgs", "img", "pictures", "pics", "photos", "data", "dataset", "jpegimages", "frames")
    + ("unlabelled", "unlabeled")
)


def read_class_folders(folder: Path) -> FoundSet:
    """Return the pictures below a folder; the category of each is the folder that it is in."""
    sidecar = read_sidecar(folder)
    found = []
    for path in pictures_below(folder):
        place = path.relative_to(folder)
        split, category = _place(place)
        picture = FoundPicture(name=path.name, path=path, split=split, category=category)
        found.append(sidecar.complete(picture, place.as_posix(), category or ""))
    used = {picture.category for picture in found if picture.category is not None}
    if len(used) == 1 and min(used).lower() in CONTAINERS and not sidecar.categories:
        found, used = [replace(picture, category=None) for picture in found], set()
    labels = {shape.label for picture in found for shape in picture.shapes}
    return FoundSet(
        name=folder.name,
        format="folders",
        pictures=tuple(found),
        categories=in_order(sidecar.categories, used),
        labels=in_order(sidecar.labels, labels),
    )


def _place(place: Path) -> tuple[Split | None, str | None]:
    folders = place.parts[:-1]
    split = SPLIT_WORDS.get(folders[0].lower()) if folders else None
    if split is not None:
        folders = folders[1:]
    return split, folders[-1] if folders else None


def write_class_folders(version: DatasetVersion, folder: Path) -> None:
    """Write each picture into the folder of its category, below the one of its split."""
    exporter = Exporter(folder)
    records = {}
    for picture in version.pictures:
        below: str = picture.split
        if picture.category is not None:
            below += "/" + folder_name(picture.category)
        place = exporter.put(picture, below)
        said = Path(place).parts[1] if picture.category is not None else ""
        records[place] = record_of(picture, Path(place).name, said)
    write_sidecar(folder, records, version.labels, version.categories)


def folder_name(category: str) -> str:
    """Return a category as the name of a folder; characters that a folder must not have are escaped by percent."""
    name = quote(category, safe=_PLAIN + "".join(filter(str.isalnum, category)))
    return "%2E" + name[1:] if name.startswith(".") else name
