"""What a host's agent writes down in the run directory of its host: the ledger, the events, what its workers print.

Lines go out whole and at once. A full disk must not end the training it watches: what cannot be written is counted and
told once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from weft.elastic.history.lines import EVENTS, LEDGER, mend, read_lines, trace_file
from weft.errors import UsageError

Message = dict[str, Any]


class Journal:
    """The files of one agent."""

    def __init__(self, run_dir: Path, host: str, run: str, *, tell: Callable[[Message], None]) -> None:
        self._run_dir, self._host, self._run, self._tell = run_dir, host, run, tell
        self._files: dict[Path, BinaryIO] = {}
        self._trouble = ""
        self._last = -1, -1  # step and view of the last record
        self._has_header = False

    def event(self, name: str, **facts: Any) -> None:
        """Something happened."""
        line = {"t": round(time.time(), 4), "host": self._host, "event": name, **facts}
        self._write(trace_file(self._run_dir, self._host, EVENTS), line)
        self._tell(line)

    def header(self, header: Message) -> None:
        """What the ledger is about; every worker says it, one is enough."""
        if not self._has_header:
            self._has_header = True
            line = {"header": {"run": self._run, "host": self._host, **header}}
            self._write(trace_file(self._run_dir, self._host, LEDGER), line)

    def commit(self, record: Message) -> None:
        """A step was committed; every worker says so, one is enough."""
        this = record["step"], record["view"]
        if this[::-1] > self._last[::-1]:
            self._last = this
            self._write(trace_file(self._run_dir, self._host, LEDGER), record)

    def output(self, slot: int, data: bytes) -> None:
        """What a worker printed: kept here too, for a run whose launcher is gone."""
        self._append(self._run_dir / "elastic" / f"{self._host}.{slot}.log", data)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _write(self, path: Path, line: Message) -> None:
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


def outcome(run_dir: Path, host: str) -> tuple[str, int]:
    """How the run ended, and its exit code, as the agent of this host wrote them down; nothing if it did not."""
    try:
        lines = read_lines(trace_file(run_dir, host, EVENTS))
    except UsageError:
        return "", 0
    ends = [line for _, line in lines if line["event"] in ("finished", "failed") and "worker" not in line]
    return (str(ends[-1]["cause"]), int(ends[-1]["code"])) if ends else ("", 0)
