"""The budget of device memory, as `limit=` and `--lms` take it: a size or "auto"."""

from __future__ import annotations

from weft.text import parse_size


def parse_limit(given: str | int | float) -> int | None:
    """Return a budget in bytes; None for "auto"."""
    return None if given == "auto" else parse_size(given, "limit", write="limit='20GB'")
