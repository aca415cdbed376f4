"""Lists of names in messages, cut short."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN = 5  # names in a message


def some(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
