"""The files of one job that are followed: found by what its specification names, read from where they were left."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from weft.jobs.reports.gathered import Gathered, Position
from weft.jobs.reports.parsers import JsonLines, OutputPattern, Parser, PrintedJson, RankLines, SystemLines
from weft.jobs.reports.tails import TailedPiece
from weft.jobs.reports.tensorboard import EventRecords
from weft.jobs.spec.model import JobSpec, JsonLinesSource, OutputSource, RegexSource, TensorboardSource
from weft.reporting.event_files import event_files
from weft.reporting.names import FOLDER

PIECE_BYTES = 1 << 20  # read from one file at a time
QUIET_S = 10.0  # without anything new, after which a job is looked at less often
QUIET_PAUSE_S = 1.0
EVENT_FILES_S = 2.0  # between two searches for new TensorBoard files
LONGEST_NAME = 90  # of a source
_RANK = re.compile(r"rank-(\d+)\.(jsonl|log)")


@dataclass
class FollowedFile:
    """One file: how to read it, how far it was read, and how far the store knows of."""

    source: str
    path: Path
    parser: Parser
    stored: Position = field(default_factory=Position)
    read: Position = field(default_factory=Position)

    def next_piece(self, now_ms: int, *, last: bool) -> TailedPiece | None:
        """Read on; None if there is nothing new. With `last`, what is not whole is read too."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            self.read = self.read.moved_to(status.st_ino, status.st_size)
            if status.st_size <= self.read.offset:
                return None
            data = os.pread(descriptor, PIECE_BYTES, self.read.offset)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        size = self._whole(data, last and self.read.offset + len(data) >= status.st_size)
        if not size and len(data) == PIECE_BYTES:  # one line of a megabyte is no report
            self.read = self.read.after(len(data))
            return None
        if not size:
            return None
        found, after = self.parser.parse(data[:size], self.read, now_ms)
        piece = TailedPiece(self.source, self.stored, after, found)
        self.read = after
        return piece

    def _whole(self, data: bytes, last: bool) -> int:
        size = self.parser.whole(data)
        return len(data) if last and not size else size


class FollowedJob:
    """All files of one attempt at a job."""

    def __init__(self, job_id: int, attempt: int, run_dir: Path, spec: JobSpec, work_dir: Path) -> None:
        self.job_id, self.attempt, self.spec = job_id, attempt, spec
        self.since_ms = time.time_ns() // 1_000_000
        self._run_dir, self._work_dir = run_dir, work_dir
        self._known: dict[str, Position] | None = None
        self._finders = list(self._finders_of(spec))
        self._files: dict[str, FollowedFile] = {}
        self._heard_at = time.monotonic()
        self._due_at = 0.0
        self._events_due_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether to look at the job now: ten times a second while it reports, once while it is quiet."""
        return now >= self._due_at

    def read(self, *, last: bool = False) -> list[TailedPiece]:
        """Return a piece of each file that has something to add to the store."""
        now = time.monotonic()
        assert self._known is not None
        if last:
            self._events_due_at = 0.0
        for finder in self._finders:
            for name, path, parser in finder():
                if name not in self._files:
                    place = self._known.get(name, Position())
                    self._files[name] = FollowedFile(name, path, parser, place, place)
        now_ms = time.time_ns() // 1_000_000
        pieces = [piece for file in self._files.values() if (piece := file.next_piece(now_ms, last=last))]
        if pieces:
            self._heard_at = now
        self._due_at = now + (QUIET_PAUSE_S if now - self._heard_at > QUIET_S else 0.0)
        return [piece for piece in pieces if last or _adds(piece.found)]

    def settle(self, piece: TailedPiece) -> None:
        """Note that the store has a piece."""
        self._files[piece.source].stored = piece.after

    @property
    def is_placed(self) -> bool:
        """Return whether it is known how far the store is."""
        return self._known is not None

    def place(self, known: dict[str, Position]) -> None:
        """Go on from what the store has."""
        self._known = known
        self._files.clear()

    def start_again(self) -> None:
        """Have the places looked up again: what was read is not in the store, or was put there by another service."""
        self._known = None

    # -- finding ----------------------------------------------------------------------------------

    def _finders_of(self, spec: JobSpec) -> Iterator[Callable[[], Iterator[tuple[str, Path, Parser]]]]:
        yield self._rank_files
        for number, source in enumerate(spec.metrics):
            match source:
                case RegexSource():
                    yield lambda number=number, source=source: self._outputs(number, source)  # type: ignore[misc]
                case OutputSource():
                    yield self._printed_json
                case JsonLinesSource(path):
                    yield lambda path=path: self._json_lines(path)  # type: ignore[misc]
                case TensorboardSource(folder):
                    yield lambda folder=folder: self._event_files(folder)  # type: ignore[misc]

    def _rank_files(self) -> Iterator[tuple[str, Path, Parser]]:
        for name, rank in _ranks_in(self._run_dir / FOLDER, "jsonl"):
            yield self._source(name), self._run_dir / FOLDER / name, RankLines(rank)

        if (path := self._run_dir / FOLDER / "system.jsonl").exists():
            yield self._source(path.name), path, SystemLines()

    def _outputs(self, number: int, source: RegexSource) -> Iterator[tuple[str, Path, Parser]]:
        for name, rank in _ranks_in(self._run_dir, "log"):
            yield self._source(f"{number}/{name}"), self._run_dir / name, OutputPattern.of(source, rank)

    def _printed_json(self) -> Iterator[tuple[str, Path, Parser]]:
        for name, rank in _ranks_in(self._run_dir, "log"):
            yield self._source(f"json/{name}"), self._run_dir / name, PrintedJson.of(rank)

    def _json_lines(self, path: str) -> Iterator[tuple[str, Path, Parser]]:
        yield self._source(path), self._work_dir / path, JsonLines()

    def _event_files(self, folder: str) -> Iterator[tuple[str, Path, Parser]]:
        now = time.monotonic()
        if (
            now < self._events_due_at
        ):  # folders below are walked through, which is no small thing ten times a second
            return
        self._events_due_at = now + EVENT_FILES_S
        for path, group in event_files(self._work_dir / folder):
            yield self._source(f"{group}/{path.name}"), path, EventRecords(group)

    def _source(self, name: str) -> str:
        source = f"{self.attempt}/{name}"
        if len(source) <= LONGEST_NAME:
            return source
        return f"{self.attempt}/{blake2b(name.encode(), digest_size=16).hexdigest()}"


def _adds(found: Gathered) -> bool:
    return bool(found.points) or found.progress is not None or found.text is not None or bool(found.acts)


def _ranks_in(folder: Path, kind: str) -> list[tuple[str, int]]:
    """Return the files of ranks in a folder, by name and rank."""
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except OSError:
        return []
    matches = (match for name in names if (match := _RANK.fullmatch(name)) and match[2] == kind)
    return sorted((match[0], int(match[1])) for match in matches)
