"""Logs of a job's attempt: read in pages, from the end, searched and followed.

    reader = LogReader(run_dir, launcher_log)
    page = reader.page(rank=3, cursor=None, limit=500)         lines and the cursor after them
    page = reader.tail(rank=None, lines=100)                   the last lines of all ranks
    page = reader.page(rank=None, grep="error|nan", limit=50)

Each rank has a log of its own, and the launcher's log has the lines of all of them in the order in which they came,
with their ranks. A cursor is an offset in the log that is read.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.errors import UsageError
from weft.jobs.reports import search
from weft.jobs.reports.line_index import LineIndex

LAUNCHER = -1  # the "rank" of the launcher's own lines
SEARCH_S = 3.0  # for one page of a search; it then goes on from its cursor
BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 16  # bytes of a line that are shown
POLL_S = 0.2  # between two looks at a log that is followed
_LOG = re.compile(r"rank-(\d+)\.log")
_PREFIX = re.compile(rb"\[ *(\d+)\] ")


@dataclass(frozen=True)
class LogLine:
    """One line of a log."""

    rank: int
    number: int  # from 1, in the log that was read: the rank's, or the launcher's for all ranks
    text: str


@dataclass(frozen=True)
class LogPage:
    """Lines of a log, and the cursors before and after them."""

    lines: tuple[LogLine, ...]
    first: str  # before the first line
    next: str  # after the last line, or after all that was searched
    complete: bool  # nothing more is there at present


class LogReader:
    """Reads the logs of one attempt; may be used from any thread.

    A last line without an end counts once the attempt has `ended`; before, it is still being written.
    """

    def __init__(self, run_dir: Path, launcher_log: Path | None = None, *, ended: bool = False) -> None:
        self._run_dir, self._ended = run_dir, ended
        self._launcher_log = launcher_log if launcher_log is not None else run_dir.parent / "launcher.log"

    def ranks(self) -> tuple[int, ...]:
        """Return the ranks that have a log, the launcher first."""
        try:
            names = [entry.name for entry in os.scandir(self._run_dir)]
        except OSError:
            names = []
        found = sorted(int(match[1]) for name in names if (match := _LOG.fullmatch(name)))
        return (LAUNCHER, *found) if self._launcher_log.exists() else tuple(found)

    def path(self, rank: int | None) -> Path:
        """Return the file that holds the lines of a rank, or of all."""
        whole = rank is None or rank < 0
        path = self._launcher_log if whole else self._run_dir / f"rank-{rank}.log"
        # A job may write to its folder: a link there must not show what only the service can read.
        home = self._launcher_log.parent if whole else self._run_dir.parent
        return path if path.resolve().is_relative_to(home.resolve()) else home / "outside"

    def page(
        self, rank: int | None = None, cursor: str | None = None, limit: int = 1000, grep: str | None = None
    ) -> LogPage:
        """Return lines from a cursor on, the start if there is none; with `grep`, those that match."""
        path = self.path(rank)
        start = _offset(cursor)
        try:
            size = path.stat().st_size
        except OSError:
            return LogPage((), str(start), str(start), True)
        start = min(start, size)
        if grep is not None:
            return self._searched(path, rank, start, size, limit, _pattern(grep))
        return self._plain(path, rank, start, size, limit)

    def tail(self, rank: int | None = None, lines: int = 100, grep: str | None = None) -> LogPage:
        """Return the last lines; with `grep`, the last of those that match."""
        path = self.path(rank)
        try:
            size = path.stat().st_size
        except OSError:
            return LogPage((), "0", "0", True)
        if grep is not None:
            return self._search_back(path, rank, size, lines, _pattern(grep))
        start = _start_of_last(path, size, lines)
        return self._plain(path, rank, start, size, lines)

    def before(self, rank: int | None, cursor: str, limit: int = 1000) -> LogPage:
        """Return the lines that end at a cursor."""
        path = self.path(rank)
        try:
            size = min(_offset(cursor), path.stat().st_size)
        except OSError:
            return LogPage((), "0", "0", True)
        return self._plain(path, rank, _start_of_last(path, size, limit), size, limit)

    async def follow(
        self, rank: int | None = None, cursor: str | None = None, limit: int = 1000
    ) -> AsyncIterator[LogPage]:
        """Yield pages as lines come, until the caller has had enough."""
        loop = asyncio.get_running_loop()
        while True:
            page = await loop.run_in_executor(None, self.page, rank, cursor, limit)
            cursor = page.next
            if page.lines:
                yield page
            if page.complete:
                await asyncio.sleep(POLL_S)

    # -- reading ----------------------------------------------------------------------------------

    def _index(self, path: Path) -> LineIndex:
        return LineIndex(path, self._run_dir / "index" / f"{path.name}.lines")

    def _plain(self, path: Path, rank: int | None, start: int, size: int, limit: int) -> LogPage:
        lines: list[LogLine] = []
        place, complete = start, True
        number: int | None = None
        for offset, line, end in _lines_from(path, start, size, ended=self._ended):
            if len(lines) == limit:
                complete = False
                break
            if number is None:
                number = self._index(path).number_at(offset)
            place = end
            if (made := _log_line(rank, number, line)) is not None:
                lines.append(made)
            number += 1
        return LogPage(tuple(lines), str(start), str(place), complete)

    def _searched(
        self, path: Path, rank: int | None, start: int, size: int, limit: int, pattern: bytes
    ) -> LogPage:
        offsets, looked = _search(path, rank, pattern, start, size, limit, SEARCH_S)
        lines = self._lines_at(path, rank, offsets)
        return LogPage(lines, str(start), str(looked), looked >= size)

    def _search_back(self, path: Path, rank: int | None, size: int, most: int, pattern: bytes) -> LogPage:
        """Search the end of a log first, in parts that double, until there are enough lines."""
        deadline = time.monotonic() + SEARCH_S
        offsets: list[int] = []
        start, part = size, 8 * BLOCK_BYTES
        while start > 0 and len(offsets) < most and (left_s := deadline - time.monotonic()) > 0:
            begin = _line_start(path, max(0, start - part))
            found, looked = _search(path, rank, pattern, begin, start, 1 << 30, left_s)
            offsets = found + offsets
            if looked < start:
                break
            start, part = begin, 2 * part
        return LogPage(self._lines_at(path, rank, offsets[-most:]), str(start), str(size), True)

    def _lines_at(self, path: Path, rank: int | None, offsets: list[int]) -> tuple[LogLine, ...]:
        index, made = self._index(path), []
        with path.open("rb") as file:
            for offset in offsets:
                file.seek(offset)
                line = file.readline(LONGEST_LINE)
                number = index.number_at(offset)
                if (one := _log_line(rank, number, line)) is not None:
                    made.append(one)
        return tuple(made)


def _log_line(rank: int | None, number: int, line: bytes) -> LogLine | None:
    """Return a line for a reader of `rank`; None if it is not that one's."""
    if rank is not None and rank >= 0:
        return LogLine(rank, number, _shown(line))
    match = _PREFIX.match(line)
    if rank is not None and match is not None:
        return None
    return LogLine(
        int(match[1]) if match else LAUNCHER, number, _shown(line[match.end() :] if match else line)
    )


def _shown(line: bytes) -> str:
    """Return a line as a terminal would leave it: without its end, and without what a carriage return wrote over."""
    line = line.rstrip(b"\r\n")[:LONGEST_LINE]
    return line.rpartition(b"\r")[2].decode(errors="replace")


def _lines_from(path: Path, start: int, size: int, *, ended: bool) -> Iterator[tuple[int, bytes, int]]:
    """Yield (offset, line, offset after it) of lines; a long one comes in parts."""
    with path.open("rb") as file:
        file.seek(start)
        place = start
        while place < size:
            line = file.readline(LONGEST_LINE)
            whole = line.endswith(b"\n") or len(line) == LONGEST_LINE or ended
            if not line or not whole:
                return
            yield place, line, place + len(line)
            place += len(line)


def _start_of_last(path: Path, size: int, lines: int) -> int:
    """Return where the last so many lines begin."""
    place, left = size, lines + 1
    with path.open("rb") as file:
        while place > 0:
            begin = max(0, place - BLOCK_BYTES)
            file.seek(begin)
            data = file.read(place - begin)
            count = data.count(b"\n")
            if count >= left:
                inside = len(data)
                for _ in range(left):
                    inside = data.rfind(b"\n", 0, inside)
                return begin + inside + 1
            left -= count
            place = begin
    return 0


def _line_start(path: Path, offset: int) -> int:
    """Return where a line begins, at an offset or soon after it."""
    if offset == 0:
        return 0
    with path.open("rb") as file:
        file.seek(offset - 1)
        file.readline()
        return file.tell()


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal() or len(cursor) > 18:
        raise UsageError(f"cursor must be one that a page of this log gave, got {cursor!r}; leave it out")
    return int(cursor)


def _pattern(grep: str) -> bytes:
    try:
        re.compile(grep.encode())
        return grep.encode()
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(
            f"grep must be a regular expression, got {grep!r} ({error}); put a backslash before . ( [ and their like"
        ) from error


def _search(
    path: Path, rank: int | None, pattern: bytes, start: int, end: int, most: int, within_s: float
) -> tuple[list[int], int]:
    """Return the offsets of matching lines, and how far was looked; what may take for ever can be ended."""
    tagged = rank is None or rank < 0
    how = _search_here if search.is_bounded(pattern) else _search_apart
    offsets, looked = how(search.SearchTask(str(path), pattern, start, end, most, tagged), within_s)
    return offsets, _line_start(path, looked) if len(offsets) == most else looked


def _search_here(task: search.SearchTask, within_s: float) -> tuple[list[int], int]:
    deadline = time.monotonic() + within_s
    offsets: list[int] = []
    looked = task.start
    for line, place in search.matching_lines(task):
        looked = place
        if line is not None:
            offsets.append(line)
            if len(offsets) == task.most:
                break
        elif time.monotonic() > deadline:
            break
    return offsets, looked


def _search_apart(task: search.SearchTask, within_s: float) -> tuple[list[int], int]:
    command = [sys.executable, "-I", "-S", search.__file__, *task.arguments()]
    try:
        output = subprocess.run(command, capture_output=True, timeout=within_s, check=False).stdout
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
    offsets: list[int] = []
    looked, sure = task.start, 0
    for text in output.splitlines():
        if text.startswith(b"at "):
            looked, sure = int(text[3:]), len(offsets)
        elif text.isdigit():
            offsets.append(int(text))
    return offsets[:sure], looked  # what follows the last `at` will be found again
