"""Points and progress gathered from a piece of a file, and the position up to which it was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from weft.jobs.metrics.batches import Report

LONGEST_NAME = 250  # of a metric in the store
_STEPS = range(-(2**63), 2**63)


@dataclass
class Gathered:
    """Points in the order they were found; the last progress and text, if any were told."""

    points: list[Report] = field(default_factory=list)
    progress: float | None = None
    text: str | None = None
    acts: list[str] = field(default_factory=list)  # what the script did on advice
    skipped: int = 0  # lines or records that could not be read

    def add(self, name: str, step: int, time_ms: int, value: Any, rank: int = 0) -> None:
        """Add a point; a rank other than 0 has a curve of its own beside the one of rank 0."""
        number = as_number(value)
        if number is None or step not in _STEPS:
            self.skipped += 1
            return
        suffix = f"@{rank}" if rank else ""
        self.points.append((name[: LONGEST_NAME - len(suffix)] + suffix, step, time_ms, number))

    def by_name(self) -> dict[str, list[tuple[int, int, float]]]:
        """Return the points of each metric."""
        found: dict[str, list[tuple[int, int, float]]] = {}
        for name, step, time_ms, value in self.points:
            found.setdefault(name, []).append((step, time_ms, value))
        return found


def as_number(value: Any) -> float | None:
    """Return a number, given as one or as the text of one (NaN and infinity are text in JSON); None if it is none."""
    if isinstance(value, bool | int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None


class Position(msgspec.Struct, frozen=True):
    """The place up to which a file was read."""

    total: int = 0  # bytes read from this source so far; it only grows
    offset: int = 0  # in the file as it is now
    inode: int = 0
    count: int = 0  # points found so far, where the file has no steps

    def after(self, size: int, count: int | None = None) -> Position:
        """Return the place so many bytes on."""
        return Position(
            self.total + size, self.offset + size, self.inode, self.count if count is None else count
        )

    def moved_to(self, inode: int, size: int) -> Position:
        """Return the place to go on at in the file that is there now: its start, if it is another or was cut."""
        if self.inode not in (0, inode) or size < self.offset:
            return Position(self.total, 0, inode, self.count)
        return msgspec.structs.replace(self, inode=inode)
