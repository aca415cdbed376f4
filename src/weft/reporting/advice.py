"""Advice to a running script: lines that the jobs service adds to the file that the variable WEFT_ADVICE names.

Each line is an `AdviceLine`: {"number": 1, "action": "halve-rate", "rule": "divergence", "text": "the loss is ..."}.
Only actions that the job's specification allows have lines. `weft.report` returns those that are new to its process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

VARIABLE = "WEFT_ADVICE"


class AdviceLine(msgspec.Struct, frozen=True):
    """One line of the file."""

    number: int
    action: str
    rule: str
    text: str

    def encode(self) -> bytes:
        """Return the line, its end included."""
        return msgspec.json.encode(self) + b"\n"


@dataclass(frozen=True)
class Advice:
    """One thing that the script is asked to do: halve-rate, clip or add-loader-workers."""

    number: int
    action: str
    rule: str
    text: str  # why, in a sentence
    _tell: Callable[[dict[str, Any]], None] = field(repr=False, compare=False, default=lambda _: None)

    def done(self, text: str = "") -> None:
        """Tell the service that the script has acted, which becomes an event of the job."""
        self._tell({"acted": self.number, "action": self.action, "text": text or f"{self.action} is done"})


class AdviceFile:
    """The file of advice, read as far as it has grown; one that is not there yet has none."""

    def __init__(self, path: str | None, tell: Callable[[dict[str, Any]], None]) -> None:
        self._path = Path(path) if path else None
        self._tell, self._offset = tell, 0

    def new(self) -> tuple[Advice, ...]:
        """Return the advice that came since the last call."""
        if self._path is None:
            return ()
        try:
            if self._path.stat().st_size <= self._offset:
                return ()
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return ()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return tuple(found for line in whole.splitlines() if (found := self._read(line)) is not None)

    def _read(self, line: bytes) -> Advice | None:
        try:
            found = msgspec.json.decode(line, type=AdviceLine)
        except (msgspec.DecodeError, ValueError):
            return None
        return Advice(found.number, found.action, found.rule, found.text, self._tell)
