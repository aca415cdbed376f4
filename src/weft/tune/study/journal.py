"""The journal of a study: events as lines of a file that is only added to.

A line is written in one piece before what it tells is done, so a process that is killed at any moment leaves a state
from which another goes on: a last line that was cut short is removed, and no trial has two numbers.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from weft.tune.study.config import StudyError
from weft.tune.study.events import AnyEvent, StudyEvent, decode_event, encode_event

if TYPE_CHECKING:
    from weft.tune.study.core import StudyCore

FILE = "journal.jsonl"
INBOX = "inbox.jsonl"


class StudyJournal:
    """The journal in one folder, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file: int | None = os.open(folder / FILE, flags, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StudyError(
                f"a study must be run by one process at a time, got another that runs {folder}; "
                "weft study show tells how far it is"
            ) from None
        data = (folder / FILE).read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._file, whole)

    def read(self) -> list[AnyEvent]:
        """Return all events so far."""
        return read_events(self.folder)

    def write(self, events: Iterable[StudyEvent]) -> None:
        """Add events, whole or not at all."""
        if self._file is None:
            raise StudyError(
                f"a study must be open to be changed, got {self.folder.name}, which was closed; load it"
            )
        data = b"".join(map(encode_event, events))
        while data:
            data = data[os.write(self._file, data) :]

    def remove_if_empty(self) -> None:
        """Remove the file of a study that could not begin: one without events is none."""
        if self._file is not None and not os.fstat(self._file).st_size:
            with suppress(OSError):
                (self.folder / FILE).unlink()
                self.folder.rmdir()  # unless it holds something else

    def close(self) -> None:
        """Let another process have the study."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:  # a study that nobody closed holds its folder no longer than it lives
        self.close()


class OpenedStudy:
    """The core and the journal of one folder, for all studies of this process that have it open."""

    def __init__(self, folder: Path, journal: StudyJournal) -> None:
        self._folder, self.journal = folder.resolve(), journal
        self.core: StudyCore  # as soon as its events are read
        self._users = 0

    @classmethod
    def of(cls, folder: Path) -> OpenedStudy:
        """Return what is open of a folder, or open it; StudyError where another process has it."""
        found = _OPEN.get(folder.resolve())
        if found is None:
            found = _OPEN[folder.resolve()] = cls(folder, StudyJournal(folder))
        found._users += 1
        return found

    def leave(self) -> None:
        """Let go of it; the last of its users lets another process have the folder."""
        self._users -= 1
        if not self._users:
            _OPEN.pop(self._folder, None)
            self.journal.remove_if_empty()
            self.journal.close()


_OPEN: WeakValueDictionary[Path, OpenedStudy] = WeakValueDictionary()  # of this process


def read_events(folder: Path) -> list[AnyEvent]:
    """Return the events of a study's folder, whoever runs it; a last line without its end is left out."""
    try:
        data = (folder / FILE).read_bytes()
    except OSError as error:
        raise StudyError(
            f"a study must have a journal in {folder}, got {error.strerror}; see weft studies"
        ) from None
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    try:
        return [decode_event(line) for line in lines]
    except msgspec.DecodeError as error:
        raise StudyError(
            f"the journal of {folder} must hold events, got {error}; restore it from a backup"
        ) from None


def has_begun(folder: Path) -> bool:
    """Return whether a folder has a study: its first event is there, whole."""
    try:
        with (folder / FILE).open("rb") as file:
            return file.readline().endswith(b"\n")
    except OSError:
        return False


def is_held(folder: Path) -> bool:
    """Return whether a process runs the study of a folder now."""
    try:
        handle = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(handle)
