"""Still PNGs: chunks of an animation are taken out before a decoder sees them.

OpenCV's reader of animated PNGs ends the whole process on some damaged ones, and what is wanted is the still picture
that every PNG has. Pure: bytes in, bytes out.
"""

from __future__ import annotations

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_ANIMATION = (b"acTL", b"fcTL", b"fdAT")


def still_png(data: bytes) -> bytes | None:
    """Return a PNG without its animation, the same bytes where it has none; None: its chunks are damaged."""
    if not data.startswith(SIGNATURE) or not any(kind in data for kind in _ANIMATION):
        return data
    kept = [SIGNATURE]
    at = len(SIGNATURE)
    while True:
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        if end > len(data):
            return None
        if kind not in _ANIMATION:
            kept.append(data[at:end])
        if kind == b"IEND":
            return b"".join(kept)
        at = end
