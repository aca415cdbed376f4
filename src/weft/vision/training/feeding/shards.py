"""Shards: the pictures of a large set in a few files, reduced once to what a training reads of them.

A set too large for main memory is read anew for each batch, and pictures of cameras have many times the pixels that a
training looks at. Each is decoded once, reduced and kept as a JPEG, or byte for byte if it is no larger than needed.
The files lie in the user's cache. A file is named by the content and the sizes of its pictures, so later trainings find
it whatever the labels say, and a build that was interrupted goes on behind its whole files.

A file has its pictures one after another, then where each ends and its checksum, then the trailer.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import PictureError, UsageError, WeftError
from weft.files import cache_folder, drafting, locked
from weft.text import format_size
from weft.vision.config.schema import VisionConfig
from weft.vision.records import LabelledPicture
from weft.vision.training.feeding.affines import fit_for, fit_scales
from weft.vision.training.feeding.decoding import BLUR, decode_picture, has_opencv, resized, thread_count
from weft.vision.training.schedule import input_size

Array = np.ndarray[Any, Any]
QUALITY = 95  # of the JPEGs that pictures are reduced to, colours at half the sides (4:2:0)
PART_PIXELS = 1 << 28  # of one file: some 60 to 200 MiB
BYTES_PER_PIXEL = 1.0  # of a JPEG of that quality at most; a noisy one has more, most have a quarter
WORTHWHILE = 0.75  # of all pixels: without being asked, shards are made only where fewer are left
LEAST_EPOCHS = 2  # of a training that shards are made for without being asked
MAGIC = b"WEFTSHD1"
_TRAILER = struct.Struct("<QI8s")  # pictures, checksum of the index, magic
_log = logging.getLogger("weft.vision")


class ShardRoomError(PictureError):
    """Shards cannot be written where caches are."""


@dataclass(frozen=True)
class ShardPart:
    """One file of shards: its name, and which pictures of the set are in it."""

    name: str
    first: int
    count: int


class Shards:
    """Whole files of shards, read by offset; many threads may read at once."""

    def __init__(
        self, folder: Path, parts: Sequence[ShardPart], indices: Sequence[tuple[Array, Array]]
    ) -> None:
        self._folder, self._parts, self._indices = folder, tuple(parts), tuple(indices)
        self._firsts = np.array([part.first for part in parts])

    @property
    def size_bytes(self) -> int:
        return sum(int(ends[-1]) for ends, _ in self._indices)

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._parts)

    def read(self, index: int) -> bytes | None:
        """Return an encoded picture of the set; None where its file is damaged or gone, which is then made anew."""
        number = int(np.searchsorted(self._firsts, index, "right")) - 1
        part, (ends, checks) = self._parts[number], self._indices[number]
        place, path = index - part.first, self._folder / part.name
        begin, end = int(ends[place - 1]) if place else len(MAGIC), int(ends[place])
        try:
            with path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), end - begin, begin)
        except OSError:
            return None
        if zlib.crc32(data) == checks[place]:
            return data
        _log.warning(
            "%s must be as it was written, got a damaged picture; pictures are read from their own files, "
            "and the next training writes it anew",
            path,
        )
        path.unlink(missing_ok=True)
        return None


def reduced_sizes(sizes: Array, config: VisionConfig) -> Array:
    """Return width and height that each picture is kept with: the most that any random map reads of it.

    `sizes`: n x 2, of the originals; no picture is enlarged.
    """
    shares = config.schedule.sizes
    inputs = [
        input_size(config.schedule, config.sides, (place + 0.5) / len(shares)) for place in range(len(shares))
    ]
    out = tuple(np.max([config.sides, *inputs], axis=0).tolist())
    augment, lost = config.augment, config.augment.crop or 0.0
    # A crop at a picture's side is stretched along one side only, so aspect counts by its root; see random_maps.
    closest = max(1 / (1 - lost), ((1 + augment.aspect) / (1 - lost)) ** 0.5) if lost else 1.0
    scale = fit_scales(sizes, (out[0], out[1]), "crop" if lost else fit_for(config))
    ratio = np.minimum(1, scale * closest**0.5 * (1 + augment.zoom))
    reduced: Array = np.maximum(1, np.ceil(sizes * ratio[:, None] - 1e-6)).astype(int)
    return reduced


def wants_shards(config: VisionConfig, sizes: Array, *, fits: bool) -> bool:
    """Tell whether a training has shards; `fits`: whether its decoded pictures fit into memory."""
    if config.shards == "always" and not has_opencv():
        raise UsageError(
            "shards: always must have OpenCV, got none; pip install '.[vision]', or write shards: never"
        )
    if config.shards != "auto":
        return config.shards == "always"
    if fits or not has_opencv() or (config.schedule.epochs or 0) < LEAST_EPOCHS:
        return False
    return bool(reduced_sizes(sizes, config).prod(1).sum() < WORTHWHILE * sizes.prod(1).sum())


def open_shards(
    pictures: Sequence[LabelledPicture],
    sizes: Array,
    config: VisionConfig,
    *,
    folder: Path | None = None,
    part_pixels: int = PART_PIXELS,
) -> Shards | None:
    """Return the shards of a set, made where they are not there; None where there is no room and nobody insists."""
    folder = folder or cache_folder("vision-shards")
    reduced = reduced_sizes(sizes, config)
    parts = shard_parts(pictures, reduced, part_pixels)
    copied = (reduced == sizes).all(1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_room(
            folder, [part for part in parts if _index(folder, part) is None], pictures, reduced, copied
        )
        # Workers of a host begin at different files, so they make them together.
        first = os.getpid() % len(parts)
        with ThreadPoolExecutor(thread_count(config.threads), thread_name_prefix="shards") as pool:
            for part in (*parts[first:], *parts[:first]):
                _ensure(folder, part, pictures, reduced, copied, pool)
        indices = [_checked_index(folder, part) for part in parts]
    except (OSError, ShardRoomError) as error:
        known = isinstance(error, ShardRoomError)
        said = str(error) if known else f"{folder} must take shards, got {error}; {_NEXT}"
        if config.shards == "always":
            raise ShardRoomError(said) from error
        _log.warning("%s (this training reads pictures from their own files)", said)
        return None
    return Shards(folder, parts, indices)


_NEXT = "make room, set XDG_CACHE_HOME to a larger disk, or write shards: never"


def shard_parts(pictures: Sequence[LabelledPicture], reduced: Array, part_pixels: int) -> list[ShardPart]:
    """Return the files that hold a set, in its order."""
    before = np.concatenate([[0], np.cumsum(reduced.prod(1))[:-1]])
    groups = before // part_pixels
    firsts = np.flatnonzero(np.diff(groups, prepend=-1))
    lasts = [*firsts[1:].tolist(), len(pictures)]
    return [
        ShardPart(_name(pictures[first:last], reduced[first:last]), first, last - first)
        for first, last in zip(firsts.tolist(), lasts, strict=True)
    ]


def _name(pictures: Sequence[LabelledPicture], reduced: Array) -> str:
    whole = hashlib.sha256(MAGIC + bytes([QUALITY]))
    for picture, (width, height) in zip(pictures, reduced.tolist(), strict=True):
        content = picture.sha256
        if not content:
            content = f"{picture.path.absolute()} {_state(picture.path)}"
        whole.update(f"{content} {width} {height}\n".encode())
    return f"{whole.hexdigest()[:40]}.shard"


def _state(path: Path) -> tuple[int, int]:
    """Return size and time of change; zeros for a file that is not there, which its decoder tells of."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def _check_room(
    folder: Path, missing: list[ShardPart], pictures: Sequence[LabelledPicture], reduced: Array, copied: Array
) -> None:
    places = [place for part in missing for place in range(part.first, part.first + part.count)]
    wanted = sum(
        _state(pictures[place].path)[0] if copied[place] else int(reduced[place].prod() * BYTES_PER_PIXEL)
        for place in places
    )
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise ShardRoomError(
            f"{folder} must have {format_size(wanted)} free for shards of {len(places)} pictures, "
            f"got {format_size(free)}; {_NEXT}"
        )


def _ensure(
    folder: Path,
    part: ShardPart,
    pictures: Sequence[LabelledPicture],
    reduced: Array,
    copied: Array,
    pool: ThreadPoolExecutor,
) -> None:
    """Write a file unless it is there and whole; of several processes, one does."""
    if _index(folder, part) is not None:
        return
    lock = folder / f"{part.name}.lock"
    with locked(lock):
        if _index(folder, part) is None:
            with drafting(folder, ".draft-") as draft:
                _write(draft / part.name, part, pictures, reduced, copied, pool)
                (draft / part.name).replace(folder / part.name)
        lock.unlink(missing_ok=True)  # who waits for it finds the file whole, or writes the same once more


def _write(
    path: Path,
    part: ShardPart,
    pictures: Sequence[LabelledPicture],
    reduced: Array,
    copied: Array,
    pool: ThreadPoolExecutor,
) -> None:
    def encoded(place: int) -> bytes:
        width, height = reduced[place].tolist()
        return encode_reduced(pictures[place].path, None if copied[place] else (height, width))

    ends, checks = np.empty(part.count, "<u8"), np.empty(part.count, "<u4")
    with path.open("wb") as file:
        file.write(MAGIC)
        for number, data in enumerate(pool.map(encoded, range(part.first, part.first + part.count))):
            file.write(data)
            ends[number], checks[number] = file.tell(), zlib.crc32(data)
        index = ends.tobytes() + checks.tobytes()
        file.write(index + _TRAILER.pack(part.count, zlib.crc32(index), MAGIC))


def encode_reduced(path: Path, size: tuple[int, int] | None) -> bytes:
    """Return a picture as it is kept: its own bytes, or a JPEG of the given height and width."""
    try:
        if size is None:
            return path.read_bytes()
        pixels = decode_picture(path, (round(size[0] / BLUR), round(size[1] / BLUR)))
    except (OSError, ValueError, WeftError) as error:
        raise WeftError(f"{path} must be a picture that can be decoded: {error}; take it out") from error
    from weft.vision.pictures.decoding import encode_jpeg

    return encode_jpeg(resized(pixels, size), QUALITY)


def _index(folder: Path, part: ShardPart) -> tuple[Array, Array] | None:
    """Return where each picture of a file ends, and checksums; None for a file that is missing or not whole."""
    path = folder / part.name
    size = part.count * 12
    try:
        with path.open("rb") as file:
            file.seek(-size - _TRAILER.size, os.SEEK_END)
            index, trailer = file.read(size), file.read(_TRAILER.size)
            begin = file.tell() - size - _TRAILER.size
    except OSError:
        return None
    if len(trailer) != _TRAILER.size or _TRAILER.unpack(trailer) != (part.count, zlib.crc32(index), MAGIC):
        return None
    ends = np.frombuffer(index, "<u8", part.count)
    return (ends, np.frombuffer(index, "<u4", offset=part.count * 8)) if ends[-1] == begin else None


def _checked_index(folder: Path, part: ShardPart) -> tuple[Array, Array]:
    found = _index(folder, part)
    if found is None:
        raise OSError(f"{part.name} went while it was used")
    return found
