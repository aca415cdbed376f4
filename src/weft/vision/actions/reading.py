"""Marked actions in a table: film, action, start and end in seconds, as a CSV beside the films."""

from __future__ import annotations

import csv
from pathlib import Path

from weft.errors import UsageError
from weft.vision.actions.clips import MarkedAction

COLUMNS = {
    "film": ("film", "video", "file", "filename", "file_name", "path"),
    "label": ("action", "label", "tag", "class", "name"),
    "start": ("start", "start_s", "start_time", "begin", "from"),
    "end": ("end", "end_s", "end_time", "stop", "to"),
}


def read_marks(path: Path) -> list[MarkedAction]:
    """Return what a table marks; a line that cannot be read is refused with its number."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            sample = file.read(4096)
            file.seek(0)
            delimiter = max(",;\t", key=sample.partition("\n")[0].count)
            rows = list(csv.reader(file, delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} must be a CSV with film, action, start and end: {error}") from None
    head = [name.strip().lower() for name in rows[0]] if rows else []
    places = {
        kind: next((head.index(name) for name in names if name in head), None)
        for kind, names in COLUMNS.items()
    }
    if None in places.values():
        raise UsageError(
            f"{path} must have the columns film, action, start and end, got {', '.join(head)[:100]}"
        )
    return [_mark(path, number, row, places) for number, row in enumerate(rows[1:], 2) if any(row)]


def _mark(path: Path, number: int, row: list[str], places: dict[str, int | None]) -> MarkedAction:
    try:
        film, label, start, end = (
            row[places[kind] or 0].strip() for kind in ("film", "label", "start", "end")
        )
        found = MarkedAction(path.parent / film, label, seconds_of(start), seconds_of(end))
    except (IndexError, ValueError):
        raise UsageError(f"{path}:{number} must have a film, an action and two times, got {row}") from None
    if not label or not 0 <= found.start_s < found.end_s:
        raise UsageError(f"{path}:{number} must name an action that begins before it ends, got {row}")
    if not found.film.is_file():
        raise UsageError(f"{path}:{number} must name a film beside the table, got {film}, which is not there")
    return found


def seconds_of(text: str) -> float:
    """Return seconds, or hours, minutes and seconds with colons between, as seconds."""
    found = 0.0
    for part in text.split(":"):
        found = found * 60 + float(part)
    return found
