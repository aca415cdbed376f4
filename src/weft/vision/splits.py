"""Splits by content: a picture's bytes decide where it goes, so that adding pictures moves none of the others."""

from __future__ import annotations

import hashlib

from weft.vision.records import Split

DEFAULT_SHARES = (0.8, 0.1, 0.1)  # of train, validation and test


def split_by_content(
    sha256: str, shares: tuple[float, float, float] = DEFAULT_SHARES, seed: str = ""
) -> Split:
    """Return the split of a picture with this digest. Copies of a picture go to the same split."""
    drawn = int.from_bytes(hashlib.sha256(f"{seed}:{sha256}".encode()).digest()[:8], "big") / 2**64
    if drawn < shares[0]:
        return "train"
    return "validation" if drawn < shares[0] + shares[1] else "test"
