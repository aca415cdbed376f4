"""Lines of a metrics file: one JSON array each, `[time_ms, step, {name: value}]`.

A fourth element is the rank, where it is not the one that the file is named after. A line without a step tells the
progress: `[time_ms, null, {"progress": 0.5, "text": "epoch 3"}]`. NaN and infinity, which JSON lacks, are strings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Entry = tuple[int, int | None, Mapping[str, Any]]  # time in ns since 1970, step, values
_encode = msgspec.json.Encoder().encode


def encode_entry(entry: Entry, rank: int | None) -> bytes:
    """Return one line, its end included."""
    time_ns, step, values = entry
    plain = values if step is None else {name: _number(value) for name, value in values.items()}
    line = [time_ns // 1_000_000, step, plain]
    return _encode(line if rank is None else [*line, rank]) + b"\n"


def split_entry(entry: Entry, rank: int | None, longest: int) -> Iterator[bytes]:
    """Yield an entry as lines of at most a given number of bytes, if it can be parted at all."""
    line = encode_entry(entry, rank)
    time_ns, step, values = entry
    if len(line) <= longest or len(values) < 2:
        yield line
        return
    items = list(values.items())
    for half in (items[: len(items) // 2], items[len(items) // 2 :]):
        yield from split_entry((time_ns, step, dict(half)), rank, longest)


def _number(value: Any) -> float | int | str:
    """Return a number as JSON can hold it; a copy of a device's tensor is read here."""
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    try:
        number = float(value)
    except (
        Exception
    ):  # too large for a float, or the device has failed since: the line is worth more than the value
        return "NaN"
    if math.isfinite(number):
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
