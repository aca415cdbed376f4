"""The layout of folders: which of their names tell a split, which a class, and which only what is in them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from weft.vision.formats.found import SPLIT_WORDS
from weft.vision.records import Split

Folders = tuple[str, ...]  # the names of the folders that a picture is in, the outermost first

# Names of a folder that say what is in it, and not of what class it is, when it is the only one.
CONTAINERS = frozenset(
    [
        "images",
        "image",
        "imgs",
        "img",
        "pictures",
        "pics",
        "photos",
        "data",
        "dataset",
        "jpegimages",
        "frames",
        "unlabelled",
        "unlabeled",
    ]
)
MASK_FOLDERS = frozenset(("ground_truth", "groundtruth"))
# Names of masks' folders beside a folder `images`; elsewhere they may be classes, as `mask` beside `no mask`.
MASKS_BESIDE = frozenset(("masks", "mask", "labels", "label", "annotations", "annotation", "gt"))


@dataclass(frozen=True)
class PicturePlace:
    """The place of a picture: its split and its class, by the folders it lies in."""

    split: Split | None
    folders: Folders  # those that name no split

    @property
    def category(self) -> str | None:
        return self.folders[-1] if self.folders else None


def places_of(found: Iterable[Folders]) -> dict[Folders, PicturePlace]:
    """Return what each folder with pictures tells, given all of them.

    A folder named as a split is one if it has folders in it, or if all beside it are named so: `train/rose` and
    `rose/train` are splits, `train` beside `car` and `bus` is a class.
    """
    there = set(found)
    inner = folders_within(there)
    splits = {one for inside in inner.values() for one in inside if _is_split(one, inner)}
    return {folders: _place(folders, splits) for folders in there}


def folders_within(found: Iterable[Folders]) -> dict[Folders, set[Folders]]:
    """Return the folders in each folder, given those with pictures."""
    inner: dict[Folders, set[Folders]] = defaultdict(set)
    for folders in found:
        for depth in range(1, len(folders) + 1):
            inner[folders[: depth - 1]].add(folders[:depth])
    return dict(inner)


def mask_folders(found: Iterable[Folders]) -> set[Folders]:
    """Return the folders that hold masks of pictures, given all folders with pictures."""
    masks = set()
    for inside in folders_within(found).values():
        names = {one[-1].lower() for one in inside}
        known = MASK_FOLDERS | MASKS_BESIDE if names & CONTAINERS else MASK_FOLDERS
        masks |= {one for one in inside if one[-1].lower() in known}
    return masks


def _is_split(folders: Folders, inner: Mapping[Folders, set[Folders]]) -> bool:
    if folders[-1].lower() not in SPLIT_WORDS:
        return False
    names = {one[-1].lower() for one in inner[folders[:-1]]}
    return folders in inner or not names - set(SPLIT_WORDS) - CONTAINERS


def _place(folders: Folders, splits: set[Folders]) -> PicturePlace:
    split: Split | None = None
    kept = []
    for depth in range(1, len(folders) + 1):
        if folders[:depth] in splits:
            split = SPLIT_WORDS[folders[depth - 1].lower()]
        else:
            kept.append(folders[depth - 1])
    return PicturePlace(split, tuple(kept))


def shared_names(places: Iterable[PicturePlace]) -> dict[str, tuple[str, ...]]:
    """Return the categories that several folders name, each with its folders."""
    found: dict[str, set[str]] = defaultdict(set)
    for place in places:
        if place.category is not None:
            found[place.category].add("/".join(place.folders))
    return {name: tuple(sorted(homes)) for name, homes in sorted(found.items()) if len(homes) > 1}
