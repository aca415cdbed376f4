"""The files of a run directory, printed by the first pod: whoever follows its log gets metrics, timelines and outcome.

A mark stands between two record separators, which no program prints:  RS weft-file NAME OFFSET BASE64 RS NEWLINE
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PIECE_BYTES = 2400  # of a file in one mark: a pipe keeps up to 4096 bytes together
EVERY_S = 0.2
ADOPTED = "elastic/adopted.json"  # told by a first pod that goes on with the run of another one
_APPENDED = (".jsonl", ".log", ".csv")
_NOT_SHOWN = re.compile(r"rank-\d+\.log$|elastic/(secret|launcher\.lock|.*\.(log|points))$|\.tmp$|~$")
MARK = re.compile(rb"\x1eweft-file (\S+) (\d+) (\d+) ([A-Za-z0-9+/=]*)\x1e\n")
_NAME = re.compile(r"[A-Za-z0-9_][\w.@#-]*(/[A-Za-z0-9_][\w.@#-]*){0,3}")


@dataclass(frozen=True)
class FilePiece:
    """Some bytes of a file of the run: where they begin, and how long the file is with them."""

    name: str
    offset: int
    size: int
    data: bytes


def mark_of(piece: FilePiece) -> bytes:
    """Return a piece as it is printed."""
    text = base64.b64encode(piece.data)
    return b"\x1eweft-file %s %d %d %s\x1e\n" % (piece.name.encode(), piece.offset, piece.size, text)


def piece_in(match: re.Match[bytes]) -> FilePiece | None:
    """Return the piece that a mark holds; None for one that names no file of a run directory."""
    name = match[1].decode(errors="replace")
    if not _NAME.fullmatch(name):
        return None
    try:
        return FilePiece(name, int(match[2]), int(match[3]), base64.b64decode(match[4], validate=True))
    except binascii.Error:
        return None


class Mirror:
    """Prints what is new in a run directory, until it is closed."""

    def __init__(self, folder: Path, descriptor: int = 1) -> None:
        self._folder, self._descriptor = folder, descriptor
        self._seen: dict[str, tuple[int, int, int]] = {}  # inode, time and size
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="weft-mirror", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Print the rest."""
        self._over.set()
        self._thread.join()
        self._print()

    def _repeat(self) -> None:
        while not self._over.wait(EVERY_S):
            self._print()

    def _print(self) -> None:
        for piece in self.news():
            data = mark_of(piece)
            while data:
                data = data[os.write(self._descriptor, data) :]

    def news(self) -> Iterator[FilePiece]:
        """Yield the pieces that are new since the last call."""
        for path in sorted(self._folder.rglob("*")):
            name = path.relative_to(self._folder).as_posix()
            if _NOT_SHOWN.search(name) or not _NAME.fullmatch(name) or not path.is_file():
                continue
            try:
                yield from self._news_of(name, path)
            except OSError:
                continue  # it was replaced just now

    def _news_of(self, name: str, path: Path) -> Iterator[FilePiece]:
        status = path.stat()
        now = (status.st_ino, status.st_mtime_ns, status.st_size)
        before = self._seen.get(name, (0, 0, 0))
        if now == before:
            return
        grows = now[0] == before[0] and now[2] >= before[2] and name.endswith(_APPENDED)
        data = path.read_bytes()
        self._seen[name] = (now[0], now[1], len(data))
        start = before[2] if grows else 0
        for offset in range(start, max(len(data), start + 1), PIECE_BYTES):
            piece = data[offset : offset + PIECE_BYTES]
            yield FilePiece(name, offset, offset + len(piece), piece)


class MirroredFiles:
    """The files of a run in a folder of ours, as their pieces come; the same piece may come again.

    A cluster keeps the last megabytes of a log alone, so the first pieces of a file may be gone: what is appended to
    then begins with the first whole line there is, and what is written as a whole waits until it is written anew.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._gone: dict[str, int] = {}  # bytes of each file that did not come

    def put(self, piece: FilePiece) -> bool:
        """Put a piece into its file, which ends with it; return whether bytes between them did not come."""
        path, data = self._folder / piece.name, piece.data
        size = path.stat().st_size if path.exists() else 0
        if piece.offset == 0:
            self._gone.pop(piece.name, None)
        start = piece.offset - self._gone.get(piece.name, 0)
        has_gap = start > size
        if has_gap:
            whole = data.find(b"\n") + 1
            if not piece.name.endswith(_APPENDED) or not whole:
                return True
            start, data = size, data[whole:]
            self._gone[piece.name] = piece.offset + whole - size
        if start >= 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.seek(start)
                file.write(data)
                file.truncate()
        return has_gap
