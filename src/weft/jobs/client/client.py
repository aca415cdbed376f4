"""The client of the jobs service.

import weft.jobs

client = weft.jobs.Client()                          # the service of this machine, WEFT_URL, or the last login
(job,) = client.submit({"run": "train.py --epochs 3", "workers": "2:8"}, code=".")
for line in job.logs(follow=True):
    print(line.text)
print(job.wait().state, job.metrics()["loss"].last)
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from weft.documents import read_text
from weft.jobs.api.types.accounts import SessionAnswer
from weft.jobs.api.types.cluster import HostsAnswer, HostView, OverviewAnswer
from weft.jobs.api.types.jobs import JobsAnswer, JobView, SubmitAnswer
from weft.jobs.client.address import find_service
from weft.jobs.client.connection import ServiceConnection
from weft.jobs.client.job import JobHandle
from weft.jobs.client.stream import StreamEvent, follow_events
from weft.jobs.client.studies import ServiceStudies
from weft.jobs.client.upload import Progress, check_script, upload
from weft.jobs.code.snapshot import take_snapshot
from weft.jobs.spec.model import GitCode, JobSpec
from weft.jobs.spec.read import convert_spec, read_spec

JOBS_A_PAGE = 500
SpecSource = JobSpec | Mapping[str, Any] | str | Path  # a path if it is text


class JobsClient:
    """A client of one service. Threads may share it."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self.connection = ServiceConnection(find_service(url, token))

    def __enter__(self) -> JobsClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    @property
    def url(self) -> str:
        return self.connection.address.url

    @property
    def studies(self) -> ServiceStudies:
        """Searches whose trials are jobs."""
        return ServiceStudies(self.connection)

    def who(self) -> SessionAnswer:
        """Return who the service takes us for."""
        return self.connection.get("/session", SessionAnswer)

    # -- jobs ------------------------------------------------------------------------------------------

    def submit(
        self,
        spec: SpecSource,
        code: str | Path | None = None,
        *,
        progress: Progress | None = None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> tuple[JobHandle, ...]:
        """Queue a job, or the jobs of an array; `code` is the folder that is sent along.

        Without `code` it is the folder that the specification names, from where its file lies. `tell` gets what must
        hold for the job to run and the service cannot check, such as a folder that Slurm's nodes share.
        """
        checked, folder = self.prepare(spec, code)
        snapshot = None
        if folder is not None:
            taken = take_snapshot(folder)
            check_script(checked, folder, taken.snapshot)
            snapshot = upload(self.connection, taken, progress)[0]
        made = self._queue(checked, snapshot)
        for note in made.notes:
            tell(note)
        return tuple(JobHandle(self.connection, job.id, job) for job in made.jobs)

    def plan(self, spec: SpecSource, code: str | Path | None = None) -> SubmitAnswer:
        """Return what submitting would do; problems are raised as by submitting, and nothing is sent or queued."""
        checked, folder = self.prepare(spec, code)
        if folder is not None:
            check_script(checked, folder, take_snapshot(folder).snapshot)
        return self._queue(checked, None, dry_run=True)

    def prepare(self, spec: SpecSource, code: str | Path | None = None) -> tuple[JobSpec, Path | None]:
        """Return a checked specification, and the folder of its code on this machine."""
        home = Path()
        if isinstance(spec, (str, Path)):
            home = Path(spec).parent
            spec = read_spec(read_text(Path(spec), kind="a job's file"))
        checked = spec if isinstance(spec, JobSpec) else convert_spec(dict(spec))
        named = None if isinstance(checked.code, GitCode) else home / checked.code
        folder = Path(code) if code is not None else named
        check_script(checked, folder)
        return checked, folder

    def _queue(self, spec: JobSpec, snapshot: str | None, *, dry_run: bool = False) -> SubmitAnswer:
        """Queue a specification whose code the service has; a broken connection makes no second job."""
        body = {"spec": msgspec.to_builtins(spec), "snapshot": snapshot, "dry_run": dry_run}
        return self.connection.send(
            "POST", "/jobs", SubmitAnswer, body, {"Idempotency-Key": uuid.uuid4().hex}, tries=3
        )

    def job(self, job_id: int) -> JobHandle:
        """Return one job; it is asked for when it is looked at."""
        return JobHandle(self.connection, job_id)

    def jobs(
        self,
        *,
        state: Sequence[str] = (),
        project: str | None = None,
        user: str | None = None,
        search: str | None = None,
        sort: str = "-id",
        limit: int | None = None,
    ) -> Iterator[JobView]:
        """Yield jobs, newest first, those that a filter lets through."""
        query = {"state": list(state), "project": project, "user": user, "q": search, "sort": sort}
        left, cursor = limit, None
        while left is None or left > 0:
            size = JOBS_A_PAGE if left is None else min(left, JOBS_A_PAGE)
            page = self.jobs_page({**query, "limit": size, "cursor": cursor})
            yield from page.jobs
            left = None if left is None else left - len(page.jobs)
            cursor = page.next
            if cursor is None or not page.jobs:
                return

    def jobs_page(self, query: Mapping[str, Any]) -> JobsAnswer:
        """Return one page of jobs, with how many there are."""
        return self.connection.get("/jobs", JobsAnswer, query)

    # -- the rest of the service -------------------------------------------------------------------------

    def overview(self) -> OverviewAnswer:
        """Return the state of the service at a glance."""
        return self.connection.get("/overview", OverviewAnswer)

    def hosts(self) -> tuple[HostView, ...]:
        """Return the hosts that jobs may run on."""
        return self.connection.get("/hosts", HostsAnswer).hosts

    def events(self, topics: Iterable[str] = ("jobs",), *, after: int | None = None) -> Iterator[StreamEvent]:
        """Yield events for ever: of `jobs`, `hosts`, `job:7`, `job:7:metrics`; nothing is missed in between."""
        return follow_events(self.connection, topics, after=after)
