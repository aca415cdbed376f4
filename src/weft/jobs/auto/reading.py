"""Results of a run of `weft.auto` so far: files in the folder of its job, read without trust.

The folder belongs to the job, whose owner may put anything there: links lead nowhere, and large files are not read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import UsageError
from weft.jobs.auto.runs import RUN_FOLDER

PROGRESS, BOARD, EXPLANATION, STOP = "progress.json", "leaderboard.json", "explanation.json", "stop"
_LARGEST_BYTES = 32 << 20
Found = dict[str, Any]


class AutoRunFiles:
    """The files of one run, below the folder of its job."""

    def __init__(self, job_folder: Path) -> None:
        self._folder = job_folder / "checkpoints" / RUN_FOLDER

    @property
    def _is_real(self) -> bool:
        return self._folder.is_dir() and not self._folder.is_symlink()

    def progress(self) -> Found:
        """Return what the run does and its leaderboard; nothing before it has begun."""
        return self._read(PROGRESS)

    def result(self) -> Found:
        """Return the leaderboard, columns and warnings of a run that is over."""
        return self._read(BOARD)

    def explanation(self) -> Found:
        return self._read(EXPLANATION)

    def finish_early(self) -> None:
        """Tell a run to end its search and to finish with the models that it has."""
        if not self._is_real or not (self._folder / PROGRESS).is_file():
            raise UsageError("a run must have begun to be finished early, got one that has not; stop it")
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
        os.close(os.open(self._folder / STOP, flags, 0o644))

    def _read(self, name: str) -> Found:
        if not self._is_real:
            return {}
        try:
            handle = os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as file:
                state = os.fstat(file.fileno())
                if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST_BYTES:
                    return {}
                found = msgspec.json.decode(file.read(_LARGEST_BYTES))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
