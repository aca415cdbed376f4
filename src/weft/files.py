"""Files and folders that are whole or not there: drafts and locks; the folders of the user for data and for caches.

Whatever makes a folder makes a draft of it, moves what is whole to its place, and removes nothing but its own draft.
Each draft has a lock beside it, which its maker holds while alive and the system releases when the maker dies. So the
next maker, on this machine or on another that shares the folder, knows which drafts are abandoned and removes them.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = ".lock"
_DRAFT = ".draft-"  # begins the names of drafts inside a folder that is being filled
_TOKEN_BYTES = 16  # of the random part of a draft's name


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees all of it or what was there before, even if the writer is killed."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():  # a device or a pipe: nothing to replace
        path.write_bytes(data)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        error.filename = str(path)  # a write does not know its file, and nobody knows the draft
        raise
    finally:
        draft.unlink(missing_ok=True)  # of a disk that is full


def cache_folder(kind: str) -> Path:
    """Return the folder for one kind of data that is kept from run to run and can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft" / kind


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this user for what Weft keeps for good: models, studies, data sets, the jobs service."""
    return Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "weft"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for a lock and hold it, alone among threads and processes."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder itself, which needs no file in it, while several files are moved there."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def drafting(home: Path, prefix: str = "") -> Iterator[Path]:
    """Yield a new folder in `home`, which may be moved to where it belongs, and is removed at the end otherwise."""
    _sweep(home, prefix)
    folder, handle = _claim(home, prefix)
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _lock_of(folder).unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def filling(folder: Path, last: str, replaced: Collection[str] = ()) -> Iterator[Path]:
    """Yield a draft whose files move into `folder` when the block ends well; a failure leaves `folder` as it was.

    The file `last` moves after all others, so a reader who waits for that file finds the rest. Old files named in
    `replaced` are removed. Other files in `folder` stay. A folder that this call made is removed after a failure.
    """
    made = _make_folders(folder)
    try:
        with drafting(folder, _DRAFT) as draft:
            yield draft
            _move_in(draft, folder, last, replaced)
            made = []
    finally:
        for path in made:
            with suppress(OSError):  # somebody else has put something there
                path.rmdir()


def _move_in(draft: Path, folder: Path, last: str, replaced: Collection[str]) -> None:
    names = [path.name for path in draft.iterdir() if path.name != last]
    with locked_folder(folder):  # two makers must not mix their files
        (folder / last).unlink(missing_ok=True)
        for name in set(replaced) - set(names):
            (folder / name).unlink(missing_ok=True)
        for name in (*names, last):
            (draft / name).replace(folder / name)


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder and its parents; return those that were not there before, the innermost first."""
    missing = []
    for path in (folder, *folder.parents):
        if path.exists():
            break
        missing.append(path)
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _claim(home: Path, prefix: str) -> tuple[Path, int]:
    """Return a name for a new folder, and the descriptor of its lock, which is held."""
    while True:
        folder = home / f"{prefix}{secrets.token_hex(_TOKEN_BYTES)}"
        handle = os.open(_lock_of(folder), os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return folder, handle
        os.close(handle)  # swept by another maker before it was locked


def _sweep(home: Path, prefix: str) -> None:
    """Remove the drafts whose makers have died."""
    token = f"[0-9a-f]{{{2 * _TOKEN_BYTES}}}"
    drafts = re.compile(re.escape(prefix) + token + re.escape(_LOCK))
    for lock in [path for path in home.iterdir() if drafts.fullmatch(path.name)]:
        with suppress(FileNotFoundError, PermissionError):  # just finished, or another user's to sweep
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
        pass  # the maker lives
    finally:
        os.close(handle)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)
