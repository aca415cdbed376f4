"""Metrics that a trial's script logs by other tools: event files for TensorBoard, a folder of runs for MLflow.

An event file is found while the trial's processes have it open, wherever it is, or by the process's number in its name.
MLflow gets a folder of the trial's own to log to, unless the script is told where to log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from weft.reporting.event_files import MARK, UNREADABLE, event_scalars, records, whole_records

MLFLOW = "mlruns"
MLFLOW_ADDRESS = "MLFLOW_TRACKING_URI"
EVENT_FOLDERS = (
    "runs",
    "logs",
    "lightning_logs",
    "tb_logs",
)  # where event files are looked for after the end
Point = tuple[int, dict[str, float]]


def mlflow_variables(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which MLflow logs into a trial's folder; none if the script is told where to log."""
    if environ.get(MLFLOW_ADDRESS):
        return {}
    return {MLFLOW_ADDRESS: (folder.resolve() / MLFLOW).as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}


class TailedPiecewise:
    """A file that grows, read by whole records of TensorBoard's or by whole lines."""

    def __init__(self, path: Path) -> None:
        self.path, self._position = path, 0

    def piece(self) -> bytes:
        """Return what is new of it."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return b""
        size = whole_records(data) if MARK in self.path.name else data.rfind(b"\n") + 1
        self._position += size
        return data[:size]


class LoggedElsewhere:
    """Metrics of one trial that MLflow and TensorBoard were told of."""

    def __init__(self, folder: Path, cwd: Path | None = None) -> None:
        self._home, self._cwd = folder / MLFLOW, cwd or Path()
        self.pid: int | None = None  # of the trial's process
        self._events: dict[Path, TailedPiecewise] = {}
        self._runs: dict[Path, TailedPiecewise] = {}
        self._steps: dict[Path, int] = {}

    def new(self, *, last: bool = False) -> Iterator[Point]:
        """Yield what has come since; with `last`, event files that nobody has open any more are looked for, too."""
        if self.pid is not None:
            for path in open_event_files(self.pid):
                self._events.setdefault(path, TailedPiecewise(path))
            if last:
                self._look_for_closed(self.pid)
        for file in self._events.values():
            yield from _scalars(file.piece())
        for path in sorted(self._home.glob("*/*/metrics/**/*")):
            if path.is_file():
                yield from self._of_run(self._runs.setdefault(path, TailedPiecewise(path)))

    def _look_for_closed(self, pid: int) -> None:
        for name in EVENT_FOLDERS:
            for path in (self._cwd / name).rglob(f"*{MARK}*.{pid}.*"):
                self._events.setdefault(path.resolve(), TailedPiecewise(path.resolve()))

    def _of_run(self, file: TailedPiecewise) -> Iterator[Point]:
        """Yield the metrics of one file of MLflow's: lines of a time, a value and a step, which may always be 0."""
        name = file.path.as_posix().rpartition("/metrics/")[2]
        for line in file.piece().splitlines():
            with suppress(ValueError, IndexError):
                _, value, step, *_ = line.split()
                following = self._steps.get(file.path, -1) + 1
                self._steps[file.path] = max(int(step), following)
                yield self._steps[file.path], {name: float(value)}


def _scalars(data: bytes) -> Iterator[Point]:
    for event in records(data):
        with suppress(*UNREADABLE):
            for step, _, tag, value in [] if event is None else event_scalars(event):
                yield step, {tag: value}


def open_event_files(pid: int) -> Iterator[Path]:
    """Yield the event files that a process or one that it started has open."""
    waiting, seen = [pid], set[int]()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        with suppress(OSError, ValueError):
            waiting += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
        with suppress(OSError):
            for entry in Path(f"/proc/{one}/fd").iterdir():
                with suppress(OSError):
                    target = entry.readlink()
                    if MARK in target.name and target.is_absolute():
                        yield target
