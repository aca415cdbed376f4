"""Copies that are on the disk when they are done, and checksums of what was written."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

from weft.errors import ModelError
from weft.serve.store.catalogue import StoredFile

_CHUNK_BYTES = 1 << 20


def open_regular(path: Path, *, follow: bool) -> BufferedReader:
    """Open a plain file for reading; with `follow` also by way of a symbolic link. Devices and pipes are refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise ModelError(
                f"{path} must be a plain file, got a symbolic link; put the file there"
            ) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ModelError(f"{path} must be a plain file, got something else")
    return os.fdopen(handle, "rb")


def copy(source: Path, target: Path, name: str, *, follow: bool = False) -> StoredFile:
    """Copy a plain file; return its checksum, taken from the bytes that were written."""
    digest, size = hashlib.sha256(), 0
    with open_regular(source, follow=follow) as reading, target.open("wb") as writing:
        while chunk := reading.read(_CHUNK_BYTES):
            digest.update(chunk)
            writing.write(chunk)
            size += len(chunk)
        writing.flush()
        os.fsync(writing.fileno())
    return StoredFile(name, digest.hexdigest(), size)


def checksum(path: Path) -> StoredFile:
    with open_regular(path, follow=False) as file:
        digest = hashlib.file_digest(file, "sha256")
        return StoredFile(path.name, digest.hexdigest(), file.tell())


def sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
