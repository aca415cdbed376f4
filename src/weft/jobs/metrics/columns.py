"""Columns of points: the steps, times and values of one metric, as arrays and as packed bytes.

Steps and times mostly grow evenly, so their second differences are mostly small; zlib then stores a point of a typical
curve in 4 to 9 bytes in place of 24.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import WeftError

VERSION = 1
_HEADER = struct.Struct("<BI")  # version, number of points
FASTEST = 1  # zlib's level: a higher one saves a tenth of the bytes and takes four times as long


class ChunkError(WeftError):
    """Packed points that cannot be read."""


@dataclass(frozen=True)
class Columns:
    """Points of one metric, in the order in which they were reported."""

    steps: NDArray[np.int64]
    times_ms: NDArray[np.int64]  # since 1970
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, points: Sequence[tuple[int, int, float]]) -> Columns:
        """Return points given as (step, time in ms, value)."""
        if not points:
            return EMPTY
        steps, times_ms, values = zip(*points, strict=True)
        return cls(np.array(steps, np.int64), np.array(times_ms, np.int64), np.array(values, np.float64))

    def slice(self, first: int, end: int) -> Columns:
        return Columns(self.steps[first:end], self.times_ms[first:end], self.values[first:end])


EMPTY = Columns(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def join(parts: Sequence[Columns]) -> Columns:
    """Return all points of some columns, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Columns(
        np.concatenate([EMPTY.steps, *(part.steps for part in parts)]),
        np.concatenate([EMPTY.times_ms, *(part.times_ms for part in parts)]),
        np.concatenate([EMPTY.values, *(part.values for part in parts)]),
    )


def pack(columns: Columns) -> bytes:
    """Return points as bytes."""
    body = b"".join((_differences(columns.steps), _differences(columns.times_ms), _planes(columns.values)))
    return _HEADER.pack(VERSION, len(columns)) + zlib.compress(body, FASTEST)


def unpack(data: bytes) -> Columns:
    """Return the points in bytes that `pack` made."""
    try:
        version, count = _HEADER.unpack_from(data)
        if version != VERSION:
            raise ChunkError(f"a chunk must be of version {VERSION}, got {version}; use a newer weft")
        body = zlib.decompress(memoryview(data)[_HEADER.size :])
        if len(body) != 24 * count:
            raise ChunkError(
                f"a chunk of {count} points must hold {24 * count} bytes, got {len(body)}; restore it"
            )
    except (struct.error, zlib.error) as error:
        raise ChunkError(
            f"a chunk must be whole, got {error}; restore the database from its backup"
        ) from error
    third = 8 * count
    return Columns(_sums(body[:third]), _sums(body[third : 2 * third]), _numbers(body[2 * third :], count))


def _differences(numbers: NDArray[np.int64]) -> bytes:
    twice = np.diff(np.diff(numbers, prepend=np.int64(0)), prepend=np.int64(0))
    return _planes(twice)


def _sums(data: bytes) -> NDArray[np.int64]:
    with np.errstate(over="ignore"):
        twice = _numbers(data, len(data) // 8).view(np.int64)
        return np.cumsum(np.cumsum(twice))


def _planes(numbers: NDArray[np.int64] | NDArray[np.float64]) -> bytes:
    """Return the first bytes of all numbers, then their second bytes, and so on: equal bytes lie side by side."""
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, 8).T.tobytes()


def _numbers(data: bytes, count: int) -> NDArray[np.float64]:
    planes = np.frombuffer(data, np.uint8).reshape(8, count)
    return np.ascontiguousarray(planes.T).view(np.float64).reshape(count)
