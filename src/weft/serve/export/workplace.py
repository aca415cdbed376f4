"""The folder beside the target in which a file is made and checked before it is there.

Its maker holds a lock on it that the system lets go when the maker dies: the next export of the same file removes what
a killed one left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from weft.errors import ModelError


@contextmanager
def workplace(target: Path) -> Iterator[Path]:
    """A folder of our own, gone at the end."""
    home, prefix = target.absolute().parent, f".{target.name}."
    try:
        _sweep(home, prefix)
        folder, handle = _make(home, prefix)
    except OSError as error:
        raise ModelError(f"{target} must be in a folder that can be written: {error.strerror}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _make(home: Path, prefix: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=home))
        with suppress(FileNotFoundError):  # swept by another, before we could lock it
            handle = os.open(folder, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                return folder, handle
            os.close(handle)


def _sweep(home: Path, prefix: str) -> None:
    for folder in [path for path in home.iterdir() if path.name.startswith(prefix) and path.is_dir()]:
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            except BlockingIOError:
                pass  # its maker lives
            finally:
                os.close(handle)
