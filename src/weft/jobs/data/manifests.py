"""Manifests: the files of a data set by path, size and digest. Equal data has an equal digest, wherever it lies."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from weft.errors import UsageError

MOST_FILES = 200_000
LONGEST_PATH_BYTES = 1024


class DataFile(msgspec.Struct, frozen=True):
    """One file of a data set."""

    path: str  # relative, with slashes
    size: int
    digest: str  # SHA-256 of its bytes; in S3, `etag:` and the ETag
    modified_ns: int = 0  # of a local file: one that has not changed since need not be read again


class DataManifest(msgspec.Struct, frozen=True):
    """All files of one version of a data set."""

    files: tuple[DataFile, ...]  # by path
    single: bool = False  # one file, not a folder of one

    @property
    def digest(self) -> str:
        """The digest of paths, sizes and contents."""
        lines = ([file.path, file.size, file.digest] for file in self.files)
        return hashlib.sha256(msgspec.json.encode(list(lines))).hexdigest()

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)


def scan(place: Path) -> DataManifest:
    """Return the manifest of a local file or folder; every byte is read."""
    if place.is_file():
        return DataManifest((_file(place, place.name),), single=True)
    if not place.is_dir():
        raise UsageError(
            f"data must be a file or a folder that the service can read, got {place}; name another"
        )
    files = tuple(sorted((_file(path, name) for path, name in _walk(place)), key=lambda file: file.path))
    if not files:
        raise UsageError(f"data must have a file, got the empty folder {place}; name another")
    return DataManifest(files)


def _walk(root: Path) -> Iterator[tuple[Path, str]]:
    count = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            relative = path.relative_to(root).as_posix()
            if len(os.fsencode(relative)) > LONGEST_PATH_BYTES or not relative.isprintable():
                raise UsageError(
                    f"paths of data must be printable and short, got {relative[:200]!r}; rename it"
                )
            if stat.S_ISSOCK(path.lstat().st_mode) or stat.S_ISFIFO(path.lstat().st_mode):
                continue
            count += 1
            if count > MOST_FILES:
                raise UsageError(
                    f"data must be at most {MOST_FILES} files, got more in {root}; pack them into few"
                )
            yield path, relative


def _file(path: Path, name: str) -> DataFile:
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return DataFile(name, found.st_size, digest, found.st_mtime_ns)


def check_unchanged(place: Path, manifest: DataManifest, name: str) -> None:
    """Refuse data that is not what was registered; only files that were written to since are read again."""
    for file in manifest.files:
        path = place if manifest.single else place / file.path
        try:
            found = path.stat()
        except OSError as error:
            raise changed(name, f"{path}: {error.strerror}") from None
        if found.st_size != file.size:
            raise changed(name, f"{path} of {found.st_size} bytes in place of {file.size}")
        if found.st_mtime_ns != file.modified_ns and _file(path, file.path).digest != file.digest:
            raise changed(name, f"another content of {path}")
    if not manifest.single:
        more = {relative for _, relative in _walk(place)} - {file.path for file in manifest.files}
        if more:
            raise changed(name, f"a new file {min(more)}")


def changed(name: str, what: str) -> UsageError:
    """Return the error for data that changed after it was registered."""
    return UsageError(f"{name} must be as it was registered, got {what}; restore it, or add a new version")
