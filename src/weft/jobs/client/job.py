"""One job, as a program holds it: look at it, wait for it, read its logs and metrics, act on it, fetch its files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from weft.errors import WeftError
from weft.jobs.api.types.files import CodeAnswer, DiffAnswer, FileEntry, FilesAnswer
from weft.jobs.api.types.jobs import JobDetail, JobView, SubmitAnswer
from weft.jobs.api.types.reports import (
    CurvesAnswer,
    CurveView,
    EventsAnswer,
    EventView,
    FindingsAnswer,
    FindingView,
    LogLineView,
    MetricsAnswer,
    MetricView,
)
from weft.jobs.client.connection import ServiceConnection, ServiceError
from weft.jobs.client.log_reader import LogChoice, follow_log, read_log
from weft.jobs.client.stream import StreamEvent, follow_events
from weft.jobs.lifecycle import ENDED, JobState

EVENTS_A_PAGE = 1000
NOT_FOUND = 404
LONGEST_SILENCE_S = 45.0  # of a stream that beats every 15 s


class WaitError(WeftError):
    """A job did not end within the time that a caller gave it."""


class JobHandle:
    """A job of the service. What it shows is asked for anew by `refresh()`; `state` always is."""

    def __init__(self, connection: ServiceConnection, job_id: int, view: JobView | None = None) -> None:
        self._connection, self.id, self._view = connection, job_id, view

    def __repr__(self) -> str:
        return f"<job {self.id} {self._view.name} {self._view.state}>" if self._view else f"<job {self.id}>"

    @property
    def _path(self) -> str:
        return f"/jobs/{self.id}"

    # -- looking ---------------------------------------------------------------------------------------

    @property
    def view(self) -> JobView:
        """The job as it was when it was last asked for."""
        return self._view if self._view is not None else self.refresh()

    def refresh(self) -> JobDetail:
        """Ask for everything that is known of the job."""
        found = self._connection.get(self._path, JobDetail)
        self._view = found
        return found

    @property
    def state(self) -> JobState:
        """The state that the job is in now."""
        return self.refresh().state

    @property
    def name(self) -> str:
        return self.view.name

    def wait(self, timeout_s: float | None = None) -> JobDetail:
        """Wait until the job has ended, also over restarts of the service; return how it ended."""
        began_s = time.monotonic()
        for _ in self.changes(silence_s=LONGEST_SILENCE_S if timeout_s is None else max(0.05, timeout_s)):
            found = self.refresh()
            if found.state in ENDED:
                return found
            if timeout_s is not None and time.monotonic() - began_s >= timeout_s:
                break
        raise WaitError(
            f"job {self.id} must end within {timeout_s:g} s, got one that is {self.view.state}; wait for longer"
        )

    def changes(self, *, silence_s: float = LONGEST_SILENCE_S) -> Iterator[StreamEvent]:
        """Yield the job's events as they come; the first is `opened`, as is that of every new connection."""
        silence_s = min(silence_s, LONGEST_SILENCE_S)
        return follow_events(self._connection, [f"job:{self.id}"], silence_s=silence_s)

    def events(self, after: int = 0) -> Iterator[EventView]:
        """Yield all events of the job so far, oldest first."""
        while True:
            query = {"after": after, "limit": EVENTS_A_PAGE}
            page = self._connection.get(f"{self._path}/events", EventsAnswer, query).events
            yield from page
            if len(page) < EVENTS_A_PAGE:
                return
            after = page[-1].id

    def logs(
        self,
        *,
        follow: bool = False,
        rank: int | None = None,
        grep: str | None = None,
        tail: int | None = None,
        attempt: int | None = None,
    ) -> Iterator[LogLineView]:
        """Yield log lines; with `follow`, those to come too, until the job has ended."""
        choice = LogChoice(rank=rank, grep=grep, tail=tail, attempt=attempt)
        return (follow_log if follow else read_log)(self._connection, self.id, choice)

    def metrics(self) -> dict[str, MetricView]:
        """Return the last and the extreme values of every metric by its name."""
        found = self._connection.get(f"{self._path}/metrics", MetricsAnswer)
        return {metric.name: metric for metric in found.metrics}

    def curve(
        self, name: str, *, first_step: int | None = None, last_step: int | None = None, points: int = 2000
    ) -> CurveView:
        """Return one metric over its steps, in at most a given number of points."""
        return self.curves([name], first_step=first_step, last_step=last_step, points=points)[0]

    def curves(
        self,
        names: Sequence[str],
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        points: int = 2000,
    ) -> tuple[CurveView, ...]:
        """Return several metrics over their steps."""
        query = {"names": list(names), "first_step": first_step, "last_step": last_step, "points": points}
        return self._connection.get(f"{self._path}/curves", CurvesAnswer, query).curves

    def findings(self) -> tuple[FindingView, ...]:
        """Return what the rules of advice saw."""
        return self._connection.get(f"{self._path}/findings", FindingsAnswer).findings

    def diff(self, other: int | JobHandle) -> DiffAnswer:
        """Return how another job differs from this one: specification, code, environment."""
        number = other.id if isinstance(other, JobHandle) else other
        return self._connection.get(f"{self._path}/diff", DiffAnswer, {"with": number})

    # -- acting ----------------------------------------------------------------------------------------

    def stop(self) -> JobView:
        """Ask the job to end."""
        return self._ask("stop")

    def pause(self) -> JobView:
        """Ask the job to give back its workers at its last checkpoint."""
        return self._ask("pause")

    def resume(self) -> JobView:
        """Queue a paused job again."""
        return self._ask("resume")

    def retry(self) -> JobView:
        """Run a job that has ended once more."""
        return self._ask("retry")

    def hold(self) -> JobView:
        """Keep a queued job from starting."""
        return self._ask("hold")

    def release(self) -> JobView:
        """Let a held job start."""
        return self._ask("release")

    def scale(self, workers: int) -> JobView:
        """Give an elastic job another number of workers."""
        return self._ask("scale", {"workers": workers})

    def change(self, **changes: Any) -> JobView:
        """Change priority, tags, name, pinned or project."""
        self._view = self._connection.send("PATCH", self._path, JobView, changes)
        return self._view

    def clone(self, changes: Mapping[str, Any] | None = None) -> tuple[JobHandle, ...]:
        """Queue the same job again, with some fields of its specification changed: {"queue.priority": 80}."""
        body = {"changes": dict(changes or {})}
        made = self._connection.send("POST", f"{self._path}/clone", SubmitAnswer, body)
        return tuple(JobHandle(self._connection, job.id, job) for job in made.jobs)

    def remove(self) -> None:
        """Remove a job that has ended, with all its files."""
        self._connection.send("DELETE", self._path, type(None))

    def _ask(self, action: str, body: Mapping[str, Any] | None = None) -> JobView:
        self._view = self._connection.send("POST", f"{self._path}/{action}", JobView, body)
        return self._view

    # -- files -----------------------------------------------------------------------------------------

    def files(self, path: str = "") -> tuple[FileEntry, ...]:
        """Return the content of one of the job's folders."""
        return self._connection.get(f"{self._path}/files", FilesAnswer, {"path": path}).entries

    def all_files(self, path: str = "") -> Iterator[FileEntry]:
        """Yield the file at a path, or the files below it; nothing if nothing is there."""
        parent, _, name = path.rstrip("/").rpartition("/")
        try:
            entries = [entry for entry in self.files(parent) if not name or entry.path == path.rstrip("/")]
        except ServiceError as error:
            if error.status != NOT_FOUND:
                raise
            return
        for entry in entries:
            if entry.is_dir:
                for inner in self.files(entry.path):
                    yield from self.all_files(inner.path) if inner.is_dir else [inner]
            else:
                yield entry

    def outputs(self) -> str:
        """Return the path of the newest attempt's outputs among the job's files."""
        return f"attempt-{self.refresh().attempt}/outputs"

    def pull(self, target: Path, path: str = "") -> Iterator[tuple[FileEntry, Path]]:
        """Copy the file at `path`, or all files below it, into a folder; each is there once it is whole.

        Paths in the folder begin where `path` does: `attempt-1/outputs/a` of `attempt-1/outputs` is `outputs/a`.
        """
        begin = len(PurePosixPath(path).parts) - 1 if path else 0
        for entry in self.all_files(path):
            inner = PurePosixPath(*PurePosixPath(_safe(entry.path)).parts[begin:])
            yield entry, self._fetch(f"files/{quote(entry.path)}", target, str(inner))

    def pull_code(self, target: Path) -> Iterator[tuple[str, Path]]:
        """Copy the code that the job runs into a folder."""
        for file in self._connection.get(f"{self._path}/code", CodeAnswer).files:
            if file.kind == "link":
                continue  # links lead within the code, to files that are copied
            yield file.path, self._fetch(f"code/{quote(file.path)}", target, file.path)

    def _fetch(self, address: str, target: Path, path: str) -> Path:
        place = target / _safe(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f".{place.name}.part")
        try:
            with (
                self._connection.open(f"{self._path}/{address}") as answer,
                draft.open("wb") as opened,
            ):
                for piece in answer.iter_bytes():
                    opened.write(piece)
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)
        return place


def _safe(path: str) -> PurePosixPath:
    """Return a path of the service's answer; one that leads out of the folder is refused."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts or "\0" in path:
        raise WeftError(
            f"files of a job must have plain paths, got {path!r} from the service; do not trust it"
        )
    return parts
