"""The files that an agent writes in the run directory of its host: ledger, events, and the output of its workers.

Lines are written whole and at once. A full disk must not end the training: the first error is reported, and what cannot
be written is left out.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from weft.elastic.history.lines import EVENTS, LEDGER, mend, read_lines, trace_file
from weft.elastic.history.records import StepRecord
from weft.errors import UsageError

JournalLine = dict[str, Any]
PIECE_BYTES = 1 << 16  # of output that is read again


class Journal:
    """The files of one agent. `tell` is called with each event, and with the first error."""

    def __init__(self, run_dir: Path, host: str, run: str, *, tell: Callable[[JournalLine], None]) -> None:
        self._run_dir, self._host, self._run, self._tell = run_dir, host, run, tell
        self._files: dict[Path, BinaryIO] = {}
        self._trouble = ""  # the first error
        self._last = -1, -1  # step and view of the last record in the ledger
        self._has_header = False

    def event(self, name: str, **facts: Any) -> None:
        """Write an event, with the time and the host."""
        line = {"t": round(time.time(), 4), "host": self._host, "event": name, **facts}
        self._write(trace_file(self._run_dir, self._host, EVENTS), line)
        self._tell(line)

    def header(self, header: JournalLine) -> None:
        """Write the header of the ledger; every worker sends one, the first is enough."""
        if not self._has_header:
            self._has_header = True
            line = {"header": {"run": self._run, "host": self._host, **header}}
            self._write(trace_file(self._run_dir, self._host, LEDGER), line)

    def commit(self, record: StepRecord) -> None:
        """Write the record of a committed step; every worker sends one, the first is enough."""
        this = record.step, record.view
        if this[::-1] > self._last[::-1]:
            self._last = this
            self._write(trace_file(self._run_dir, self._host, LEDGER), record.to_json())

    def output(self, slot: int, data: bytes) -> None:
        """Write the output of a worker: kept on its host too, for a run whose launcher is gone."""
        self._append(self._log(slot), data)

    def points(self, slot: int, data: bytes) -> None:
        """Write what a worker logged, for a launcher that is gone or does not keep up."""
        self._append(self._points(slot), data)

    def read_points(self, slot: int, start: int, most: int) -> bytes:
        """Return points of a slot from a byte on."""
        try:
            with self._points(slot).open("rb") as file:
                file.seek(start)
                return file.read(most)
        except OSError:
            return b""

    def _points(self, slot: int) -> Path:
        return self._run_dir / "elastic" / f"{self._host}.{slot}.points"

    def output_since(self, slot: int, start: int, most: int) -> tuple[list[bytes], int]:
        """Return the output of a slot from a byte on, in pieces, and how many bytes the pieces lack.

        Where it is more than `most`, the first piece is a note that tells what is left out.
        """
        try:
            with self._log(slot).open("rb") as file:
                rest = max(0, file.seek(0, os.SEEK_END) - start)
                left_out = max(0, rest - most)
                file.seek(start + left_out)
                data = file.read(rest - left_out)
        except OSError:
            return [], 0
        pieces = [data[first : first + PIECE_BYTES] for first in range(0, len(data), PIECE_BYTES)]
        if not left_out:
            return pieces, 0
        note = f"weft: {left_out} bytes are left out here; {self._log(slot).name} has them\n".encode()
        return [note, *pieces], left_out - len(note)

    def _log(self, slot: int) -> Path:
        return self._run_dir / "elastic" / f"{self._host}.{slot}.log"

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _write(self, path: Path, line: JournalLine) -> None:
        self._append(path, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _append(self, path: Path, data: bytes) -> None:
        try:
            if path not in self._files:
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.suffix == ".jsonl":
                    mend(path)
                self._files[path] = path.open("ab", buffering=0)
            self._files[path].write(data)
        except OSError as error:
            if not self._trouble:
                self._trouble = f"{path}: {error.strerror}"
                self._tell({"event": "trouble", "host": self._host, "cause": self._trouble, "t": time.time()})


def read_outcome(run_dir: Path, host: str) -> tuple[str, int]:
    """Return how the run ended and its exit code, from the events of this host; ("", 0) if they do not say."""
    try:
        lines = read_lines(trace_file(run_dir, host, EVENTS))
    except UsageError:
        return "", 0
    kinds = ("finished", "failed", "paused")
    ends = [line for _, line in lines if line["event"] in kinds and "worker" not in line]
    return (str(ends[-1]["cause"]), int(ends[-1]["code"])) if ends else ("", 0)
