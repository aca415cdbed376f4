"""Folders in which pushes gather their files, out of sight until they are whole.

Each draft has a lock beside it that its owner holds while it lives, and that the system lets go when the owner dies,
however it dies: so a sweep knows which drafts nobody will finish, on this machine or another that shares the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DRAFTS = ".drafts"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock and hold it; it is ours alone, among threads and processes."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class Draft:
    """A folder of ours. Made, and swept by others, under the lock of the store."""

    def __init__(self, store: Path) -> None:
        drafts = store / DRAFTS
        drafts.mkdir(exist_ok=True)
        self.folder = drafts / uuid.uuid4().hex
        self._lock = self.folder.with_suffix(".lock")
        self._handle = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        self.folder.mkdir()

    def close(self) -> None:
        """Leave nothing; the folder may have been moved to where it belongs."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.unlink(missing_ok=True)
        os.close(self._handle)


def sweep(store: Path) -> None:
    """Remove drafts whose owners are dead; call it under the lock of the store."""
    drafts = store / DRAFTS
    for lock in list(drafts.glob("*.lock")):
        with suppress(FileNotFoundError):  # its owner has just finished
            handle = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # it lives
            else:
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
            finally:
                os.close(handle)
