"""TensorBoard's event files of a job: their scalars are points."""

from __future__ import annotations

from dataclasses import dataclass

from weft.jobs.reports.gathered import Gathered, Position
from weft.reporting.event_files import UNREADABLE, event_scalars, records, whole_records


@dataclass(frozen=True)
class EventRecords:
    """Event files of one folder; `group` is the folder below the one that was named, a prefix of its metrics."""

    group: str

    def whole(self, data: bytes) -> int:
        """Return the length of the whole records at the start of a piece."""
        return whole_records(data)

    def parse(self, data: bytes, position: Position, now_ms: int) -> tuple[Gathered, Position]:
        found = Gathered()
        for event in records(data):
            try:
                if event is None:
                    raise ValueError("a broken record")
                for step, time_ms, tag, scalar in event_scalars(event):
                    found.add(f"{self.group}/{tag}" if self.group else tag, step, time_ms, scalar)
            except UNREADABLE:
                found.skipped += 1
        return found, position.after(len(data))
