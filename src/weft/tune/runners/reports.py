"""Reports of a script's process: the file that weft.log writes, and lines of JSON that it prints."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from weft.tune.runners.logged import LoggedElsewhere

STEPS = ("step", "epoch", "iteration")  # names of the step in a printed line
LONGEST_LINE = 1 << 20
ELSEWHERE_S = 0.25  # between two looks at what other tools were told


class TailedFile:
    """A file that grows, read by whole lines."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that are new."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return
        end = data.rfind(b"\n") + 1
        self._position += end
        yield from data[:end].splitlines()


class TrialReports:
    """Everything that one trial reports."""

    def __init__(self, folder: Path, cwd: Path | None = None) -> None:
        self.elsewhere = LoggedElsewhere(folder, cwd)
        self._looked_s = -math.inf
        self._metrics = TailedFile(folder / "metrics" / "rank-0.jsonl")
        self._log = TailedFile(folder / "log.txt")
        self._printed = 0

    def new(self, *, last: bool = False) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield the steps and metrics that have come since; `last`: the process has ended."""
        if last or time.monotonic() - self._looked_s > ELSEWHERE_S:
            self._looked_s = time.monotonic()
            yield from self.elsewhere.new(last=last)
        for line in self._metrics.lines():
            found = logged(line)
            if found is not None:
                yield found
        for line in self._log.lines():
            if line[:1] == b"{" and len(line) < LONGEST_LINE:
                printed = _printed(line)
                if printed is not None:
                    self._printed += 1
                    step, values = printed
                    yield (self._printed if step is None else step), values


def logged(line: bytes) -> tuple[int, dict[str, float]] | None:
    """Return the step and the metrics of a line of weft.log's file; None for one of another kind or rank."""
    try:
        _, step, values, *rank = json.loads(line)
        if step is None or rank not in ([], [0]):
            return None
        return int(step), {str(name): float(value) for name, value in values.items()}
    except (ValueError, TypeError, AttributeError):
        return None


def _printed(line: bytes) -> tuple[int | None, dict[str, float]] | None:
    try:
        found: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    step = next((found.pop(name) for name in STEPS if isinstance(found.get(name), int)), None)
    numbers = {
        str(name): float(value)
        for name, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    return (step, numbers) if numbers else None


def last_lines(folder: Path, count: int = 5) -> str:
    """Return the last lines of a trial's log, in one line."""
    try:
        lines = (folder / "log.txt").read_bytes()[-8192:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    return joined_lines(lines, count)


def joined_lines(lines: Iterable[str], count: int = 5) -> str:
    """Return the last lines that are not empty, in one line of at most 1,000 characters."""
    kept = [line.strip() for line in lines if line.strip()][-count:]
    return " | ".join(kept)[-1000:]
