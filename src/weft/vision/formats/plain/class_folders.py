"""Class folders: a folder for each category, below folders for the splits where there are some.

flowers/rose/1.jpg                    flowers/train/rose/1.jpg, or flowers/rose/train/1.jpg

Pictures in `ground_truth` or `masks` are no pictures of the set: each is the mask of another one, as MVTec AD has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from weft.vision.formats.exporting import Exporter
from weft.vision.formats.found import FoundPicture, FoundSet, in_order, pictures_below, split_of
from weft.vision.formats.plain.layout import CONTAINERS, PicturePlace, places_of, shared_names
from weft.vision.formats.plain.masks import with_masks
from weft.vision.formats.sidecar import Sidecar, read_sidecar, record_of, write_sidecar
from weft.vision.records import DatasetVersion

_PLAIN = " !#$&'()+,;=@[]{}~^-_."  # characters of a category that a folder's name may have, beside letters
_MOST_TOLD = 5


def read_class_folders(folder: Path) -> FoundSet:
    """Return the pictures below a folder; the category of each is the folder that it is in."""
    sidecar = read_sidecar(folder)
    paths = list(pictures_below(folder))
    recorded = _recorded(paths, folder, sidecar)
    plain = [FoundPicture(name=path.name, path=path) for path in paths if path not in recorded]
    pictures, problems = _placed(plain, folder, sidecar)
    by_path = {**recorded, **{one.path: one for one in pictures}}
    found = [by_path[path] for path in paths if path in by_path]
    used = {picture.category for picture in found if picture.category is not None}
    labels = {shape.label for picture in found for shape in picture.shapes}
    return FoundSet(
        name=folder.name,
        format="folders",
        pictures=tuple(found),
        categories=in_order(sidecar.categories, used),
        labels=in_order(sidecar.labels, labels),
        problems=tuple(problems),
    )


def _recorded(paths: Iterable[Path], folder: Path, sidecar: Sidecar) -> dict[Path, FoundPicture]:
    """Return the pictures that an export has a record of: nothing about them is left to their folders' names."""
    found = {}
    for path in paths:
        place = path.relative_to(folder)
        plain = FoundPicture(name=path.name, path=path, split=split_of(Path(*place.parts[:1])))
        whole = sidecar.complete(plain, place.as_posix(), _folder_said(place))
        if whole is not plain:
            found[path] = whole
    return found


def _placed(
    plain: Sequence[FoundPicture], folder: Path, sidecar: Sidecar
) -> tuple[list[FoundPicture], list[str]]:
    """Return pictures with the splits, the categories and the masks that their folders' names tell."""
    pictures, problems = with_masks(plain, folder)
    inside = {one.path: one.path.relative_to(folder).parts[:-1] for one in pictures}
    places = places_of(inside.values())
    placed = [replace(one, split=places[inside[one.path]].split) for one in pictures]
    if not _is_container(places.values(), sidecar):
        placed = [_of_category(one, places[inside[one.path]].category) for one in placed]
        problems = [*problems, *_ambiguous(list(places.values()))]
    return placed, problems


def _is_container(places: Iterable[PicturePlace], sidecar: Sidecar) -> bool:
    names = {place.category for place in places if place.category is not None}
    return len(names) == 1 and min(names).lower() in CONTAINERS and not sidecar.categories


def _ambiguous(places: Sequence[PicturePlace]) -> list[str]:
    return [
        f"{name} is the name of several folders ({', '.join(homes[:3])}): their pictures have one category; "
        "rename folders that are to be told apart"
        for name, homes in list(shared_names(places).items())[:_MOST_TOLD]
    ]


def _of_category(picture: FoundPicture, category: str | None) -> FoundPicture:
    """Return a picture of a category; its masks are of that, too, where there is one."""
    if category is None:
        return picture
    shapes = tuple(replace(shape, label=category) for shape in picture.shapes)
    return replace(picture, category=category, shapes=shapes)


def _folder_said(place: Path) -> str:
    """Return the folder below the one of the split, which an export names by the category."""
    return place.parts[1] if len(place.parts) > 2 else ""


def write_class_folders(version: DatasetVersion, folder: Path) -> None:
    """Write each picture into the folder of its category, below the one of its split."""
    exporter = Exporter(folder)
    records = {}
    for picture in version.pictures:
        below: str = picture.split
        if picture.category is not None:
            below += "/" + folder_name(picture.category)
        place = exporter.put(picture, below)
        records[place] = record_of(picture, Path(place).name, _folder_said(Path(place)))
    write_sidecar(folder, records, version.labels, version.categories)


def folder_name(category: str) -> str:
    """Return a category as the name of a folder; characters that a folder must not have are escaped by percent."""
    name = quote(category, safe=_PLAIN + "".join(filter(str.isalnum, category)))
    return "%2E" + name[1:] if name.startswith(".") else name
