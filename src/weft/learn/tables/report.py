"""The report of a conversion, and the fingerprint of the files that a table was made from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import DataError
from weft.learn.tables.read import BadRow

TOLD = 20  # most bad rows that a report names; all are counted


@dataclass
class ConversionReport:
    """The rows and columns that a conversion wrote, and the rows and files that it left out."""

    folder: str
    rows: int = 0
    columns: int = 0
    bytes: int = 0
    bad_rows: int = 0
    bad_files: list[str] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.bad_rows and not self.bad_files

    def add(self, row: BadRow) -> None:
        self.bad_rows += 1
        if len(self.bad) < TOLD:
            self.bad.append(row)

    def check_rows(self, rows: int) -> None:
        """Raise an error with the first reasons where a conversion found no good row."""
        if not rows:
            told = "; ".join(self.lines()[:3]) or "they are empty"
            raise DataError(f"the files must hold at least one good row, got none: {told}")

    def lines(self) -> list[str]:
        """Return one line for each row or file that was left out."""
        told = [str(row) for row in self.bad] + self.bad_files
        if self.bad_rows > len(self.bad):
            told.append(f"and {self.bad_rows - len(self.bad)} more rows")
        return told


def fingerprint(sources: list[Any], target: str | None) -> str:
    """Return a hash of the names, sizes and times of files, and of the target; data sets do not count."""
    digest = hashlib.sha256(repr(target).encode())
    for source in (one for one in sources if isinstance(one, Path)):
        stat = source.stat()
        digest.update(f"{source.resolve()}|{stat.st_size}|{stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
