"""A service of jobs without a scheduler: the routes of the API on a real port, with jobs that a test moves by hand.

It answers with the API's own types, and can be ended and started again on its port, as a service that was killed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from weft.jobs.api.types import accounts, cluster, files, jobs, reports
from weft.jobs.code.snapshot import CodeSnapshot
from weft.jobs.lifecycle import ENDED, JobState, StateError, state_after
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import SpecError, convert_spec, expand, resolve

TOKEN = "weft_test_token"
NOW_MS = 1_760_000_000_000


def answer(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def refusal(status: int, code: str, text: str, problems: Any = ()) -> Response:
    return answer({"error": {"code": code, "text": text, "problems": problems}}, status)


class FakeService:
    """The service and everything that it holds."""

    def __init__(self) -> None:
        self.jobs: dict[int, jobs.JobDetail] = {}
        self.lines: dict[int, list[reports.LogLineView]] = {}
        self.files: dict[int, dict[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.snapshots: dict[str, CodeSnapshot] = {}
        self.hosts: dict[str, cluster.HostView] = {}
        self.events: list[tuple[str, str, dict[str, Any]]] = []
        self.seen: list[str] = []  # requests: method and path
        self.keys: dict[str, tuple[int, ...]] = {}
        self.port = 0
        self._changed = threading.Condition()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    # -- what a test does --------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = uvicorn.Config(self._app(), "127.0.0.1", self.port, log_config=None, lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.005)
            assert self._thread.is_alive(), "the fake service did not start"
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def end(self) -> None:
        """End as a killed service does: open streams break off."""
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = self._server.force_exit = True
        with self._changed:
            self._changed.notify_all()
        self._thread.join()

    def move(self, job_id: int, state: JobState, **fields: Any) -> None:
        """Give a job another state, and tell those who listen."""
        self.jobs[job_id] = msgspec.structs.replace(self.jobs[job_id], state=state, **fields)
        self.tell(f"job:{job_id}", "state", {"job": job_id, "state": state})
        self.tell("jobs", "state", {"job": job_id, "state": state})

    def write(self, job_id: int, *texts: str, rank: int = 0) -> None:
        """Add lines to a job's log."""
        known = self.lines.setdefault(job_id, [])
        known += [reports.LogLineView(rank, len(known) + n, text) for n, text in enumerate(texts, 1)]

    def tell(self, topic: str, kind: str, data: dict[str, Any]) -> None:
        with self._changed:
            self.events.append((topic, kind, data))
            self._changed.notify_all()

    def add_job(self, **fields: Any) -> int:
        """Make a job without a submission."""
        spec = convert_spec({"run": "train.py", **fields.pop("spec", {})})
        number = len(self.jobs) + 1
        self.jobs[number] = msgspec.structs.replace(_job(number, spec, None), **fields)
        return number

    # -- routes ------------------------------------------------------------------------------------------

    def _app(self) -> Starlette:
        table: list[tuple[str, str, Callable[..., Any]]] = [
            ("GET", "/session", self._session),
            ("GET", "/jobs", self._list),
            ("POST", "/jobs", self._submit),
            ("POST", "/snapshots", self._snapshot),
            ("PUT", "/blobs/{digest}", self._blob),
            ("GET", "/jobs/{id:int}", self._detail),
            ("PATCH", "/jobs/{id:int}", self._change),
            ("DELETE", "/jobs/{id:int}", self._remove),
            ("POST", "/jobs/{id:int}/clone", self._clone),
            ("POST", "/jobs/{id:int}/{action}", self._act),
            ("GET", "/jobs/{id:int}/logs", self._logs),
            ("GET", "/jobs/{id:int}/events", self._events),
            ("GET", "/jobs/{id:int}/files", self._files),
            ("GET", "/jobs/{id:int}/files/{path:path}", self._file),
            ("GET", "/hosts", self._hosts),
            ("GET", "/stream", self._stream),
        ]
        routes = [
            Route(f"/api/v1{path}", self._guarded(made), methods=[method]) for method, path, made in table
        ]
        return Starlette(routes=routes)

    def _guarded(self, made: Callable[..., Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            self.seen.append(f"{request.method} {request.url.path.removeprefix('/api/v1')}")
            if request.headers.get("Authorization") != f"Bearer {TOKEN}":
                return refusal(401, "not-logged-in", "no valid token")
            number = request.path_params.get("id")
            if number is not None and number not in self.jobs:
                return refusal(
                    404,
                    "not-found",
                    f"job must be one that you may see, got {number}; list them with weft jobs",
                )
            found: Response = await made(request)
            return found

        return endpoint

    async def _session(self, request: Request) -> Response:
        user = accounts.SessionUser(1, "ann", "admin")
        return answer(accounts.SessionAnswer(user, None, "0", True, ("read", "write")))

    async def _list(self, request: Request) -> Response:
        query = request.query_params
        states = set(query["state"].split(",")) if "state" in query else None
        found = [job for job in reversed(self.jobs.values()) if states is None or job.state in states]
        for name in ("user", "project"):
            found = [job for job in found if query.get(name) in (None, getattr(job, name))]
        first, size = int(query.get("cursor", 0)), int(query.get("limit", 50))
        page = tuple(
            msgspec.convert(job, jobs.JobView, from_attributes=True) for job in found[first : first + size]
        )
        more = str(first + size) if len(found) > first + size else None
        return answer(jobs.JobsAnswer(page, more, len(found), {}))

    async def _submit(self, request: Request) -> Response:
        body = msgspec.json.decode(await request.body(), type=jobs.Submission)
        key = request.headers["Idempotency-Key"]
        if key in self.keys:
            return answer(jobs.SubmitAnswer(tuple(self.jobs[number] for number in self.keys[key])), 201)
        try:
            specs = list(expand(convert_spec(body.spec)))
            resolved = [resolve(spec) for spec in specs]
        except SpecError as error:
            return refusal(422, "bad-spec", str(error), error.problems)
        if body.dry_run:
            plan = tuple(
                jobs.PlannedJob(one.name, str(one.command), one.min_workers, one.max_workers, one.spec)
                for one in resolved
            )
            return answer(jobs.SubmitAnswer((), plan))
        made = []
        for spec in specs:
            number = len(self.jobs) + 1
            self.jobs[number] = _job(number, spec, body.snapshot)
            made.append(self.jobs[number])
        self.keys[key] = tuple(job.id for job in made)
        return answer(jobs.SubmitAnswer(tuple(made)), 201)

    async def _snapshot(self, request: Request) -> Response:
        snapshot = msgspec.json.decode(await request.body(), type=CodeSnapshot)
        self.snapshots[snapshot.digest] = snapshot
        missing = tuple(sorted(snapshot.blobs - set(self.blobs)))
        return answer(files.SnapshotAnswer(snapshot.digest, missing))

    async def _blob(self, request: Request) -> Response:
        self.blobs[request.path_params["digest"]] = await request.body()
        return Response(status_code=204)

    async def _detail(self, request: Request) -> Response:
        return answer(self.jobs[request.path_params["id"]])

    async def _change(self, request: Request) -> Response:
        number = request.path_params["id"]
        self.jobs[number] = msgspec.structs.replace(
            self.jobs[number], **msgspec.json.decode(await request.body())
        )
        return answer(self.jobs[number])

    async def _remove(self, request: Request) -> Response:
        del self.jobs[request.path_params["id"]]
        return Response(status_code=204)

    async def _clone(self, request: Request) -> Response:
        body = msgspec.json.decode(await request.body(), type=jobs.CloneBody)
        before, number = self.jobs[request.path_params["id"]], len(self.jobs) + 1
        spec = convert_spec({**msgspec.to_builtins(before.spec), **body.changes})
        self.jobs[number] = msgspec.structs.replace(_job(number, spec, before.snapshot), parent_id=before.id)
        return answer(jobs.SubmitAnswer((self.jobs[number],)), 201)

    async def _act(self, request: Request) -> Response:
        number, action = request.path_params["id"], request.path_params["action"]
        body = msgspec.json.decode(await request.body() or b"{}")
        if action == "scale":
            self.jobs[number] = msgspec.structs.replace(self.jobs[number], workers=body["workers"])
            return answer(self.jobs[number], 202)
        try:
            self.move(number, state_after(action, self.jobs[number].state))
        except StateError as error:
            return refusal(409, "wrong-state", str(error))
        return answer(self.jobs[number], 202)

    async def _logs(self, request: Request) -> Response:
        number, query = request.path_params["id"], request.query_params
        ended = self.jobs[number].state in ENDED  # before the lines, or a last one could be missed
        known = [
            line
            for line in self.lines.get(number, [])
            if query.get("grep", "") in line.text and query.get("rank") in (None, str(line.rank))
        ]
        first = (
            int(query["cursor"]) if "cursor" in query else max(0, len(known) - int(query.get("tail", 10**9)))
        )
        page = known[first : first + int(query.get("limit", 1000))]
        return answer(reports.LogsAnswer(tuple(page), str(first + len(page)), str(first), ended, (0,)))

    async def _events(self, request: Request) -> Response:
        topic, after = f"job:{request.path_params['id']}", int(request.query_params.get("after", 0))
        found = [
            reports.EventView(number, NOW_MS, kind, data)
            for number, (of, kind, data) in enumerate(self.events, 1)
            if of == topic and number > after
        ]
        return answer(reports.EventsAnswer(tuple(found)))

    async def _files(self, request: Request) -> Response:
        known, prefix = self.files.get(request.path_params["id"], {}), request.query_params.get("path", "")
        entries: dict[str, files.FileEntry] = {}
        for path, data in known.items():
            if not path.startswith(f"{prefix}/" if prefix else ""):
                continue
            rest = path[len(prefix) + 1 if prefix else 0 :]
            name = f"{prefix}/{rest.split('/')[0]}".removeprefix("/") if not rest.startswith("..") else path
            folder = "/" in rest and not rest.startswith("..")
            entries[name] = files.FileEntry(name, len(data), folder, NOW_MS, "folder" if folder else "other")
        return answer(files.FilesAnswer(tuple(entries.values()), False))

    async def _file(self, request: Request) -> Response:
        return Response(self.files[request.path_params["id"]][request.path_params["path"]])

    async def _hosts(self, request: Request) -> Response:
        return answer(cluster.HostsAnswer(tuple(self.hosts.values())))

    async def _stream(self, request: Request) -> Response:
        topics = set(request.query_params["topics"].split(","))
        after = request.headers.get("Last-Event-ID")
        first = int(after) if after is not None else len(self.events)
        return StreamingResponse(self._told(topics, first), media_type="text/event-stream")

    async def _told(self, topics: set[str], number: int) -> AsyncIterator[str]:
        yield ": open\n\n"
        server = self._server
        while server is not None and not server.should_exit:
            for topic, kind, data in self.events[number:]:
                number += 1
                if topic in topics:
                    yield f"id: {number}\nevent: {kind}\ndata: {msgspec.json.encode(data).decode()}\n\n"
            with suppress(asyncio.CancelledError):
                await asyncio.to_thread(self._await_more, number)

    def _await_more(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self.events) > number or self._server.should_exit, timeout=1)  # type: ignore[union-attr]


def _job(number: int, spec: JobSpec, snapshot: str | None) -> jobs.JobDetail:
    resolved = resolve(spec)
    return jobs.JobDetail(
        id=number,
        name=resolved.name,
        project=spec.project,
        user="ann",
        kind="run",
        state="held" if spec.queue.hold else "queued",
        wanted=None,
        queue=spec.queue.name,
        priority=spec.queue.priority,
        workers=0,
        min_workers=resolved.min_workers,
        max_workers=resolved.max_workers,
        attempt=0,
        progress=None,
        cause=None,
        message=None,
        reason=jobs.ReasonView("shortage", "needs 1 GPU more than is free", 1, NOW_MS + 60_000),
        snapshot=snapshot,
        parent_id=None,
        tags=spec.tags,
        pinned=False,
        created_ms=NOW_MS,
        queued_ms=NOW_MS,
        started_ms=None,
        ended_ms=None,
        headline=None,
        mine=True,
        spec=spec,
        command="train.py",
        attempts=(),
        hosts=(),
        after=(),
        metrics=(),
        params={},
        environment={},
        findings=(),
    )
