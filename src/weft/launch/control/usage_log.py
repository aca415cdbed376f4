"""The log of what a run uses of its hosts: `metrics/system.jsonl`, one line for a sample of all of them.

[1700000000123, {"a": {"cpu": 0.9, "memory_bytes": 5e9, ...}, "b": {...}}]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from weft.launch.agent.protocol import HostUsed
from weft.reporting.names import FOLDER

NAME = f"{FOLDER}/system.jsonl"


class UsageLog:
    """Gathers the samples of all hosts into lines; `keep` adds to a file of the run directory."""

    def __init__(self, keep: Callable[[str, bytes], None]) -> None:
        self._keep = keep
        self._samples: dict[str, Mapping[str, float]] = {}  # since the last line
        self._hosts: set[str] = set()  # that are awaited for the next line

    def hear(self, host: str, used: HostUsed) -> None:
        """Take in a sample; a line is written when all hosts of the line before have sent one, or one has sent two."""
        if host in self._samples:
            self._hosts = set(self._samples)
            self._write(used.time_ms)
        self._samples[host] = used.values
        if self._hosts and self._samples.keys() >= self._hosts:
            self._write(used.time_ms)

    def _write(self, time_ms: int) -> None:
        line = json.dumps([time_ms, self._samples], separators=(",", ":"))
        self._keep(NAME, line.encode() + b"\n")
        self._hosts |= self._samples.keys()
        self._samples = {}
