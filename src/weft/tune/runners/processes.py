"""Processes of trials: started in sessions of their own, found again after a fault, ended with what they started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from weft.files import write_whole
from weft.reporting.names import VARIABLE, file_channel

NOTE = "process.json"  # which process runs a trial
GRACE_S = 10.0  # from asking a process to end until it is ended


class TrialProcess:
    """The process of one trial."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], folder: Path, *, cwd: Path | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoints = folder / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        (folder / "metrics").mkdir(exist_ok=True)
        paths = {
            "WEFT_RUN_DIR": str(folder),
            "WEFT_CHECKPOINT": str(checkpoints),
            VARIABLE: file_channel(str(folder), 0),
        }
        self.folder = folder
        self._asked_s: float | None = None
        with (folder / "log.txt").open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    argv,
                    env={**os.environ, **env, **paths, "PYTHONUNBUFFERED": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=cwd,
                    start_new_session=True,
                )
            except OSError as error:
                from weft.tune.study.config import StudyError

                raise StudyError(
                    f"the command must be a program, got {argv[0]}: {error.strerror}; check the path"
                ) from None
        note = {"pid": self._process.pid, "ticks": start_ticks(self._process.pid)}
        write_whole(folder / NOTE, json.dumps(note))

    def poll(self) -> int | None:
        """Return the exit code, None while it runs; what it started and left behind is ended."""
        code = self._process.poll()
        if code is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            (self.folder / NOTE).unlink(missing_ok=True)
        elif self._asked_s is not None and time.monotonic() - self._asked_s > GRACE_S:
            self.kill()
        return code

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def told(self) -> bool:
        """Whether it was asked to end."""
        return self._asked_s is not None

    def ask(self) -> None:
        """Ask it to save what it has and end."""
        if self._asked_s is None:
            self._asked_s = time.monotonic()
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it now."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Wait until it has ended."""
        self._process.wait()
        self.poll()


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot: a pid alone may be another's by now."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def end_left_over(folder: Path) -> bool:
    """End the process that a killed study left running in a trial's folder; return whether there was one."""
    try:
        note = json.loads((folder / NOTE).read_text())
        pid, ticks = int(note["pid"]), note["ticks"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    alive = ticks is not None and start_ticks(pid) == ticks
    if alive:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        while start_ticks(pid) == ticks and _state(pid) not in ("Z", "X", ""):
            time.sleep(0.01)
    (folder / NOTE).unlink(missing_ok=True)
    return alive


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
