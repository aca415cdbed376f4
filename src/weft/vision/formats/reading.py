"""Reading of any supported format: what it is, is decided by what is there, never by what it is called."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from weft.errors import PictureError
from weft.files import cache_folder, drafting
from weft.vision.formats.archives import ZipLimits, unpack
from weft.vision.formats.coco import is_coco, read_coco
from weft.vision.formats.digest import digest_of
from weft.vision.formats.found import (
    SPLIT_WORDS,
    FoundPicture,
    FoundSet,
    in_order,
    is_litter,
    is_picture,
    unread_pictures,
)
from weft.vision.formats.ibm import PROPERTIES, read_ibm
from weft.vision.formats.plain.class_folders import read_class_folders
from weft.vision.formats.plain.described import read_described
from weft.vision.formats.plain.labelme import read_labelme
from weft.vision.formats.plain.tables import read_tables
from weft.vision.formats.voc import read_voc
from weft.vision.formats.yolo import find_yolo, in_pixels, read_yolo
from weft.vision.geometry.affine import Affine
from weft.vision.geometry.moving import move_shape
from weft.vision.geometry.validity import within_picture
from weft.vision.pictures.encoded import read_encoded
from weft.vision.pictures.headers import MAX_PIXELS, PictureHeader, read_header
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape, RunLengths
from weft.vision.splits import split_by_content

_log = logging.getLogger("weft.vision")
_PAPERS = re.compile(
    r"(readme|license|licence|copying|citation|notice)\b.*|.*\.(md|pdf|html?)$", re.IGNORECASE
)
_MOST_DESCRIPTIONS = 12  # files of one kind that describe many pictures each
_MOST_WARNINGS = 5  # that are printed; the rest is counted
SAME_RATIO = 0.02  # by which the scales of width and height differ where a picture was made smaller or larger


def read(path: str | Path, problems: list[str] | None = None) -> DatasetVersion:
    """Return the data set in a folder, a file or a zip, whichever format it has.

    Pictures and labels that cannot be used are left out; a sentence for each goes into `problems`, or into the log.
    """
    all_problems: list[str] = [] if problems is None else problems
    found = scan(path)
    all_problems.extend(found.problems)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        pictures = tuple(_opened(pool, found, all_problems))
    if not pictures:
        reason = f": {all_problems[0]}" if all_problems else ""
        raise PictureError(f"{path} must have pictures that can be read, got none{reason}")
    if problems is None:
        for problem in all_problems[:_MOST_WARNINGS]:
            _log.warning("%s", problem)
        if len(all_problems) > _MOST_WARNINGS:
            _log.warning(
                "and %d more; formats.read(path, problems=[]) tells them all",
                len(all_problems) - _MOST_WARNINGS,
            )
    used = {shape.label for picture in pictures for shape in picture.shapes}
    version = DatasetVersion(
        name=found.name,
        number=0,
        digest="",
        pictures=pictures,
        categories=found.categories,
        labels=in_order(found.labels, used),
    )
    return replace(version, digest=digest_of(version))


def scan(path: str | Path, limits: ZipLimits | None = None) -> FoundSet:
    """Return what a folder, a file or a zip has, without opening a picture; a zip is unpacked into the cache."""
    path = Path(path)
    if not path.exists():
        raise PictureError(
            f"{path} must be a folder, a zip or a file of labels; there is none; check the path"
        )
    if path.is_dir():
        return scan_folder(path)
    if path.suffix.lower() == ".zip":
        return replace(scan_folder(unpacked(path, limits), confined=True), name=path.stem)
    if path.suffix.lower() == ".json" and is_coco(path):
        return replace(read_coco(path.parent, [path]), name=path.stem)
    if path.suffix.lower() in (".yaml", ".yml"):
        return replace(read_yolo(path.parent, path), name=path.parent.name)
    if path.suffix.lower() in (".json", ".xml", ".csv"):
        found = read_described(path.parent, [path])
        if found is None and path.suffix.lower() == ".csv":
            found = read_tables(path.parent, [path])
        if found is not None:
            return replace(found, name=path.stem)
    raise PictureError(
        f"{path.name} must be a folder, a .zip, YOLO's .yaml, or labels in a .json, .xml or .csv of a known program; "
        "got none of them; name the folder"
    )


def unpacked(archive: Path, limits: ZipLimits | None = None) -> Path:
    """Return the folder that a zip was unpacked into: whole, and the same one for the same bytes."""
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    home = cache_folder("vision-zips")
    folder = home / digest
    if folder.is_dir():
        return folder
    home.mkdir(parents=True, exist_ok=True)
    with drafting(home) as draft:
        unpack(archive, draft, limits)
        try:
            draft.rename(folder)
        except OSError:  # somebody else was quicker
            if not folder.is_dir():
                raise
    return folder


def scan_folder(folder: Path, *, confined: bool = False) -> FoundSet:
    """Return what a folder has, by its format; a `confined` one is a stranger's, and names no files outside."""
    folder = _innermost(folder)
    found = _scanned(folder, confined)
    return replace(found, problems=(*found.problems, *unread_pictures(folder)))


def _scanned(folder: Path, confined: bool) -> FoundSet:
    if (folder / PROPERTIES).is_file():
        return read_ibm(folder)
    names = find_yolo(folder)
    if names is not None:
        return read_yolo(folder, names, confined=confined)
    coco = [path for path in _near(folder, ".json") if is_coco(path)]
    if coco:
        return read_coco(folder, coco)
    described = read_described(folder, _descriptions(folder))
    if described is not None:
        return described
    if (folder / "Annotations").is_dir() or any(True for _ in _near(folder, ".xml")):
        return read_voc(folder)
    tables = list(_near(folder, ".csv"))
    found = read_labelme(folder) or read_tables(folder, tables)
    if found is not None:
        return found
    unread = [
        f"{path.name} must name pictures that are there and a class of each (filename,class) to be read as labels; "
        "it was left out"
        for path in tables[:_MOST_WARNINGS]
    ]
    unread += [
        f"{path.name} must be labels of COCO, LabelMe, Label Studio, VIA or Create ML to be read; it was left out"
        for path in islice(_near(folder, ".json"), _MOST_WARNINGS)
    ]
    found = read_class_folders(folder)
    return replace(found, problems=(*found.problems, *unread))


def _descriptions(folder: Path) -> Iterator[Path]:
    """Yield files that may describe many pictures each; where there are more, each is about one picture."""
    for suffix in (".json", ".xml", ".csv"):
        yield from islice(_near(folder, suffix), _MOST_DESCRIPTIONS)


def _innermost(folder: Path) -> Path:
    """Return the folder below those that hold nothing but one folder, as zips of a folder do, and papers about it."""
    for _ in range(4):
        inner = [path for path in folder.iterdir() if not is_litter(path.name)]
        inner = [path for path in inner if path.is_dir() or not _PAPERS.match(path.name)]
        if len(inner) != 1 or not inner[0].is_dir() or inner[0].is_symlink():
            break
        if inner[0].name.lower() in SPLIT_WORDS:
            break
        if any(is_picture(path) for path in inner[0].iterdir()) and not any(
            path.suffix in (".json", ".xml") for path in inner[0].iterdir()
        ):
            break  # one class folder, whose name counts
        folder = inner[0]
    return folder


def _near(folder: Path, suffix: str, depth: int = 3) -> Iterator[Path]:
    """Yield the files with an ending that are not far below a folder."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_file() and path.suffix.lower() == suffix and path.name != "weft.json":
            yield path
        elif depth > 1 and path.is_dir() and not path.is_symlink():
            yield from _near(path, suffix, depth - 1)


@dataclass(frozen=True)
class _Opened:
    header: PictureHeader
    sha256: str


def _open(path: Path) -> _Opened | PictureError:
    try:
        data = read_encoded(path)
        return _Opened(read_header(data, path.name), hashlib.sha256(data).hexdigest())
    except PictureError as error:
        return error


def _opened(pool: ThreadPoolExecutor, found: FoundSet, problems: list[str]) -> Iterator[LabelledPicture]:
    no_splits = all(picture.split is None for picture in found.pictures)
    ids: set[str] = set()
    opened = pool.map(_open, [picture.path for picture in found.pictures])
    for picture, result in zip(found.pictures, opened, strict=True):
        if isinstance(result, PictureError):
            problems.append(str(result))
            continue
        header, sha256 = result.header, result.sha256
        identity = picture.id or sha256[:32]
        number = 1
        while identity in ids:
            number += 1
            identity = f"{picture.id or sha256[:32]}-{number}"
        ids.add(identity)
        yield LabelledPicture(
            id=identity,
            name=picture.name,
            path=picture.path,
            width=header.width,
            height=header.height,
            sha256=sha256,
            split=split_by_content(sha256) if no_splits else picture.split or "train",
            category=picture.category,
            category_confidence=picture.category_confidence,
            shapes=placed_shapes(picture, header, problems),
            metadata={**header.exif, **picture.metadata},
            film=picture.film,
            time_s=picture.time_s,
        )


def placed_shapes(
    picture: FoundPicture, header: PictureHeader, problems: list[str]
) -> tuple[LabelledShape, ...]:
    """Return the shapes of a found picture in pixels of the upright picture; what had to be changed is told."""
    kept = []
    drawn_on = _drawn_on(picture, header, problems)
    for shape in picture.shapes:
        if picture.relative:
            shape = in_pixels(shape, header.width, header.height)
        moved: LabelledShape | None = shape
        if drawn_on is not None and (shape.mask is None or _sides(shape.mask) == picture.size):
            moved = move_shape(shape, drawn_on, header.width, header.height)
        if moved is None:
            continue
        whole, problem = within_picture(moved, header.width, header.height)
        if problem is not None:
            problems.append(f"{picture.name}: {problem}")
        if whole is not None:
            kept.append(whole)
    return tuple(kept)


def _sides(mask: RunLengths) -> tuple[int, int]:
    return mask.width, mask.height


def _drawn_on(picture: FoundPicture, header: PictureHeader, problems: list[str]) -> Affine | None:
    """Return the map from the picture that labels were drawn on, or None where it is this one, upright."""
    size, upright = picture.size, (header.width, header.height)
    if size is None or size == upright or not picture.shapes or picture.relative:
        return None
    turn = _turn(picture, header)
    if turn is not None:
        return turn
    across, down = upright[0] / max(size[0], 1), upright[1] / max(size[1], 1)
    text = f"{picture.name}: labels must be of a picture of {upright[0]} x {upright[1]}, got {size[0]} x {size[1]}"
    if size[0] * size[1] > MAX_PIXELS or abs(across - down) > SAME_RATIO * down:
        problems.append(f"{text}; they were taken as they are, look at them")
        return None
    problems.append(f"{text}; they were scaled to it")
    return Affine.scale(across, down)


def _turn(picture: FoundPicture, header: PictureHeader) -> Affine | None:
    """Return the map to the upright picture, where labels were drawn on the picture as it is stored."""
    stored = (header.stored_width, header.stored_height)
    if header.orientation < 5 or picture.size != stored or stored == (header.width, header.height):
        return None
    width, height = stored
    transposed = Affine(a=0, b=1, d=1, e=0)
    turns = {
        5: transposed,
        6: Affine.quarter_turns(1, width, height),
        7: Affine.quarter_turns(1, width, height).then(Affine.flip_top_bottom(width)),
        8: Affine.quarter_turns(3, width, height),
    }
    return turns[header.orientation]
