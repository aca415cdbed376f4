"""Tags of output lines: parting the output of mpirun or srun into that of its ranks.

Each of them writes the output of all ranks to its own, with a tag that names the rank. A tag mostly starts a line,
but Open MPI 4 and MPICH put one before every piece they read, and a rank may end without an end of line. What has
no tag is the starter's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from weft.launch.control.conductor import STARTER


@dataclass(frozen=True)
class TagStyle:
    """The form of one starter's tags: the rank is the first group, the stream, if it is told, the second."""

    tag: re.Pattern[str]
    unfinished: re.Pattern[str]  # the end of a chunk that may yet become a tag
    line_start: bool = False  # only there is it a tag


OPENMPI_4 = TagStyle(
    re.compile(r"\[\d+,(\d+)\]<(stdout|stderr|stddiag)>:"),
    re.compile(r"\[(\d+(,(\d+(\](<([a-z]*>?)?)?)?)?)?)?\Z"),
)
# prterun may name itself before the job, and there is a space after the colon.
OPENMPI_5 = TagStyle(
    re.compile(r"\[(?:[\w.@-]*@)?\d+,(\d+)\]<(stdout|stderr|stddiag)>: "),
    re.compile(r"\[[\w.@-]*(,(\d+(\](<([a-z]*(>:?)?)?)?)?)?)?\Z"),
)
# MPICH lets the caller choose; this is `-prepend-pattern '[weft %r] '`.
MPICH_PATTERN = "[weft %r] "
MPICH = TagStyle(
    re.compile(r"\[weft (\d+)\] "),
    re.compile(r"\[(w(e(f(t( (\d+\]?)?)?)?)?)?)?\Z"),
)
# srun pads the rank to the width of the largest.
SLURM = TagStyle(
    re.compile(r"^ *(\d+): ", re.MULTILINE),
    re.compile(r"^ *(\d+:?)?\Z", re.MULTILINE),
    line_start=True,
)


@dataclass(frozen=True)
class Said:
    """A piece of one rank's output; it may end anywhere."""

    rank: int
    stream: str  # "out" or "err"
    text: str


_STREAMS = {"stdout": "out", "stderr": "err", "stddiag": "err"}


class Untagger:
    """Parts one stream of a starter; feed it chunks as they come."""

    def __init__(self, style: TagStyle, stream: str) -> None:
        self._style = style
        self._own = (STARTER, stream)
        self._speaker = self._own
        self._at_line_start = True
        self._pending = ""

    def feed(self, chunk: str) -> list[Said]:
        text = self._pending + chunk
        cut = self._unfinished_from(text)
        self._pending = text[cut:]
        return list(self._part(text[:cut]))

    def finish(self) -> list[Said]:
        """Return what looked like the start of a tag, now that the stream has ended."""
        text, self._pending = self._pending, ""
        return list(self._part(text))

    def _unfinished_from(self, text: str) -> int:
        match = self._style.unfinished.search(text)
        if match is None or (match.start() == 0 and self._style.line_start and not self._at_line_start):
            return len(text)
        return match.start()

    def _part(self, text: str) -> Iterator[Said]:
        start = 0
        for match in self._style.tag.finditer(text):
            if match.start() == 0 and self._style.line_start and not self._at_line_start:
                continue
            yield from self._plain(text[start : match.start()])
            stream = _STREAMS[match[2]] if self._style.tag.groups > 1 else self._own[1]
            self._speaker = (int(match[1]), stream)
            self._at_line_start = False
            start = match.end()
        yield from self._plain(text[start:])

    def _plain(self, text: str) -> Iterator[Said]:
        """Text without a tag goes on where the last one stopped; a new line without one is the starter's."""
        if not text:
            return
        if self._speaker != self._own:
            line, newline, text = text.partition("\n")
            yield Said(*self._speaker, line + newline)
            if newline:
                self._speaker = self._own
            self._at_line_start = bool(newline)
        if text:
            yield Said(*self._own, text)
            self._at_line_start = text.endswith("\n")
