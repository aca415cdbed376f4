"""Zips from strangers: unpacked into a folder of their own, within bounds, and never outside of it."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from weft.errors import PictureError
from weft.text import format_size
from weft.vision.formats.found import LITTER


@dataclass(frozen=True, kw_only=True)
class ZipLimits:
    """Bounds of what a zip may unpack to."""

    total_bytes: int = 200 << 30
    one_bytes: int = 8 << 30  # of one file: films are large
    files: int = 1_000_000
    ratio: int = 200  # of unpacked to packed bytes, beyond the first `free_bytes` of a file
    free_bytes: int = 32 << 20


def unpack(archive: Path, folder: Path, limits: ZipLimits | None = None) -> list[str]:
    """Unpack a zip into a folder that is empty; return sentences about entries that were left out.

    An entry that would land outside, a link, a name twice, or a zip that unpacks to more than the limits is
    refused as a whole before anything is written; the sizes that it tells are not believed, but counted.
    """
    limits = limits or ZipLimits()
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = check_entries(opened.infolist(), archive.name, limits)
            free = shutil.disk_usage(folder).free
            needed = sum(entry.file_size for entry, _ in entries)
            if needed > free:
                raise PictureError(
                    f"{archive.name} must fit on the disk, got {format_size(needed)} for {format_size(free)} free"
                )
            for entry, place in entries:
                _write(opened, entry, folder / place, limits)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError) as error:
        raise PictureError(
            f"{archive.name} must be a whole zip without a password: {error}; pack it again"
        ) from None
    return []


def check_entries(
    entries: list[zipfile.ZipInfo], name: str, limits: ZipLimits
) -> list[tuple[zipfile.ZipInfo, PurePosixPath]]:
    """Return the files of a zip with their places, or refuse it."""
    if len(entries) > limits.files:
        raise PictureError(f"{name} must have at most {limits.files} files, got {len(entries)}; part it")
    found = []
    places = set()
    total = 0
    for entry in entries:
        if entry.is_dir() or _is_litter(entry.filename):
            continue
        place = safe_place(entry.filename, name)
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise PictureError(
                f"{name} must have no links, got {entry.filename!r}; pack the files themselves"
            )
        if place in places:
            raise PictureError(f"{name} must have each name once, got {entry.filename!r} twice")
        places.add(place)
        total += entry.file_size
        _check_size(entry, total, name, limits)
        found.append((entry, place))
    return found


def _check_size(entry: zipfile.ZipInfo, total: int, name: str, limits: ZipLimits) -> None:
    if entry.file_size > limits.one_bytes or total > limits.total_bytes:
        raise PictureError(
            f"{name} must unpack to at most {format_size(limits.total_bytes)}, "
            f"{format_size(limits.one_bytes)} a file, got more at {entry.filename!r}; part it"
        )
    if entry.file_size > limits.free_bytes + limits.ratio * entry.compress_size:
        raise PictureError(
            f"{name} must not unpack to more than {limits.ratio} times its size, got {entry.filename!r} of "
            f"{format_size(entry.file_size)} from {format_size(entry.compress_size)}; it may be a zip bomb"
        )


def _is_litter(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and (parts[0] == "__MACOSX" or parts[-1].lower() in LITTER)


def safe_place(name: str, archive: str) -> PurePosixPath:
    """Return where an entry goes below the folder; a name that leads out of it is refused."""
    place = PurePosixPath(name.replace("\\", "/"))
    if place.is_absolute() or ".." in place.parts or not place.parts or ":" in place.parts[0] or "\0" in name:
        raise PictureError(
            f"{archive} must have names below its own folder, got {name[:80]!r}; pack it again"
        )
    return place


def _write(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, limits: ZipLimits) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with opened.open(entry) as source, path.open("xb") as target:
        while block := source.read(1 << 20):
            written += len(block)
            if written > entry.file_size:
                raise PictureError(
                    f"{entry.filename!r} must have the size that the zip tells, got more; pack it again"
                )
            target.write(block)


def pack(folder: Path, archive: Path) -> None:
    """Pack a folder into a zip; pictures are stored as they are, text is compressed."""
    with zipfile.ZipFile(archive, "w", allowZip64=True, strict_timestamps=False) as opened:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                text = path.suffix in (".json", ".xml", ".txt", ".yaml")
                how = zipfile.ZIP_DEFLATED if text else zipfile.ZIP_STORED
                opened.write(path, path.relative_to(folder).as_posix(), how)
