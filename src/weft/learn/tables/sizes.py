"""Sizes in bytes, as people write them, and how a bound on memory is shared out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from weft.errors import DataError

UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
DEFAULT = "4GB"
LEAST_ROWS = 256  # of a chunk: below, the work for a chunk outweighs its rows


def size_of(text: str | int) -> int:
    """Bytes of "4GB", "500 MiB", "1.5g" or a number."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*([0-9.]+)\s*([BKMGT]?)(?:I?B)?\s*", text.upper())
    if not match:
        raise DataError(f"memory must be a size like '4GB' or '500MB', got {text!r}")
    return int(float(match[1]) * UNITS[match[2]])


def size_text(size: int) -> str:
    for unit in ("T", "G", "M", "K"):
        if size >= UNITS[unit]:
            return f"{size / UNITS[unit]:.3g}{unit}B"
    return f"{size}B"


@dataclass(frozen=True)
class Shares:
    """What a bound on memory is spent on, in rows and bytes."""

    chunk_rows: int  # read and checked at once
    window_bytes: int  # of a mapped table that is looked at
    codes_bytes: int  # of bin codes that may stay in memory


def share_out(memory: str | int | None, columns: int) -> Shares:
    """Share out a bound for a table of so many columns; the smallest bound that works is named."""
    size = size_of(DEFAULT if memory is None else memory)
    # A chunk is held as read, as float64, and as written.
    row = 24 * max(1, columns)
    least = 8 * LEAST_ROWS * row
    if size < least:
        raise DataError(
            f"memory must be at least {size_text(least)} for {columns} columns, got {size_text(size)}; "
            f"use memory='{-(-least // (1 << 20))}MB'"
        )
    return Shares(min(1 << 17, size // 8 // row), size // 8, size // 3)
