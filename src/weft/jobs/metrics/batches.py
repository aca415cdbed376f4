"""Batches of points as they are sent and kept until they are packed: the points of several metrics, in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from weft.jobs.metrics.columns import Columns, join

Report = tuple[str, int, int, float]  # name, step, time in ms since 1970, value
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(dict[str, tuple[bytes, bytes, bytes]])


def encode_batch(reports: Iterable[Report]) -> bytes:
    """Return points as bytes; points of one metric keep their order."""
    lists: dict[str, tuple[list[int], list[int], list[float]]] = {}
    for name, step, time_ms, value in reports:
        columns = lists.get(name)
        if columns is None:
            columns = lists[name] = ([], [], [])
        columns[0].append(step)
        columns[1].append(time_ms)
        columns[2].append(value)
    return _ENCODER.encode(
        {
            name: (
                np.array(steps, np.int64).tobytes(),
                np.array(times, np.int64).tobytes(),
                np.array(values, np.float64).tobytes(),
            )
            for name, (steps, times, values) in lists.items()
        }
    )


def decode_batch(data: bytes) -> dict[str, Columns]:
    """Return the points of each metric."""
    return {
        name: Columns(
            np.frombuffer(steps, np.int64), np.frombuffer(times, np.int64), np.frombuffer(values, np.float64)
        )
        for name, (steps, times, values) in _DECODER.decode(data).items()
    }


def merge_batches(batches: Sequence[bytes]) -> dict[str, Columns]:
    """Return the points of each metric in several batches, in their order."""
    parts: dict[str, list[Columns]] = {}
    for data in batches:
        for name, columns in decode_batch(data).items():
            parts.setdefault(name, []).append(columns)
    return {name: join(columns) for name, columns in parts.items()}
