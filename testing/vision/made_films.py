"""Films that tests make: H.264 in MP4, a square that moves to the right."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np


def film_bytes(
    seconds: float = 2, rate: int = 5, width: int = 64, height: int = 48, codec: str = "libx264"
) -> bytes:
    """Return a short film."""
    import av

    target = io.BytesIO()
    with av.open(target, "w", format="mp4") as container:
        stream: Any = container.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(round(seconds * rate)):
            pixels = np.full((height, width, 3), 40, np.uint8)
            left = (number * 4) % (width - 8)
            pixels[8:16, left : left + 8] = (250, 80, 20)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return target.getvalue()


def turned_film(film: bytes) -> bytes:
    """Return a film in MP4 that players turn by a quarter, as telephones write them."""
    upright = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    turned = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    track = film.index(b"tkhd")
    return film[:track] + film[track:].replace(upright, turned, 1)
