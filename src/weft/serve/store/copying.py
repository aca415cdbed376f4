"""Copies that are on the disk when they are done, and checksums of what was written."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from weft.serve.store.catalogue import StoredFile

_CHUNK = 1 << 20


def copy(source: Path, target: Path, name: str) -> StoredFile:
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as reading, target.open("wb") as writing:
        while chunk := reading.read(_CHUNK):
            digest.update(chunk)
            writing.write(chunk)
            size += len(chunk)
        writing.flush()
        os.fsync(writing.fileno())
    return StoredFile(name, digest.hexdigest(), size)


def checksum(path: Path) -> StoredFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return StoredFile(path.name, digest.hexdigest(), file.tell())


def sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
