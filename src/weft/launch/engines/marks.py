"""Marks in the standard error of a worker, where its output is all that comes back: no program prints such.

`weft.launch.engines.adopt` writes one when the worker it started has ended, and `weft.log` one with what was logged;
the launcher takes them out again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from weft.reporting.names import MARK as POINTS_MARK

_MARK = re.compile(rf"\x1eweft: (ended|was ended) with (-?\d+)\x1e\n|{POINTS_MARK}([^\x1e\n]*)\x1e\n")
_UNFINISHED = re.compile(r"\x1e[^\x1e\n]{0,8192}\x1e?\Z")  # the end of a chunk that may yet become a mark


@dataclass(frozen=True)
class Ended:
    """A worker's end: its exit code, or the negative of a signal; `asked`: it had been told to end."""

    code: int
    asked: bool = False


@dataclass(frozen=True)
class Logged:
    """Lines for the metrics file of a worker."""

    text: str


def end_mark(ended: Ended) -> str:
    return f"\x1eweft: {'was ended' if ended.asked else 'ended'} with {ended.code}\x1e\n"


class MarkFinder:
    """Takes the marks out of one worker's output; feed it chunks as they come."""

    def __init__(self) -> None:
        self._pending = ""

    def feed(self, chunk: str) -> list[str | Ended | Logged]:
        text = self._pending + chunk
        found: list[str | Ended | Logged] = []
        start = 0
        for match in _MARK.finditer(text):
            found += [text[start : match.start()], _mark_in(match)]
            start = match.end()
        unfinished = _UNFINISHED.search(text, start)
        end = unfinished.start() if unfinished else len(text)
        self._pending = text[end:]
        return [item for item in [*found, text[start:end]] if item]

    def finish(self) -> str:
        """Return what looked like the start of a mark, now that the output has ended."""
        text, self._pending = self._pending, ""
        return text


def _mark_in(match: re.Match[str]) -> Ended | Logged:
    if match[3] is not None:
        return Logged(match[3].replace("\x1f", "\n"))
    return Ended(int(match[2]), match[1] == "was ended")
