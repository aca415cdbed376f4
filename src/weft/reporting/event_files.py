"""TensorBoard event files: records of TensorFlow's format with scalars in them. No TensorBoard is needed.

A record is its length (8 bytes), a checksum of that, the data and a checksum of the data. The data is a message
`Event` of protobuf: wall_time (1, double), step (2, varint), summary (5) of values (1) with a tag (1) and a number:
simple_value (2, float), or a tensor (8) of one element, as TensorFlow 2 and PyTorch with `new_style=True` write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

MARK = "tfevents"  # in the name of every event file
MOST_BYTES = 64 << 20  # of a record; a longer one is none
_LENGTH = struct.Struct("<Q")
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_HEAD, _TAIL = 12, 4  # bytes around the data of a record
# Types of tensors (DataType in TensorFlow), each with its fields: packed content, list of values.
_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}
_LISTS = {1: 5, 2: 6, 3: 7, 9: 10}  # float_val, double_val, int_val, int64_val

Field = tuple[int, int, int | bytes]  # number, wire type, value
Scalar = tuple[int, int, str, float]  # step, milliseconds, tag, value
UNREADABLE = (struct.error, IndexError, ValueError, OverflowError)


def whole_records(data: bytes) -> int:
    """Return the length of the whole records at the start of a piece; a broken file is read no further."""
    place = 0
    while place + _HEAD <= len(data):
        length = _LENGTH.unpack_from(data, place)[0]
        if length > MOST_BYTES:
            return len(data)
        if place + _HEAD + length + _TAIL > len(data):
            break
        place += _HEAD + length + _TAIL
    return place


def records(data: bytes) -> Iterator[bytes | None]:
    """Yield the events of a piece; None, and no more, where it is broken."""
    place = 0
    while place + _HEAD <= len(data):
        length = _LENGTH.unpack_from(data, place)[0]
        if length > MOST_BYTES or place + _HEAD + length > len(data):
            yield None
            return
        yield data[place + _HEAD : place + _HEAD + length]
        place += _HEAD + length + _TAIL


def event_scalars(event: bytes) -> list[Scalar]:
    """Return the numbers of an event; one of `UNREADABLE` where it is none."""
    step, time_ms, summaries = 0, 0, []
    for number, _, value in fields(event):
        if number == 1 and isinstance(value, bytes):
            time_ms = int(1000 * _DOUBLE.unpack(value)[0])
        elif number == 2 and isinstance(value, int):
            step = value - (1 << 64) if value >= 1 << 63 else value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    return [(step, time_ms, tag, scalar) for summary in summaries for tag, scalar in scalars(summary)]


def scalars(summary: bytes) -> Iterator[tuple[str, float]]:
    """Yield the tags and numbers of a summary; images, histograms and texts are left out."""
    for number, _, value in fields(summary):
        if number != 1 or not isinstance(value, bytes):
            continue
        tag, scalar = "", None
        for inner, wire, content in fields(value):
            if inner == 1 and isinstance(content, bytes):
                tag = content.decode(errors="replace")
            elif inner == 2 and wire == 5 and isinstance(content, bytes):
                scalar = float(_FLOAT.unpack(content)[0])
            elif inner == 8 and isinstance(content, bytes):
                scalar = _tensor_scalar(content)
        if tag and scalar is not None:
            yield tag, scalar


def _tensor_scalar(tensor: bytes) -> float | None:
    """Return the number in a tensor of one element; None if it is of another kind."""
    kind, content, lists = 0, b"", {}
    for number, _, value in fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        else:
            lists[number] = value
    form = _FORMATS.get(kind)
    if form is None:
        return None
    if content:
        return float(struct.unpack(form, content)[0]) if len(content) == struct.calcsize(form) else None
    listed = lists.get(_LISTS.get(kind, 0))
    if isinstance(listed, int):  # one number that is not packed
        return float(listed)
    if isinstance(listed, bytes) and kind in (3, 9):
        number, end = _varint(listed, 0)
        return float(number - (1 << 64) if number >= 1 << 63 else number) if end == len(listed) else None
    if isinstance(listed, bytes) and len(listed) == struct.calcsize(form):
        return float(struct.unpack(form, listed)[0])
    return None


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a protobuf message: varints as numbers, all else as bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield number, wire, value
            continue
        if wire == 2:
            size, place = _varint(message, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field of wire type {wire}")
        if place + size > len(message):
            raise ValueError("a field longer than its message")
        yield number, wire, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")


def event_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the event files below a folder, each with its group: the folder it is in, as seen from there."""
    for path in sorted(folder.rglob(f"*{MARK}*")):
        if path.is_file():
            group = path.parent.relative_to(folder).as_posix()
            yield path, "" if group == "." else group
