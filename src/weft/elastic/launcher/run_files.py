"""The files of a run directory that the launcher keeps while the run goes on, for those who look at it from outside.

A full disk must not end a launcher: what cannot be written is told once, and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from weft.elastic.launcher.control import (
    FOLDER,
    PAUSE_FILE,
    SCALE_FILE,
    WORKERS_FILE,
    LauncherLock,
    RunControl,
    write_control,
    write_secret,
)
from weft.files import write_whole
from weft.launch.control.console import log_name
from weft.launch.control.outcome import Outcome
from weft.launch.control.rundir import PRIVATE, RunDir
from weft.reporting.names import FOLDER as METRICS_FOLDER
from weft.reporting.names import file_name as metrics_name


class RunFiles:
    """The files of one run, and the lock of its launcher. `warn` is called with the first error."""

    def __init__(
        self, folder: RunDir, *, warn: Callable[[str], None], lock: LauncherLock | None = None
    ) -> None:
        self.folder, self._warn, self._lock = folder, warn, lock
        self.path = folder.path.absolute()
        self._workers: Mapping[str, int] = {}  # as written last
        self._warned = False

    def begin(self, secret: str) -> None:
        """Take the run of a new folder, and keep its secret."""
        (self.path / FOLDER).mkdir(PRIVATE, exist_ok=True)
        self._lock = LauncherLock(self.path)
        write_secret(self.path, secret)

    def close(self) -> None:
        """Let another launcher have the run."""
        if self._lock is not None:
            self._lock.close()

    @property
    def scale_file(self) -> Path:
        """Return the file in which `weft scale` asks for other hosts."""
        return self.path / FOLDER / SCALE_FILE

    @property
    def is_pause_asked(self) -> bool:
        """Return whether the run is to end at its next checkpoint."""
        return (self.path / FOLDER / PAUSE_FILE).exists()

    def keep_control(self, control: RunControl) -> None:
        """Write down what another launcher would have to know."""
        self._write(lambda: write_control(self.path, control))

    def tell_workers(self, workers: Mapping[str, int]) -> None:
        """Write down how many worker processes each host has, if that has changed."""
        if workers != self._workers:
            self._workers = workers
            file = self.path / FOLDER / WORKERS_FILE
            self._write(lambda: write_whole(file, msgspec.json.encode(workers) + b"\n"))

    def write_outcome(self, outcome: Outcome) -> None:
        """Write down how the run ended."""
        self._write(lambda: self.folder.write_outcome(outcome))

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if not self._warned:
                self._warned = True
                self._warn(f"{self.path} cannot be written: {error.strerror}")

    def received(self, ranks: Iterable[int], *, here: bool) -> dict[int, tuple[int, int]]:
        """Return the bytes that workers printed and logged, as far as they are in the run directory, by rank.

        Workers that are `here` write what they log themselves.
        """
        return {rank: (self._size_of(log_name(rank)), 0 if here else self._points(rank)) for rank in ranks}

    def _points(self, rank: int) -> int:
        return self._size_of(f"{METRICS_FOLDER}/{metrics_name(rank)}")

    def _size_of(self, name: str) -> int:
        try:
            return (self.path / name).stat().st_size
        except OSError:
            return 0
