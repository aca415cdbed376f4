"""Folders in which something is made, out of sight until it is whole.

Each draft has a lock beside it that its maker holds while it lives, and that the system lets go when the maker dies,
however it dies: so the next one knows which drafts nobody will finish, on this machine or another that shares the
folder, and removes them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = ".lock"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock and hold it; it is ours alone, among threads and processes."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def drafting(home: Path, prefix: str = "") -> Iterator[Path]:
    """A folder of our own in `home`; it may be moved to where it belongs, and is gone at the end."""
    _sweep(home, prefix)
    folder, handle = _claim(home, prefix)
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _lock_of(folder).unlink(missing_ok=True)
        os.close(handle)


def _claim(home: Path, prefix: str) -> tuple[Path, int]:
    """A name for a folder, and its lock, which we hold."""
    while True:
        folder = home / f"{prefix}{uuid.uuid4().hex}"
        handle = os.open(_lock_of(folder), os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return folder, handle
        os.close(handle)  # swept by another before we had locked it


def _sweep(home: Path, prefix: str) -> None:
    ours = re.compile(re.escape(prefix) + "[0-9a-f]{32}" + re.escape(_LOCK))
    for lock in [path for path in home.iterdir() if ours.fullmatch(path.name)]:
        with suppress(FileNotFoundError, PermissionError):  # just finished, or somebody else's to sweep
            _remove_if_dead(lock)


def _remove_if_dead(lock: Path) -> None:
    handle = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder = lock.with_suffix("")
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            lock.unlink(missing_ok=True)
    except BlockingIOError:
        pass  # its maker lives
    finally:
        os.close(handle)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)
