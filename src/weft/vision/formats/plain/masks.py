"""Masks as pictures: what is not black in `masks/1.png` or `ground_truth/hole/1_mask.png` is an object of picture 1."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from weft.errors import PictureError
from weft.vision.formats.found import FoundPicture
from weft.vision.formats.plain.layout import CONTAINERS, MASK_FOLDERS, MASKS_BESIDE, Folders, mask_folders
from weft.vision.geometry.masks import encode_mask, mask_box
from weft.vision.records import LabelledShape

LABEL = "object"  # of a mask whose picture has no category
_ENDINGS = ("_mask", "-mask", "_gt", "_seg", "_segmentation")
_MOST_TOLD = 5


@dataclass(frozen=True)
class MaskPairs:
    """Pictures of a folder with the masks that are of them."""

    pictures: tuple[FoundPicture, ...]
    masks: dict[Path, list[Path]] = field(default_factory=dict)  # by the picture's path
    alone: tuple[Path, ...] = ()  # masks of no picture


def with_masks(found: Sequence[FoundPicture], folder: Path) -> tuple[list[FoundPicture], list[str]]:
    """Return the pictures that are no masks, with shapes of those that are theirs, and what could not be used."""
    pairs = pair_masks(found, folder)
    problems: list[str] = []
    pictures = [_with_shapes(one, pairs.masks.get(one.path, ()), problems) for one in pairs.pictures]
    if pairs.alone:
        problems.append(
            f"masks must be named as the pictures they are of, got {len(pairs.alone)} of none, as "
            f"{pairs.alone[0].name}; they were left out"
        )
    if len(problems) > _MOST_TOLD:
        problems = [*problems[:_MOST_TOLD], f"and {len(problems) - _MOST_TOLD} more masks were left out"]
    return pictures, problems


def pair_masks(found: Sequence[FoundPicture], folder: Path) -> MaskPairs:
    """Return which of the pictures below a folder are masks of others; the folder of masks must be beside pictures."""
    inside = {one.path: one.path.relative_to(folder).parts[:-1] for one in found}
    homes = mask_folders(inside.values())
    masks = [one for one in found if _is_below(inside[one.path], homes)]
    pictures = [one for one in found if not _is_below(inside[one.path], homes)]
    if not pictures or not masks:
        return MaskPairs(tuple(found))
    by_stem: dict[str, list[FoundPicture]] = defaultdict(list)
    for one in pictures:
        by_stem[one.path.stem].append(one)
    pairs: dict[Path, list[Path]] = defaultdict(list)
    alone = []
    for mask in masks:
        named = by_stem.get(mask.path.stem) or by_stem.get(_without_ending(mask.path.stem)) or []
        picture = _closest(mask.path, [one.path for one in named], folder)
        if picture is None:
            alone.append(mask.path)
        else:
            pairs[picture].append(mask.path)
    return MaskPairs(tuple(pictures), dict(pairs), tuple(alone))


def _is_below(folders: Folders, homes: set[Folders]) -> bool:
    return any(folders[:depth] in homes for depth in range(1, len(folders) + 1))


def _without_ending(stem: str) -> str:
    return next((stem.removesuffix(ending) for ending in _ENDINGS if stem.lower().endswith(ending)), stem)


def _closest(mask: Path, named: Sequence[Path], folder: Path) -> Path | None:
    """Return the picture whose folders are those of a mask, but for the one of masks; several may have its name."""

    def folders(path: Path) -> frozenset[str]:
        names = {part.lower() for part in path.relative_to(folder).parts[:-1]}
        return frozenset(names - MASK_FOLDERS - MASKS_BESIDE - CONTAINERS)

    wanted = folders(mask)
    fitting = [one for one in named if wanted <= folders(one)]
    return fitting[0] if len(fitting) == 1 else None


def _with_shapes(picture: FoundPicture, masks: Sequence[Path], problems: list[str]) -> FoundPicture:
    shapes = []
    for path in masks:
        try:
            shape, size = _shape(path)
        except PictureError as error:
            problems.append(f"{error}; the mask was left out")
            continue
        if picture.size not in (None, size):
            problems.append(f"the masks of {picture.name} must have one size; {path.name} was left out")
            continue
        picture = replace(picture, size=size)
        if shape is not None:
            shapes.append(shape)
    return replace(picture, shapes=(*picture.shapes, *shapes))


def _shape(path: Path) -> tuple[LabelledShape | None, tuple[int, int]]:
    """Return a mask as a shape, and its width and height; a mask that is all black has none."""
    from weft.vision.pictures import decode

    pixels = decode(path)
    size = (pixels.shape[1], pixels.shape[0])
    lit = np.asarray(pixels.max(2))
    values = np.unique(lit[lit > 0])
    # JPEGs of masks have greys at edges; a few values apart are numbers of classes.
    if path.suffix.lower() not in (".jpg", ".jpeg") and not _is_binary(pixels, values.size):
        raise PictureError(f"{path.name} must be black and one colour to be a mask, got {values.size} levels")
    mask = encode_mask((lit > (values.max() // 2 if values.size else 0)).astype(np.uint8))
    box = mask_box(mask)
    return (LabelledShape(label=LABEL, box=box, mask=mask) if box is not None else None), size


def _is_binary(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], levels: int) -> bool:
    """Return whether pixels are black and one colour, or greys between black and white as of smooth edges."""
    if levels <= 1:
        return len(np.unique(pixels.reshape(-1, 3), axis=0)) <= 2
    grey = bool((pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all())
    extreme = (pixels[..., 0] < 32) | (pixels[..., 0] > 223)
    return grey and bool(extreme.mean() > 0.8) and bool((pixels > 223).any())
