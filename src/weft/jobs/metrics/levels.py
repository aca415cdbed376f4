"""Levels of a curve: buckets that keep the smallest and the largest value, so that no spike is lost in a chart.

A bucket of level 1 covers 64 points, one of level 2 covers 64 buckets of level 1, and so on. A chart of at most 2,000
points reads the finest level that has few enough buckets in its range, and joins buckets to what was asked for.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.jobs.metrics.columns import FASTEST, VERSION, ChunkError, Columns

_HEADER = struct.Struct("<BI")  # version, number of buckets
FAN_OUT = 64  # points or buckets in one bucket of the level above


@dataclass(frozen=True)
class Buckets:
    """Points in groups that follow each other; NaN counts as a value only where a bucket has no other."""

    first_step: NDArray[np.int64]
    last_step: NDArray[np.int64]
    first_ms: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    total: NDArray[np.float64]  # of finite values
    finite: NDArray[np.int64]  # how many these are
    count: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.low)

    def slice(self, first: int, end: int) -> Buckets:
        return Buckets(**{name: getattr(self, name)[first:end] for name in Buckets.__dataclass_fields__})

    def where(self, mask: NDArray[np.bool_]) -> Buckets:
        return Buckets(**{name: getattr(self, name)[mask] for name in Buckets.__dataclass_fields__})

    @property
    def mean(self) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.finite > 0, self.total / self.finite, np.nan)


def buckets_of(columns: Columns) -> Buckets:
    """Return points as buckets of one point each."""
    finite = np.isfinite(columns.values)
    return Buckets(
        columns.steps,
        columns.steps,
        columns.times_ms,
        columns.values,
        columns.values,
        np.where(finite, columns.values, 0.0),
        finite.astype(np.int64),
        np.ones(len(columns), np.int64),
    )


def coarsen(buckets: Buckets, starts: NDArray[np.int64]) -> Buckets:
    """Return buckets joined into groups, of which each begins at one of `starts`."""
    if not len(buckets):
        return buckets
    ends = np.append(starts[1:], len(buckets)) - 1
    with np.errstate(over="ignore"):  # sums of the largest numbers are infinite
        totals = np.add.reduceat(buckets.total, starts)
    return Buckets(
        buckets.first_step[starts],
        buckets.last_step[ends],
        buckets.first_ms[starts],
        np.fmin.reduceat(buckets.low, starts),
        np.fmax.reduceat(buckets.high, starts),
        totals,
        np.add.reduceat(buckets.finite, starts),
        np.add.reduceat(buckets.count, starts),
    )


def next_level(buckets: Buckets) -> Buckets:
    """Return the buckets of the level above; the last may cover fewer."""
    return coarsen(buckets, np.arange(0, len(buckets), FAN_OUT))


def thin(buckets: Buckets, most: int) -> Buckets:
    """Return at most a given number of buckets that cover equal parts of the range of steps."""
    if len(buckets) <= most:
        return buckets
    low, high = int(buckets.first_step.min()), int(buckets.first_step.max())
    if low == high or not (np.diff(buckets.first_step) >= 0).all():  # a resumed run counts its steps again
        return coarsen(
            buckets, np.unique(np.linspace(0, len(buckets), most, endpoint=False).astype(np.int64))
        )
    place = (buckets.first_step - low).astype(np.float64) * (most / (high - low + 1.0))
    slot = np.minimum(place.astype(np.int64), most - 1)
    return coarsen(buckets, np.flatnonzero(np.diff(slot, prepend=-1)))


def join_buckets(parts: Sequence[Buckets]) -> Buckets:
    """Return all buckets, one after the other."""
    names = Buckets.__dataclass_fields__
    return Buckets(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def pack_buckets(buckets: Buckets) -> bytes:
    """Return buckets as bytes."""
    arrays = [getattr(buckets, name) for name in Buckets.__dataclass_fields__]
    planes = np.stack([array.view(np.int64) for array in arrays]).view(np.uint8).reshape(len(arrays), -1, 8)
    return _HEADER.pack(VERSION, len(buckets)) + zlib.compress(planes.transpose(0, 2, 1).tobytes(), FASTEST)


def unpack_buckets(data: bytes) -> Buckets:
    """Return the buckets in bytes that `pack_buckets` made."""
    names = list(Buckets.__dataclass_fields__)
    try:
        version, count = _HEADER.unpack_from(data)
        body = zlib.decompress(memoryview(data)[_HEADER.size :])
        planes = np.frombuffer(body, np.uint8).reshape(len(names), 8, count)
    except (struct.error, zlib.error, ValueError) as error:
        raise ChunkError(
            f"a chunk must be whole, got {error}; restore the database from its backup"
        ) from error
    if version != VERSION:
        raise ChunkError(f"a chunk must be of version {VERSION}, got {version}; use a newer weft")
    words = np.ascontiguousarray(planes.transpose(0, 2, 1)).view(np.int64).reshape(len(names), count)
    rows: dict[str, Any] = dict(zip(names, words, strict=True))
    for name in ("low", "high", "total"):
        rows[name] = rows[name].view(np.float64)
    return Buckets(**rows)
