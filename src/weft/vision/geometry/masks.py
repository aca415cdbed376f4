"""Masks in run lengths, as COCO has them: by columns, background first, then in turns; counts as numbers or as text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from weft.errors import PictureError
from weft.vision.geometry.polygons import Bitmap
from weft.vision.records import Box, RunLengths

_OFFSET = 48  # ASCII of the first of the 64 letters that counts are packed into
_MORE = 0x20  # bit of a letter: another one of the same number follows
_SIGN = 0x10  # bit of the last letter of a negative number


def encode_mask(bitmap: Bitmap) -> RunLengths:
    """Return a bitmap's run lengths."""
    height, width = bitmap.shape
    flat = (np.asarray(bitmap) > 0).ravel(order="F")
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    bounds = np.concatenate([[0], changes, [flat.size]])
    counts = np.diff(bounds).tolist()
    if flat.size and flat[0]:
        counts = [0, *counts]
    return RunLengths(width, height, tuple(counts))


def decode_mask(mask: RunLengths) -> Bitmap:
    """Return run lengths as a bitmap of 0 and 1; counts that do not add up to the size are refused."""
    total = mask.width * mask.height
    if any(count < 0 for count in mask.counts) or sum(mask.counts) != total:
        raise PictureError(
            f"the counts of a mask must add up to {mask.width} x {mask.height} = {total} pixels, "
            f"got {sum(mask.counts)}; check the file that it came from"
        )
    values = np.arange(len(mask.counts), dtype=np.uint8) & 1
    flat = np.repeat(values, mask.counts)
    return flat.reshape(mask.height, mask.width, order="F")


def mask_area(mask: RunLengths) -> int:
    """Return the pixels of a mask."""
    return sum(mask.counts[1::2])


def mask_box(mask: RunLengths) -> Box | None:
    """Return the smallest box around a mask; None where it is empty."""
    bitmap = decode_mask(mask)
    columns, rows = np.flatnonzero(bitmap.any(0)), np.flatnonzero(bitmap.any(1))
    if not columns.size:
        return None
    return (float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1))


def mask_iou(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> float:
    """Return the intersection of two bitmaps over their union."""
    union = int(np.count_nonzero(one | other))
    return int(np.count_nonzero(one & other)) / union if union else 0.0


def pack_counts(counts: tuple[int, ...]) -> str:
    """Return counts as COCO's compressed text: from the third on, the difference to the count before the last."""
    text: list[str] = []
    for place, count in enumerate(counts):
        number = count - counts[place - 2] if place > 2 else count
        while True:
            bits = number & 0x1F
            number >>= 5
            more = number != -1 if bits & _SIGN else number != 0
            text.append(chr(_OFFSET + (bits | _MORE if more else bits)))
            if not more:
                break
    return "".join(text)


def unpack_counts(text: str) -> tuple[int, ...]:
    """Return the counts in COCO's compressed text."""
    counts: list[int] = []
    number = shift = 0
    for letter in text:
        bits = ord(letter) - _OFFSET
        if not 0 <= bits < 64 or shift > 60:
            raise PictureError(f"a packed mask must be COCO's text, got {text[:20]!r}; check the file")
        number |= (bits & 0x1F) << shift
        shift += 5
        if bits & _MORE:
            continue
        if bits & _SIGN:
            number -= 1 << shift
        counts.append(number + counts[-2] if len(counts) > 2 else number)
        number = shift = 0
    if shift or any(count < 0 for count in counts):
        raise PictureError(f"a packed mask must be COCO's text, got {text[:20]!r}; check the file")
    return tuple(counts)
