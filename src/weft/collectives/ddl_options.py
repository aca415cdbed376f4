"""DDL's option string, as `ddl.init(options)` and DDL_OPTIONS carry it. Pure.

-mode b:4x8x1x1 -dump_iter 10 -dev_sync 1 -rebind_iter 100 -dbg_level 1
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from weft.collectives.choices import ModeChoice, parse_mode
from weft.errors import UsageError

_LEVELS = {"dev_sync": 2, "dbg_level": 2}  # the highest value; DDL counts from 0
_KEYS = ("mode", "dump_iter", "dev_sync", "rebind_iter", "dbg_level")


@dataclass(frozen=True, kw_only=True)
class DdlOptions:
    """The options that DDL takes."""

    mode: ModeChoice | None = None
    dump_iter: int = 0  # report every N steps; 0: never
    dev_sync: int = 0  # ours are always in step with the device
    rebind_iter: int = 0  # look for slow ranks every N steps; `weft run` pins them instead
    dbg_level: int = 0


def parse_ddl_options(text: str) -> DdlOptions:
    """Read an option string; one dash or two, as ddlrun allowed."""
    words = shlex.split(text)
    given: dict[str, str] = {}
    for position in range(0, len(words), 2):
        word = words[position]
        key = word.lstrip("-")
        if not word.startswith("-") or key not in _KEYS:
            known = ", ".join(f"-{name}" for name in _KEYS)
            raise UsageError(f"an option must be one of {known}, got {word!r} in {text!r}")
        if position + 1 == len(words):
            raise UsageError(f"-{key} must be followed by its value, got nothing in {text!r}")
        given[key] = words[position + 1]
    mode = given.pop("mode", None)
    return DdlOptions(
        mode=parse_mode(mode) if mode is not None else None,
        **{key: _number(key, value) for key, value in given.items()},
    )


def _number(key: str, text: str) -> int:
    highest = _LEVELS.get(key)
    number = int(text) if text.isascii() and text.isdigit() else -1
    if number < 0 or (highest is not None and number > highest):
        allowed = "a number from 0 on" if highest is None else f"between 0 and {highest}"
        raise UsageError(f"-{key} must be {allowed}, got {text!r}")
    return number
