"""Search in large logs: regular expressions over bytes, quick where a text must occur that can be looked for first.

It is also a program, which the service starts for expressions that may take for ever on some line: such a search can be
ended from outside. Only the standard library is imported, so that it starts in some ten milliseconds.

    python search.py FILE START END MOST TAGGED PATTERN    prints offsets of matching lines, and `at OFFSET` as it goes
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

try:  # named so from Python 3.11 on
    from re import _constants as codes  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover
    import sre_constants as codes
    import sre_parse as parser

BLOCK_BYTES = 1 << 18  # read at a time: what the caches of a processor hold
_TAG = re.compile(rb"\[ *\d+\] ")  # of a rank, before a line of the launcher's log


class SearchTask(NamedTuple):
    """A search for lines, from where one begins."""

    path: str
    pattern: bytes
    start: int
    end: int
    most: int  # lines
    tagged: bool  # lines begin with their ranks, which the expression is not about

    def arguments(self) -> list[str]:
        """Return what the program of this module is given for the task."""
        numbers = (self.start, self.end, self.most, int(self.tagged))
        return [self.path, *map(str, numbers), self.pattern.decode()]

    @classmethod
    def of(cls, arguments: list[str]) -> SearchTask:
        path, start, end, most, tagged, pattern = arguments
        return cls(path, pattern.encode(), int(start), int(end), int(most), tagged == "1")


def literals_of(pattern: bytes) -> tuple[tuple[bytes, ...], bool]:
    """Return texts of which each match holds one, none if no such are known; and whether case matters."""
    tree = parser.parse(pattern)
    folded = bool(tree.state.flags & re.IGNORECASE)
    found = _literals(tree)
    if not found or min(map(len, found)) < 2 or b"\n" in b"".join(found):
        return (), not folded
    return tuple(text.lower() for text in found) if folded else tuple(found), not folded


def _literals(items: Any) -> list[bytes]:
    """Return the best set of texts of which one must occur wherever this sequence matches."""
    best: list[bytes] = []
    text = bytearray()
    for code, value in [*items, (None, None)]:
        if code is codes.LITERAL and value < 128:
            text.append(value)
            continue
        best = _better(best, [bytes(text)])
        text.clear()
        if code is codes.SUBPATTERN:
            best = _better(best, _literals(value[3]))
        elif code is codes.BRANCH:
            branches = [_literals(branch) for branch in value[1]]
            best = _better(best, [text for branch in branches for text in branch] if all(branches) else [])
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT) and value[0] > 0:
            best = _better(best, _literals(value[2]))
    return best


def _better(one: list[bytes], other: list[bytes]) -> list[bytes]:
    def rank(texts: list[bytes]) -> tuple[int, int]:
        return (min(map(len, texts)), -len(texts)) if texts else (0, 0)

    return max(one, other, key=rank)


def is_bounded(pattern: bytes) -> bool:
    """Return whether an expression takes a bounded time at each place: nothing in it repeats without a limit.

    Those that look around or at the ends of the whole text do not count as such.
    """
    return _bounded(parser.parse(pattern))


def _bounded(items: Any) -> bool:
    for code, value in items:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT) and (value[1] > 256 or not _bounded(value[2])):
            return False
        if code in (codes.GROUPREF, codes.GROUPREF_EXISTS, codes.ASSERT, codes.ASSERT_NOT):
            return False
        if code is codes.AT and value in (codes.AT_BEGINNING_STRING, codes.AT_END_STRING):
            return False
        if code is codes.SUBPATTERN and not _bounded(value[3]):
            return False
        if code is codes.BRANCH and not all(map(_bounded, value[1])):
            return False
    return True


class LineFinder:
    """Finds the lines of a block that match an expression, by looking for something quicker first."""

    def __init__(self, pattern: bytes, tagged: bool) -> None:
        self._expression, self._tagged = re.compile(pattern), tagged
        self._texts, self._cased = literals_of(pattern)
        # Looking through many lines at once is right where nothing in the expression can tell the end of a line from
        # the end of all, and quick where nothing in it may run on from line to line.
        self._at_once = re.compile(pattern, re.MULTILINE) if is_bounded(pattern) else None

    def lines_in(self, block: bytes, size: int) -> Iterator[int]:
        """Yield where the matching lines among the first `size` bytes of a block begin."""
        looked = block if self._cased or not self._texts else block.lower()
        place = 0
        while place < size:
            hit = self._next(looked, place, size)
            if hit < 0:
                return
            first = block.rfind(b"\n", 0, hit) + 1
            last = block.find(b"\n", hit)
            last = len(block) if last < 0 else last
            if self._matches(block[first:last]):
                yield first
            place = last + 1

    def _next(self, block: bytes, place: int, size: int) -> int:
        """Return where a match may be next; -1: nowhere."""
        if self._texts:
            return min(
                (hit for text in self._texts if (hit := block.find(text, place, size)) >= 0), default=-1
            )
        if self._at_once is None:
            return place
        match = self._at_once.search(block, place, size)
        return match.start() if match else -1

    def _matches(self, line: bytes) -> bool:
        tag = _TAG.match(line) if self._tagged else None
        return self._expression.search(line[tag.end() :] if tag else line) is not None


def matching_lines(task: SearchTask) -> Iterator[tuple[int | None, int]]:
    """Yield (offset of a line that matches, offset up to which all was looked at); without a line after each block."""
    finder = LineFinder(task.pattern, task.tagged)
    start = task.start
    with open(task.path, "rb", buffering=0) as file:  # noqa: PTH123 (importing pathlib takes as long as the rest)
        file.seek(start)
        rest = b""
        while True:
            wanted = min(BLOCK_BYTES, task.end - start - len(rest))
            data = file.read(wanted) if wanted > 0 else b""
            block = rest + data if rest else data
            size = block.rfind(b"\n") + 1 if data else len(block)
            if not size and data and len(block) < 256 * BLOCK_BYTES:  # a long line
                rest = block
                continue
            size = size or len(block)
            for place in finder.lines_in(block, size):
                yield start + place, start + place + 1
            start += size
            rest = block[size:]
            yield None, start
            if not data:
                return


def main(arguments: list[str]) -> None:
    """Print what `matching_lines` finds, until there is enough."""
    task = SearchTask.of(arguments)
    left = task.most
    for line, looked in matching_lines(task):
        if line is not None:
            print(line)
            left -= 1
        if line is None or not left:
            print("at", looked, flush=True)
        if not left:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
