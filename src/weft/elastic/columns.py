"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence


def columns(rows: Sequence[Sequence[str]], left: Collection[str] = ()) -> list[str]:
    """Lines of aligned cells; the first row is the heads, and columns whose head is in `left` begin at the left."""
    return list(aligned(rows, widths_of(rows), left, heads=rows[0]))


def widths_of(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def aligned(
    rows: Sequence[Sequence[str]], widths: Sequence[int], left: Collection[str], *, heads: Sequence[str]
) -> Iterator[str]:
    """As `columns`, for rows that come one by one: cells that are wider than their column push the rest."""
    for row in rows:
        cells = zip(row, widths, heads, strict=True)
        yield "  ".join(
            cell.ljust(width) if head in left else cell.rjust(width) for cell, width, head in cells
        ).rstrip()


def format_bytes(count: float) -> str:
    """`512 B`, `44.7 MB`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def format_share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2g}%" if whole > 0 else "0%"


def plural(count: int, noun: str) -> str:
    """`1 step`, `12 steps`, `2 micro-batches`."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('h') else 's'}"
