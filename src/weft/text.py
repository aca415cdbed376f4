"""Sizes, durations, speeds, tables and plurals, as people write and read them.

    4096, 16e9         bytes
    4kB, 4MB, 4GB, 4TB         powers of 1000
    4KiB, 4MiB, 4GiB, 4TiB     powers of 1024
    4K, 4M, 4G, 4T             powers of 1024 too, as in GNU coreutils

Every flag and every argument that takes a size reads it with `parse_size`, so the same text is the same number of bytes
everywhere. Case and spaces do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from weft.errors import UsageError

_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(
    r"\s*((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(?:([kmgt])(i?b)?|b)?\s*", re.IGNORECASE | re.ASCII
)
_MOST_DIGITS = 300  # of a number: Python reads no integer of 5000, and no float above 1e308
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*([smhdw])", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(r"\s*(?:\d{1,12}(?:\.\d{1,9})?\s*[smhdw]\s*)+", re.IGNORECASE | re.ASCII)
LONGEST_DURATION_S = 3650 * 86400.0  # ten years
LARGEST_SIZE = 1 << 62  # bytes: sums of a few sizes still fit into 64 bits
SHOWN_CHARACTERS = 80  # of a refused value, in the error
ROUNDS_UP = 0.9995  # of a unit: from here on three figures show the next unit, 1 MB in place of 1000 kB


def parse_size(
    given: str | int | float,
    name: str = "a size",
    *,
    write: str = "4KiB or 64MiB",
    error: type[UsageError] = UsageError,
) -> int:
    """Return the bytes that "20GB", "1.5 GiB" or a number stands for.

    An error names the setting `name`, and what to `write` instead.
    """
    size = _bytes_in(given)
    if size is None:
        raise error(
            f"{name} must be a number of bytes such as 20GB, 512MiB or 16e9, got {shorten(given)}; write {write}"
        )
    if not 1 <= size <= LARGEST_SIZE:
        raise error(f"{name} must be at least 1 byte and below 2^62, got {shorten(given)}; write {write}")
    return int(size)


def _bytes_in(given: str | int | float) -> float | None:
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return given
    found = _SIZE.fullmatch(str(given))
    if found is None or len(found[1]) > _MOST_DIGITS:
        return None
    number, letter, suffix = found.groups()
    base = 1000 if suffix and suffix.lower() == "b" else 1024
    unit = base ** _POWERS[letter.lower()] if letter else 1
    return (int(number) if number.isdecimal() else float(number)) * unit


def parse_duration(
    given: str | int | float, name: str = "a duration", *, error: type[UsageError] = UsageError
) -> float:
    """Return the seconds that "90s", "4h", "1h30m", "2 d" or a number stands for."""
    seconds = _seconds_in(given)
    if seconds is None or not 0 <= seconds <= LONGEST_DURATION_S:
        raise error(
            f"{name} must be a time up to ten years such as 90s, 30m or 1h30m, got {given!r}; write 4h"
        )
    return seconds


def _seconds_in(given: str | int | float) -> float | None:
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return float(given)
    if re.fullmatch(r"\s*\d{1,12}(\.\d{1,9})?\s*", str(given), re.ASCII):
        return float(given)
    if not _DURATION.fullmatch(str(given)) or not str(given).strip():
        return None
    return sum(float(number) * _SECONDS[unit.lower()] for number, unit in _DURATION_PART.findall(str(given)))


def format_size(
    count: float, *, decimal: bool = False, trimmed: bool = False, unit: str | None = None
) -> str:
    """Return a size in the largest unit that fits: `26.0 GiB`, `512 MiB`, `12 B`.

    `decimal` counts in kB, MB, GB. `trimmed` leaves out zeros at the end and keeps three figures: `4 KiB`,
    `1.25 GiB`. A fixed `unit`, such as "GiB", makes sizes comparable at a glance.
    """
    base, ending = (1000, "B") if decimal else (1024, "iB")
    for letter in "TGMK":
        name = ("k" if decimal and letter == "K" else letter) + ending
        scale = base ** _POWERS[letter.lower()]
        if name == unit or (unit is None and abs(count) >= ROUNDS_UP * scale):
            value = count / scale
            if trimmed:
                return f"{_three_figures(value)} {name}"
            return f"{value:.0f} {name}" if value >= 100 and unit is None else f"{value:.1f} {name}"
    return f"{count:.0f} B"


def round_up_size(count: int) -> str:
    """Return a size that `parse_size` reads as at least `count` bytes, in whole megabytes: `25MB`."""
    return f"{-(-count // 10**6)}MB"


def format_seconds(seconds: float, *, padded: bool = False) -> str:
    """Return a duration with up to three figures: `12.3 us`, `4.5 ms`, `2 s`; always three if `padded`: `4.50 ms`."""
    unit, scale = "s", 1.0
    for smaller, length in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * ROUNDS_UP * length:
            unit, scale = smaller, length
            break
    value = seconds / scale
    if not padded:
        return f"{_three_figures(value)} {unit}"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def format_speed(mbps: float) -> str:
    """Return a network speed given in Mbit/s with three figures: `25 Gbit/s`, `9.41 Gbit/s`, `100 Mbit/s`."""
    if mbps >= 1000 * ROUNDS_UP:
        return f"{_three_figures(mbps / 1000)} Gbit/s"
    return f"{_three_figures(mbps)} Mbit/s"


def _three_figures(value: float) -> str:
    """Return `1.25`, `26`, `1023`: three figures, none of them a zero at the end, and never an exponent of ten."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_share(part: float, whole: float) -> str:
    """Return a share of a whole in per cent with two figures: `0.31%`, `12%`."""
    return f"{100 * part / whole:.2g}%" if whole > 0 else "0%"


def plural(count: float, noun: str) -> str:
    """Return a count and its noun: `1 step`, `12 steps`, `2 micro-batches`, `0 copies`, `1.5 cores`."""
    shown = f"{count:g}" if isinstance(count, float) else str(count)
    if count == 1:
        return f"{shown} {noun}"
    if noun.endswith(("ch", "sh", "s", "x", "z")):
        return f"{shown} {noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{shown} {noun[:-1]}ies"
    return f"{shown} {noun}s"


def shorten(value: object, most: int = SHOWN_CHARACTERS) -> str:
    """Return a value as an error shows it: in quotes if it is text, and cut where it is long."""
    text = f"an integer of {value.bit_length()} bits" if _is_huge(value) else repr(value)
    return text if len(text) <= most else f"{text[: most - 4]}...{text[-1]}"


def _is_huge(value: object) -> TypeGuard[int]:
    """Return whether a number is an integer that Python writes out as no text."""
    return isinstance(value, int) and value.bit_length() > 1024


def suggestion(given: str, known: Iterable[str]) -> str:
    """Return the advice for a name that is not known: `did you mean target?`, or the names to choose from."""
    from difflib import get_close_matches

    names = sorted(map(str, known))
    near = get_close_matches(given, names, n=1)
    return f"did you mean {near[0]}?" if near else f"write {', '.join(names)}"


@dataclass(frozen=True)
class TableLayout:
    """The columns of a text table: numbers end at the right, and columns named in `left` begin at the left."""

    heads: tuple[str, ...]
    widths: tuple[int, ...]
    left: frozenset[str]

    def line(self, row: Sequence[str]) -> str:
        """Return one row as a line; a cell that is wider than its column pushes the rest to the right."""
        cells = zip(row, self.widths, self.heads, strict=True)
        return "  ".join(
            cell.ljust(width) if head in self.left else cell.rjust(width) for cell, width, head in cells
        ).rstrip()


def table_layout(rows: Sequence[Sequence[str]], left: Collection[str] = ()) -> TableLayout:
    """Return the layout that fits all rows, of which the first holds the heads."""
    widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    return TableLayout(tuple(rows[0]), tuple(widths), frozenset(left))


def format_table(rows: Sequence[Sequence[str]], left: Collection[str] = ()) -> list[str]:
    """Return the lines of a table, of which the first row holds the heads."""
    layout = table_layout(rows, left)
    return [layout.line(row) for row in rows]
