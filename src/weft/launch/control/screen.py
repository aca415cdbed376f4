"""`RunScreen` shows what workers print and what the launcher says, and keeps what they print, log and use of hosts."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from weft.launch.agent.protocol import HostUsed, WorkerOutput, WorkerPoints
from weft.launch.agent.wire import text_to_bytes
from weft.launch.control.console import Console
from weft.launch.control.usage_log import UsageLog


class RunScreen:
    """The console and the logs of a run; before there is a run directory, nothing is shown and nothing is kept."""

    def __init__(self, out: BinaryIO, *, most_workers: int) -> None:
        self._out, self._most_workers = out, most_workers
        self._console: Console | None = None
        self._usage: UsageLog | None = None

    @property
    def is_open(self) -> bool:
        return self._console is not None

    def open(self, run_dir: Path) -> None:
        """Show and keep what comes from now on."""
        self._console = Console(max(2, self._most_workers), logs=run_dir, out=self._out)
        self._usage = UsageLog(self._console.keep)

    def close(self) -> None:
        """Print what was left without an end of line, and close the logs."""
        if self._console is not None:
            self._console.close()

    def say(self, text: str) -> None:
        """Print a line of the launcher's own."""
        if self._console is not None:
            self._console.say(f"weft: {text}")

    def write(self, event: WorkerOutput) -> None:
        """Show and keep what a worker printed."""
        assert self._console is not None
        self._console.write(event.rank, event.stream, text_to_bytes(event.text))

    def keep_points(self, event: WorkerPoints) -> None:
        """Keep what a worker on another host has logged."""
        assert self._console is not None
        self._console.keep_points(event.rank, text_to_bytes(event.text))

    def keep_usage(self, host: str, event: HostUsed) -> None:
        """Keep what workers use of a host."""
        if self._usage is not None:
            self._usage.hear(host, event)
