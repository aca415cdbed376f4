"""The settings for watching collectives, from flags and variables. Pure, and without torch.

WEFT_REPORT=10        a table of times every 10 steps
WEFT_TRACE=out.json   a timeline of the whole run
WEFT_VERIFY=100       every 100th all_reduce is done again by a plain way, and compared
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weft.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Watching:
    """The kinds of watching that are asked for; none by default."""

    report: int = 0  # steps from one table to the next
    trace: str = ""  # the file to write
    verify: int = 0  # all_reduces from one that is verified to the next

    @property
    def on(self) -> bool:
        return bool(self.report or self.trace or self.verify)


def watching_from_env(environ: Mapping[str, str]) -> Watching:
    """Return what this process was asked to watch."""
    return Watching(
        report=every("WEFT_REPORT", environ.get("WEFT_REPORT") or "0"),
        trace=environ.get("WEFT_TRACE") or "",
        verify=every("WEFT_VERIFY", environ.get("WEFT_VERIFY") or "0"),
    )


def every(name: str, text: str) -> int:
    """Return a number of steps or calls; 0 is never."""
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{name} must be a whole number, 0 for never, got {text!r}; write {name}=10")
    return int(text)


def check_every(flag: str, number: int | None, example: int) -> None:
    """Refuse a flag that asks for nothing, or for nonsense."""
    if number is not None and number < 1:
        raise UsageError(
            f"{flag} must be a whole number from 1 on, got {number}; write {flag} {example}, or leave it out"
        )


def check_trace(path: Path, *, here: bool) -> None:
    """Refuse a file that cannot be written; one on another host (not `here`) is seen only at the end."""
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent  # the missing ones are made
    if path.is_dir():
        problem = "a folder"
    elif here and not folder.is_dir():
        problem = f"{folder} which is no folder"
    elif here and not os.access(path if path.exists() else folder, os.W_OK):
        problem = "no permission"
    else:
        return
    raise UsageError(
        f"--trace must be a file that can be written, got {path}: {problem}; write --trace out.json"
    )
