"""The console: lines that workers print go to the terminal with their rank, every byte to the rank's own log.

Sequences that would change the terminal are left out there (see `escapes.py`), and kept in the log.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from weft.launch.agent.wire import text_to_bytes
from weft.launch.control.escapes import strip_escapes
from weft.reporting.names import FOLDER as METRICS_FOLDER
from weft.reporting.names import file_name as metrics_name

_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
_ERASE = b"\r\x1b[2K"
PRIVATE = 0o700  # the mode of a folder in a run directory
LONGEST_LINE = 1 << 16  # bytes; what is longer is printed in pieces, or it would have to be kept


@dataclass
class Console:
    """Prints workers' lines as they come, whole, never two mixed.

    A progress bar rewrites its line with carriage returns. On a terminal the bar of the rank that moved last is
    kept live at the bottom; elsewhere only its final state is printed.
    """

    world_size: int
    logs: Path | None = None
    out: BinaryIO = field(default_factory=lambda: sys.stdout.buffer)
    err: BinaryIO = field(default_factory=lambda: sys.stderr.buffer)
    colour: bool | None = None
    _unfinished: dict[tuple[int, str], bytes] = field(default_factory=dict)  # lines still being written
    _files: dict[Path, BinaryIO] = field(default_factory=dict)
    _live: bool = False

    def __post_init__(self) -> None:
        self._terminal = self.err.isatty() and self.out.isatty()
        if self.colour is None:
            self.colour = self._terminal and "NO_COLOR" not in os.environ

    def write(self, rank: int, stream: str, data: bytes) -> None:
        """Take what a rank printed, in pieces of any size."""
        self.keep(log_name(rank), data)
        lines, newline, rest = (self._unfinished.get((rank, stream), b"") + data).rpartition(b"\n")
        if newline:
            self._emit(rank, stream, lines)
        if b"\r" in rest:
            # Keep only what the last carriage return left: a long-lived bar must not grow without bound.
            # One at the very end has not overwritten anything yet.
            rest = _final(rest) + (b"\r" if rest.endswith(b"\r") else b"")
        if len(rest) > LONGEST_LINE:
            self._emit(rank, stream, rest)
            rest = b""
        self._unfinished[rank, stream] = rest
        self._show_live(rank, rest)

    def keep_points(self, rank: int, data: bytes) -> None:
        """Add what a rank on another host has logged to its metrics file."""
        self.keep(f"{METRICS_FOLDER}/{metrics_name(rank)}", data)

    def say(self, text: str) -> None:
        """Print a line of the launcher's own."""
        self._erase()
        self.err.write(strip_escapes(text_to_bytes(text)) + b"\n")
        self.err.flush()

    def close(self) -> None:
        """Print what was left without an end of line, and close the logs."""
        self._erase()
        for (rank, stream), text in self._unfinished.items():
            if text:
                self._emit(rank, stream, text)
        self._unfinished.clear()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _prefix(self, rank: int) -> bytes:
        width = len(str(self.world_size - 1))
        label = f"[{rank:>{width}}] "
        if self.colour:
            label = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{label}\x1b[0m"
        return label.encode()

    def _emit(self, rank: int, stream: str, lines: bytes) -> None:
        """Print whole lines, all in one go: a worker may print a million."""
        self._erase()
        target, prefix = self.err if stream == "err" else self.out, self._prefix(rank)
        lines = strip_escapes(lines)
        if b"\r" in lines:
            lines = b"\n".join(map(_final, lines.split(b"\n")))
        target.write(prefix + lines.replace(b"\n", b"\n" + prefix) + b"\n")
        target.flush()

    def _show_live(self, rank: int, text: bytes) -> None:
        if self._terminal and text.strip():
            self.err.write(_ERASE + self._prefix(rank) + _final(strip_escapes(text)))
            self.err.flush()
            self._live = True

    def _erase(self) -> None:
        if self._live:
            self.err.write(_ERASE)
            self._live = False

    def keep(self, name: str, data: bytes) -> None:
        """Add to a file of the run directory. A full disk ends the logs, not the run."""
        if self.logs is None:
            return
        path = self.logs / name
        try:
            if path not in self._files:
                if path.parent != self.logs:
                    path.parent.mkdir(PRIVATE, exist_ok=True)
                # Unbuffered: a log is read while the run goes on, and after the launcher was killed.
                self._files[path] = path.open("ab", buffering=0)
            self._files[path].write(data)
        except OSError as error:
            self.say(f"weft: no more logs in {self.logs}: {error.strerror}")
            self.logs = None


def log_name(rank: int) -> str:
    return f"rank-{rank}.log"


def _final(text: bytes) -> bytes:
    """Return what a terminal would show of a line with carriage returns in it."""
    return text.rstrip(b"\r").rpartition(b"\r")[2]
