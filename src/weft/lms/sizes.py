"""Bytes as people write and read them: "20GB", "512MiB", 26.0 GiB."""

from __future__ import annotations

import re

from weft.errors import UsageError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def parse_bytes(what: str, given: str | int | float) -> int:
    """The bytes that "20GB", "512 MiB" or a number stand for; `what` names the setting in an error."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        count = float(given)
    else:
        found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(given).lower())
        if found is None or found[2].upper() not in _UNITS:
            raise UsageError(
                f"{what} must be a number of bytes such as 20GB, 512MiB or 16e9, got {given!r}; write {what}='20GB'"
            )
        count = float(found[1]) * _UNITS[found[2].upper()]
    if not count >= 1 or count > 1 << 62:
        raise UsageError(f"{what} must be at least 1 byte, got {given!r}; write {what}='20GB'")
    return int(count)


def parse_limit(given: str | int | float) -> int | None:
    """A budget; None for "auto"."""
    return None if given == "auto" else parse_bytes("limit", given)


def show_bytes(count: float) -> str:
    """`26.0 GiB`, `512 MiB`, `3.1 KiB`: three figures, the unit that fits."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= size:
            value = count / size
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"
    return f"{count:.0f} B"


def round_up(count: int) -> str:
    """A budget to write down that is at least `count`, in MB."""
    return f"{-(-count // 10**6)}MB"


def show_seconds(seconds: float) -> str:
    """`12.3 ms`, `45 us`."""
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
