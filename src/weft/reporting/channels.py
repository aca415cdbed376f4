"""Channels on which a worker's reports leave it: a file, a pipe to the agent, marks on standard error.

The variable WEFT_METRICS names the one its launcher has made; see `names.py`. Without it, WEFT_RUN_DIR names a folder
in which to write metrics/rank-R.jsonl; without that, nothing is kept.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from weft.reporting.names import FOLDER, MARK, SLOT_VARIABLE, VARIABLE, file_name

PIPE_BYTES = 4096  # what a pipe takes in one piece, whoever else writes
WAIT_S = 1.0  # for a pipe to take something
PRIVATE = 0o700


class ReportChannel(Protocol):
    """Takes whole lines; `write` returns how many bytes it took, OSError means that it cannot at present."""

    longest: int  # bytes of a line
    rank: int  # under which its lines are kept

    def write(self, data: bytes) -> int: ...


class FileChannel:
    """A file that is only added to, made when the first line comes."""

    longest = 1 << 30

    def __init__(self, path: Path, rank: int) -> None:
        self._path, self.rank = path, rank
        self._descriptor = -1

    def write(self, data: bytes) -> int:
        if self._descriptor < 0:
            self._descriptor = self._open()
        return os.write(self._descriptor, data)

    def _open(self) -> int:
        self._path.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            os.write(descriptor, b"\n")  # a worker before this one was cut short
        return descriptor


class PipeChannel:
    """A pipe to the agent; pieces are small enough never to be mixed with those of a process forked from this one."""

    longest = PIPE_BYTES

    def __init__(self, descriptor: int, rank: int) -> None:
        self._descriptor, self.rank = descriptor, rank
        os.set_inheritable(descriptor, False)

    def write(self, data: bytes) -> int:
        if not select.select([], [self._descriptor], [], WAIT_S)[1]:
            raise TimeoutError("the agent takes nothing")
        return os.write(self._descriptor, _whole_lines(data, PIPE_BYTES))


class MarkChannel:
    """Marks on standard error, each written in one piece."""

    longest = PIPE_BYTES - 64

    def __init__(self, rank: int, descriptor: int = 2) -> None:
        self.rank, self._descriptor = rank, descriptor

    def write(self, data: bytes) -> int:
        lines = _whole_lines(data, self.longest - len(data[: self.longest].split(b"\n")))
        if not select.select([], [self._descriptor], [], WAIT_S)[1]:
            raise TimeoutError("standard error takes nothing")
        mark = MARK.encode() + lines.replace(b"\n", b"\x1f") + b"\x1e\n"
        os.write(self._descriptor, mark)
        return len(lines)


def _whole_lines(data: bytes, most: int) -> bytes:
    """Return as many whole lines as fit; one that is longer alone."""
    if len(data) <= most:
        return data
    end = data.rfind(b"\n", 0, most)
    return data[: (end if end >= 0 else data.find(b"\n")) + 1]


def channel_from_env(environ: Mapping[str, str]) -> ReportChannel | None:
    """Return the channel that the launcher has made, or a file where the user wants one; None: nowhere."""
    rank = _rank(environ)
    kind, _, where = environ.get(VARIABLE, "").partition(":")
    if kind == "file":
        path = Path(where)
        return FileChannel(path, _rank_of_file(path, rank))
    if kind == "pipe" and (descriptor := _inherited(where)) is not None:
        slot = environ.get(SLOT_VARIABLE, "")
        return PipeChannel(descriptor, int(slot) if slot.isdigit() else rank)
    if kind == "mark":
        return MarkChannel(rank)
    folder = environ.get("WEFT_RUN_DIR")
    return FileChannel(Path(folder, FOLDER, file_name(rank)), rank) if folder else None


def _rank(environ: Mapping[str, str]) -> int:
    text = environ.get("RANK", "")
    return int(text) if text.isdigit() else 0


def _rank_of_file(path: Path, otherwise: int) -> int:
    text = path.stem.removeprefix("rank-")
    return int(text) if text.isdigit() else otherwise


def _inherited(text: str) -> int | None:
    """Return the descriptor, if it still is what the agent opened: a program below a worker may not have it."""
    number, _, inode = text.partition(",")
    try:
        descriptor = int(number)
        return descriptor if os.fstat(descriptor).st_ino == int(inode) else None
    except (OSError, ValueError):
        return None
