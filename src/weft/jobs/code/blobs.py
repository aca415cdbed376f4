"""Blobs: contents of files by their digests, in a folder; and snapshots written out of them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from weft.errors import UsageError
from weft.files import write_whole
from weft.jobs.code.snapshot import LARGEST_FILE_BYTES, MOST_BYTES, MOST_FILES, CodeSnapshot, SnapshotFile
from weft.text import format_size


class BlobDraft:
    """A content on its way into the store."""

    def __init__(self, file: IO[bytes], path: Path, digest: str) -> None:
        self._file, self._path, self._digest = file, path, digest
        self._hash, self._size = hashlib.sha256(), 0

    def write(self, part: bytes) -> None:
        """Add a part; the whole must be within the bound of a file."""
        self._size += len(part)
        if self._size > LARGEST_FILE_BYTES:
            raise UsageError(
                f"a content must be at most {format_size(LARGEST_FILE_BYTES, trimmed=True)}, got more; "
                "add the file to .weftignore"
            )
        self._hash.update(part)
        self._file.write(part)

    def keep(self) -> None:
        """Move the content to its place, if its digest is the one that was said."""
        found = self._hash.hexdigest()
        if found != self._digest:
            raise UsageError(
                f"a content must have the digest {self._digest[:12]}, got {found[:12]}; send it again"
            )
        self._file.flush()
        Path(self._file.name).replace(self._path)


class BlobStore:
    """A folder of contents; adding one again changes nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def missing(self, digests: Iterable[str]) -> tuple[str, ...]:
        """Return which contents are not there, in order."""
        return tuple(sorted(digest for digest in set(digests) if not self._path(digest).is_file()))

    def add(self, digest: str, data: bytes) -> None:
        """Keep a content; its digest must be the one that was said."""
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise UsageError(f"a content must have the digest {digest[:12]}, got {found[:12]}; send it again")
        if len(data) > LARGEST_FILE_BYTES:
            raise UsageError(
                f"a content must be at most {format_size(LARGEST_FILE_BYTES, trimmed=True)}, got {len(data)} bytes; "
                "add the file to .weftignore"
            )
        path = self._path(digest)
        if not path.is_file():
            path.parent.mkdir(exist_ok=True, mode=0o700)
            write_whole(path, data)

    @contextmanager
    def receiving(self, digest: str) -> Iterator[BlobDraft]:
        """Yield a draft of a content that comes in parts; what is not kept is removed."""
        path = self._path(digest)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".draft-", delete=False) as file:
            try:
                yield BlobDraft(file, path, digest)
            finally:
                Path(file.name).unlink(missing_ok=True)

    def read(self, digest: str) -> bytes:
        data = self._path(digest).read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise UsageError(f"content {digest[:12]} must be whole, got other bytes; restore the backup")
        return data

    def list(self) -> Iterator[tuple[str, int]]:
        """Yield the digest of each content, and when it came, in ms since 1970."""
        for path in self._folder.glob("[0-9a-f][0-9a-f]/*"):
            if len(path.name) == 62:
                yield path.parent.name + path.name, path.stat().st_mtime_ns // 1_000_000

    def remove(self, digest: str) -> int:
        """Remove a content; return its size."""
        path = self._path(digest)
        size = path.stat().st_size
        path.unlink()
        return size

    def _path(self, digest: str) -> Path:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise UsageError(
                f"a digest must be 64 hexadecimal figures, got {digest[:80]!r}; send the file's SHA-256"
            )
        return self._folder / digest[:2] / digest[2:]

    def write_out(self, snapshot: CodeSnapshot, target: Path) -> None:
        """Write the files of a snapshot into a new folder; a snapshot that would write elsewhere is refused whole."""
        check_snapshot(snapshot)
        target.mkdir(parents=True)
        for file in sorted(snapshot.files, key=lambda file: (file.kind == "link", file.path)):
            place = target / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            data = self.read(file.digest)
            if file.kind == "link":
                _write_link(place, os.fsdecode(data), target)
            else:
                place.write_bytes(data)
                place.chmod(0o755 if file.kind == "program" else 0o644)


def check_snapshot(snapshot: CodeSnapshot) -> None:
    """Refuse a snapshot, which a client may have made up, that has bad paths or is too large."""
    if len(snapshot.files) > MOST_FILES or snapshot.total_bytes > MOST_BYTES:
        raise UsageError(
            f"a snapshot must have at most {MOST_FILES} files of {format_size(MOST_BYTES, trimmed=True)} in all, "
            "got more"
        )
    paths = {file.path for file in snapshot.files}
    if len(paths) != len(snapshot.files):
        raise UsageError("a snapshot must name each path once, got one twice; take it again")
    for file in snapshot.files:
        _check_path(file, paths)


def _check_path(file: SnapshotFile, paths: set[str]) -> None:
    path = PurePosixPath(file.path)
    plain = str(path) == file.path and file.path.isprintable() and len(os.fsencode(file.path)) <= 1024
    if not plain or path.is_absolute() or ".." in path.parts or not path.parts or file.size < 0:
        raise UsageError(f"paths of a snapshot must be relative and plain, got {file.path!r}; rename it")
    if any(str(parent) in paths for parent in path.parents):
        raise UsageError(f"a path of a snapshot must not be below a file, got {file.path!r}; take it again")


def _write_link(place: Path, target: str, root: Path) -> None:
    inside = not Path(target).is_absolute() and (place.parent / target).resolve().is_relative_to(
        root.resolve()
    )
    if not inside or "\0" in target or not target:
        raise UsageError(
            f"links of a snapshot must stay within it, got {place.name} -> {target!r}; take it again"
        )
    place.symlink_to(target)
