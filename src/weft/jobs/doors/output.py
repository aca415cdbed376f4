"""The output of a job's workers as doors show it: whole, in lines, or as it comes."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

POLL_S = 0.3
MOST_BYTES = 64 << 20  # of an answer that is not streamed
_CHUNK_BYTES = 1 << 18


def rank_logs(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of an attempt's ranks in their order."""
    found = []
    run = folder / "run"
    for path in run.glob("rank-*.log") if run.is_dir() else ():
        if match := re.fullmatch(r"rank-(\d+)\.log", path.name):
            found.append((int(match[1]), path))
    return sorted(found)


def read_lines(folder: Path) -> list[tuple[int, str]]:
    """Return the lines of all ranks, one rank after the other, as (rank, line)."""
    lines: list[tuple[int, str]] = []
    left = MOST_BYTES
    for rank, path in rank_logs(folder):
        with path.open("rb") as file:
            data = file.read(left)
        left -= len(data)
        lines += [(rank, line) for line in data.decode(errors="replace").splitlines()]
    return lines


def last_text(path: Path, lines: int | None) -> str:
    """Return a file's text, or its last lines; nothing where there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MOST_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return text if lines is None else "".join(text.splitlines(keepends=True)[-lines:] if lines else [])


class OutputFollower:
    """Gives the output of a job in whole lines, across its attempts, until it has ended."""

    def __init__(self, folder: Callable[[], Awaitable[tuple[Path | None, bool]]], *, named: bool) -> None:
        self._folder = folder  # of the newest attempt, and whether the job has ended
        self._named = named  # each line begins with its learner
        self._offsets: dict[Path, int] = {}

    async def pieces(self, *, follow: bool) -> AsyncIterator[bytes]:
        """Yield what is there, and what comes if `follow`."""
        while True:
            (
                folder,
                ended,
            ) = await self._folder()  # asked first: what is written before the end is read after it
            if folder is not None:
                for rank, path in rank_logs(folder):
                    while piece := self._next(rank, path, whole=not ended and follow):
                        yield piece
            if ended or not follow:
                return
            await asyncio.sleep(POLL_S)

    def _next(self, rank: int, path: Path, *, whole: bool) -> bytes:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            data = file.read(_CHUNK_BYTES)
        if whole or len(data) == _CHUNK_BYTES:
            cut = data.rfind(b"\n") + 1
            data = data[:cut] if cut or (whole and len(data) < _CHUNK_BYTES) else data
        self._offsets[path] = self._offsets.get(path, 0) + len(data)
        if not self._named:
            return data
        name = f"learner-{rank + 1}: ".encode()
        return b"".join(name + line for line in data.splitlines(keepends=True))
