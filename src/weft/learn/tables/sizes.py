"""The shares of a bound on memory: rows of a chunk, bytes of a window and of bin codes."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import DataError
from weft.text import format_size, parse_size, round_up_size

DEFAULT_MEMORY = "4GB"
COLUMN_BYTES = (
    64  # that a column costs in a fit, however few rows have it: coefficients, gradients, directions
)
ALWAYS_WIDE = 1 << 20  # columns that every bound on memory admits
WIDEST = 2**31 - 2  # columns whose numbers fit 32 bits, counted from 0 or from 1
LEAST_ROWS = 256  # of a chunk: below, the work for a chunk outweighs its rows


def parse_memory(given: str | int | float | None) -> int:
    """Return the bytes of `memory=` or `--memory`; the default bound if none is given."""
    given = DEFAULT_MEMORY if given is None else given
    return parse_size(given, "memory", write=f"memory='{DEFAULT_MEMORY}'", error=DataError)


def most_columns(memory: int) -> int:
    """Return the number of columns that a sparse table may have to be fitted within a bound on memory."""
    return min(WIDEST, max(ALWAYS_WIDE, memory // COLUMN_BYTES))


@dataclass(frozen=True)
class MemoryShares:
    """The parts of a bound on memory, in rows and bytes."""

    chunk_rows: int  # read and checked at once
    window_bytes: int  # of a mapped table that is looked at
    codes_bytes: int  # of bin codes that may stay in memory


def share_out(memory: str | int | None, columns: int) -> MemoryShares:
    """Share out a bound for a table of `columns` columns; an error names the smallest bound that works."""
    size = parse_memory(memory)
    # A chunk is held as read, as float64, and as written.
    row = 24 * max(1, columns)
    least = 8 * LEAST_ROWS * row
    if size < least:
        raise DataError(
            f"memory must be at least {format_memory(least)} for {columns} columns, got {format_memory(size)}; "
            f"use memory='{round_up_size(least)}'"
        )
    return MemoryShares(min(1 << 17, size // 8 // row), size // 8, size // 3)


def format_memory(size: int) -> str:
    """Return a size as `memory=` is written, in powers of 1000: `1.5 MB`."""
    return format_size(size, decimal=True, trimmed=True)
