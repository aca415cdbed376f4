"""EXIF: what a camera wrote about a picture, as keys and text that queries can name.

    camera, maker, lens, taken, software, exposure_s, f_number, iso, focal_length_mm, latitude, longitude, altitude_m

Every offset is checked: the bytes come from strangers. What cannot be read is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}  # bytes of each type
_FORMATS = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 11: "f", 12: "d"}
_MOST_ENTRIES = 512  # of one directory
_MOST_VALUES = 4096  # of one entry
_LONGEST = 200  # characters of a text
_TEXTS = {0x010F: "maker", 0x0110: "camera", 0x0131: "software", 0xA434: "lens", 0x9003: "taken"}
_NUMBERS = {0x829A: "exposure_s", 0x829D: "f_number", 0x8827: "iso", 0x920A: "focal_length_mm"}
_ORIENTATION, _EXIF_IFD, _GPS_IFD = 0x0112, 0x8769, 0x8825
_WIDTH, _HEIGHT = 0x0100, 0x0101
_STRIPS = ((0x0111, 0x0117), (0x0144, 0x0145))  # offsets and counts, of strips and of tiles

Entries = dict[int, tuple[float | str, ...]]


@dataclass(frozen=True)
class Exif:
    """The values of one EXIF block, or of a TIFF file, which has the same form."""

    found: bool = False
    orientation: int = 1
    values: Mapping[str, str] = field(default_factory=dict)
    size: tuple[int, int] | None = None  # of a TIFF's first picture
    strips: tuple[tuple[int, int], ...] = ()  # start and length of a TIFF's pixel data


def read_exif(data: bytes) -> Exif:
    """Return what can be read of a block; nothing where it is damaged."""
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None or len(data) < 8:
        return Exif()
    try:
        first = _directory(data, struct.unpack(order + "I", data[4:8])[0], order)
    except struct.error:
        return Exif()
    inner, place = _child(data, first, _EXIF_IFD, order), _child(data, first, _GPS_IFD, order)
    values = _values({**first, **inner})
    values.update(_place(place))
    orientation = _whole(first.get(_ORIENTATION), 1)
    width, height = _whole(first.get(_WIDTH), 0), _whole(first.get(_HEIGHT), 0)
    return Exif(
        found=bool(first),
        orientation=orientation if 1 <= orientation <= 8 else 1,
        values=values,
        size=(width, height) if width and height else None,
        strips=_strips(first),
    )


def _child(data: bytes, parent: Entries, tag: int, order: str) -> Entries:
    at = _whole(parent.get(tag), 0)
    try:
        return _directory(data, at, order) if at else {}
    except struct.error:
        return {}


def _directory(data: bytes, at: int, order: str) -> Entries:
    (count,) = struct.unpack_from(order + "H", data, at)
    entries: Entries = {}
    for place in range(min(count, _MOST_ENTRIES)):
        start = at + 2 + 12 * place
        tag, kind, many = struct.unpack_from(order + "HHI", data, start)
        size = _SIZES.get(kind, 0) * many
        if not size or many > _MOST_VALUES:
            continue
        (far,) = struct.unpack_from(order + "I", data, start + 8)
        begin = start + 8 if size <= 4 else far
        if begin + size <= len(data):
            entries[tag] = _entry(data[begin : begin + size], kind, order)
    return entries


def _entry(raw: bytes, kind: int, order: str) -> tuple[float | str, ...]:
    if kind == 2:
        text = raw.split(b"\0")[0].decode("utf-8", "replace").strip()
        return ("".join(letter for letter in text if letter.isprintable())[:_LONGEST],)
    if kind in (5, 10):
        numbers = struct.unpack(f"{order}{len(raw) // 4}{'I' if kind == 5 else 'i'}", raw)
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return tuple(above / below if below else 0.0 for above, below in pairs)
    if kind not in _FORMATS:
        return ()
    return struct.unpack(f"{order}{len(raw) // _SIZES[kind]}{_FORMATS[kind]}", raw)


def _whole(values: tuple[float | str, ...] | None, default: int) -> int:
    if not values or isinstance(values[0], str):
        return default
    return int(values[0])


def _values(entries: Entries) -> dict[str, str]:
    found: dict[str, str] = {}
    for tag, key in _TEXTS.items():
        if entries.get(tag) and isinstance(entries[tag][0], str) and entries[tag][0]:
            found[key] = str(entries[tag][0])
    for tag, key in _NUMBERS.items():
        if entries.get(tag) and not isinstance(entries[tag][0], str):
            found[key] = f"{entries[tag][0]:.6g}"
    if "taken" in found:  # 2024:05:01 10:20:30, which sorts and reads better as ISO 8601
        day, _, time = found["taken"].partition(" ")
        found["taken"] = f"{day.replace(':', '-')}T{time}" if time else day.replace(":", "-")
    return found


def _place(entries: Entries) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, tag, negative in (("latitude", 2, "S"), ("longitude", 4, "W")):
        values = entries.get(tag, ())
        if len(values) != 3 or any(isinstance(value, str) for value in values):
            continue
        degrees, minutes, seconds = (float(value) for value in values)
        sign = -1 if entries.get(tag - 1, ("",))[0] == negative else 1
        found[key] = f"{sign * (degrees + minutes / 60 + seconds / 3600):.6f}"
    height = entries.get(6, ())
    if height and not isinstance(height[0], str):
        found["altitude_m"] = f"{height[0]:.6g}"
    return found


def _strips(entries: Entries) -> tuple[tuple[int, int], ...]:
    for starts, counts in _STRIPS:
        if starts in entries and counts in entries:
            pairs = zip(entries[starts], entries[counts], strict=False)
            return tuple((int(start), int(count)) for start, count in pairs)
    return ()
