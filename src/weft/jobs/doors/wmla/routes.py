"""WMLA's REST: logon, executions, and the scheduler's applications with their logs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from weft.jobs.accounts.tokens import make_token
from weft.jobs.doors.access import (
    Authenticate,
    Caller,
    DoorError,
    SubmittingService,
    check_submitter,
    find_door_job,
    keep_document,
    kept_document,
    visible_job,
)
from weft.jobs.doors.archives import zip_folder_answer
from weft.jobs.doors.output import last_text, rank_logs
from weft.jobs.doors.uploads import add_archive, read_form
from weft.jobs.doors.wmla import executions
from weft.jobs.doors.wmla.answers import find_caller, guarded, json_answer
from weft.jobs.doors.wmla.arguments import DOOR, FRAMEWORKS, find_main, parse_arguments, to_spec
from weft.jobs.lifecycle import ENDED
from weft.jobs.store.events import add_event, now_ms
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.listing import JobFilter, list_jobs
from weft.jobs.store.snapshots import add_snapshot

ROOT = "/platform/rest/deeplearning/v1"
KEPT = "wmla-exec.json"  # in a job's folder
LOGON_MS = 8 * 3600 * 1000  # for which a logon's token is valid
MOST_LISTED = 1000


def wmla_routes(service: SubmittingService, authenticate: Authenticate) -> list[BaseRoute]:
    """Return the routes; they belong at the root of the server."""
    door = WmlaDoor(service, authenticate)
    one, application = f"{ROOT}/execs/{{exec_id}}", f"{ROOT}/scheduler/applications"
    logs = f"{application}/{{exec_id}}"
    return [
        Route("/auth/v1/logon", guarded(door.logon), methods=["GET"]),
        Route(f"{ROOT}/execs", guarded(door.create), methods=["POST"]),
        Route(f"{ROOT}/execs", guarded(door.list), methods=["GET"]),
        Route(f"{ROOT}/execs", guarded(door.delete_all), methods=["DELETE"]),
        Route(f"{ROOT}/execs/frameworks", guarded(door.frameworks), methods=["GET"]),
        Route(one, guarded(door.show), methods=["GET"]),
        Route(one, guarded(door.delete), methods=["DELETE"]),
        Route(f"{one}/stop", guarded(door.stop), methods=["POST"]),
        Route(f"{one}/log", guarded(door.log), methods=["GET"]),
        Route(f"{one}/result", guarded(door.result), methods=["GET"]),
        Route(f"{ROOT}/conf", guarded(door.conf), methods=["GET"]),
        Route(f"{ROOT}/scheduler/instances", guarded(door.instances), methods=["GET"]),
        Route(application, guarded(door.applications), methods=["GET"]),
        Route(f"{logs}/driver/logs/{{stream}}", guarded(door.driver_log), methods=["GET"]),
        Route(f"{logs}/executor/{{number:int}}/logs/{{stream}}", guarded(door.executor_log), methods=["GET"]),
    ]


class WmlaDoor:
    """WMLA's questions, answered by the job service."""

    def __init__(self, service: SubmittingService, authenticate: Authenticate) -> None:
        self._service, self._database, self._ask = service, service.database, authenticate

    async def _caller(self, request: Request) -> Caller:
        return await find_caller(request, self._ask)

    async def logon(self, request: Request) -> Response:
        """Give a token for a name and a password; a token that made others would never expire."""
        if not request.headers.get("authorization", "").lower().startswith("basic "):
            raise DoorError("unauthenticated", "a logon must have a name and a password (Basic), got none")
        caller = await self._caller(request)
        if caller.job_id is not None:
            raise DoorError("forbidden", "a logon must be of a user, got the token of a job")
        until = now_ms() + LOGON_MS
        scopes = ("read",) if caller.role == "viewer" else ("read", "write")
        token = await self._database.write(
            lambda c: make_token(
                c, caller.user_id, kind="api", name="wmla logon", scopes=scopes, expires_ms=until
            )
        )
        return json_answer({"accessToken": token})

    # -- executions ---------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        """Start an execution from its arguments and a script or an archive."""
        caller = await self._caller(request)
        check_submitter(caller)
        text = request.query_params.get("args", "")
        given = parse_arguments(text)
        async with read_form(request) as parts:
            if "file" not in parts:
                raise DoorError("bad", "an execution must have a part named file, got none; send the model")
            snapshot = await asyncio.to_thread(
                add_archive, self._service.blobs, parts["file"], script_name=Path(given.main).name
            )
        main = find_main([file.path for file in snapshot.files], given)
        digest = await self._database.write(lambda connection: add_snapshot(connection, snapshot))
        (job_id,) = await self._service.submit(
            to_spec(given, main=main), user_id=caller.user_id, user_name=caller.user_name, snapshot=digest
        )
        kept = {
            "args": text,
            "sigName": request.query_params.get("sigName", ""),
            "framework": given.framework,
            "elastic": given.elastic,
            "workers": given.most_workers or given.workers,
        }
        keep_document(self._service.folder, job_id, KEPT, kept)
        await self._note(job_id, given.warnings)
        found = await self._database.read(lambda connection: visible_job(connection, caller, job_id))
        return json_answer(self._exec(found))

    async def _note(self, job_id: int, warnings: tuple[str, ...]) -> None:
        def add(connection: Any) -> None:
            for text in warnings:
                add_event(connection, f"job:{job_id}", "note", job=job_id, text=text)

        await self._database.write(add)

    def _exec(self, job: StoredJob) -> dict[str, Any]:
        kept = kept_document(self._service.folder, job.id, KEPT)
        return executions.exec_json(
            job, kept, str(self._service.log_folder(job.id, max(1, job.attempt)) / "code")
        )

    async def _found(self, request: Request, *, change: bool = False) -> tuple[Caller, StoredJob]:
        caller = await self._caller(request)
        job_id = executions.job_id_of(request.path_params["exec_id"])
        what = "an execution"
        return caller, await find_door_job(
            self._database, caller, job_id, door=DOOR, what=what, change=change
        )

    async def _mine(self, caller: Caller) -> tuple[StoredJob, ...]:
        wanted = JobFilter(text=f"door={DOOR}", user_name=caller.user_name)
        return (
            await self._database.read(lambda connection: list_jobs(connection, wanted, most=MOST_LISTED))
        ).jobs

    async def list(self, request: Request) -> Response:
        return json_answer([self._exec(job) for job in await self._mine(await self._caller(request))])

    async def show(self, request: Request) -> Response:
        _, job = await self._found(request)
        return json_answer(self._exec(job))

    async def stop(self, request: Request) -> Response:
        caller, job = await self._found(request, change=True)
        if job.state not in ENDED:
            await self._service.act(job.id, "stop", user_name=caller.user_name)
        return json_answer({"id": executions.exec_id(job)})

    async def delete(self, request: Request) -> Response:
        caller, job = await self._found(request, change=True)
        await self._service.remove(job.id, user_name=caller.user_name)
        return json_answer({"id": executions.exec_id(job)})

    async def delete_all(self, request: Request) -> Response:
        """Remove the caller's executions that have ended."""
        caller = await self._caller(request)
        check_submitter(caller)
        gone = [job for job in await self._mine(caller) if job.state in ENDED]
        for job in gone:
            await self._service.remove(job.id, user_name=caller.user_name)
        return json_answer({"ids": [executions.exec_id(job) for job in gone]})

    async def log(self, request: Request) -> Response:
        """Return the output of all workers, as JSON text where the client asks for that."""
        _, job = await self._found(request)
        folder = self._service.log_folder(job.id, job.attempt)
        paths = rank_logs(folder) if job.attempt else []
        text = "".join([await asyncio.to_thread(last_text, path, None) for _, path in paths])
        if "application/json" in request.headers.get("accept", ""):
            return json_answer(text)
        return PlainTextResponse(text)

    async def result(self, request: Request) -> Response:
        _, job = await self._found(request)
        if not job.attempt:
            raise DoorError("not-found", "an execution must have run to have a result, got one that has not")
        folder = self._service.log_folder(job.id, job.attempt)
        if not folder.is_dir():
            raise DoorError("gone", "the result of an execution must be kept, got none; it was removed")
        return await zip_folder_answer("result.zip", folder / "outputs")

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def frameworks(self, request: Request) -> Response:
        await self._caller(request)
        return json_answer(
            [{"name": name, "description": text, "desc": [text]} for name, text in FRAMEWORKS.items()]
        )

    async def conf(self, request: Request) -> Response:
        caller = await self._caller(request)
        return json_answer({"user": caller.user_name, "frameworks": list(FRAMEWORKS), "elastic": True})

    async def instances(self, request: Request) -> Response:
        await self._caller(request)
        return json_answer([{"id": "weft", "name": "weft", "state": "STARTED"}])

    async def applications(self, request: Request) -> Response:
        caller, query = await self._caller(request), request.query_params
        try:
            start, length = int(query.get("start", "0")), int(query.get("length", "100"))
        except ValueError:
            start = length = -1
        if start < 0 or not 0 <= length <= MOST_LISTED:
            raise DoorError(
                "bad", f"start and length must be whole numbers, at most {MOST_LISTED} at once, got others"
            )
        texts = {name: query.get(name, "") for name in ("state", "search", "sort")}
        return json_answer(executions.select(await self._mine(caller), start=start, length=length, **texts))

    async def driver_log(self, request: Request) -> Response:
        _, job = await self._found(request)
        return await self._text(request, self._service.log_folder(job.id, job.attempt) / "launcher.log")

    async def executor_log(self, request: Request) -> Response:
        _, job = await self._found(request)
        rank = max(0, request.path_params["number"] - 1)  # executors count from 1
        run = self._service.log_folder(job.id, job.attempt) / "run"
        return await self._text(request, run / f"rank-{rank}.log")

    async def _text(self, request: Request, path: Path) -> Response:
        """Return a log; workers write both streams to one file, which is shown as stdout."""
        stream, lines = request.path_params["stream"], request.query_params.get("lastlines", "")
        if stream not in ("stdout", "stderr"):
            raise DoorError("not-found", f"a log must be stdout or stderr, got {stream[:40]!r}")
        if lines and not lines.isdecimal():
            raise DoorError("bad", f"lastlines must be a whole number, got {lines[:40]!r}")
        text = (
            ""
            if stream == "stderr"
            else await asyncio.to_thread(last_text, path, int(lines) if lines else None)
        )
        return PlainTextResponse(text)
