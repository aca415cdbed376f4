"""The signature of a call, in one number: ranks that meet over different ones are not to mix their bytes."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from hashlib import blake2b

WORD_BYTES = 8
HEADER_BYTES = 16
DIFFERS = "made another call, or one with another shape, type or operator,"


@lru_cache(maxsize=4096)
def signature(*what: Hashable) -> int:
    """The same in every process; different for different calls, but for one in 2 ** 63."""
    return int.from_bytes(blake2b(repr(what).encode(), digest_size=WORD_BYTES).digest(), "little") >> 1


def header(*what: Hashable) -> bytes:
    """Return what goes before the bytes of a call, where they are read as they come; what follows has any alignment."""
    return signature(*what).to_bytes(HEADER_BYTES, "little")
