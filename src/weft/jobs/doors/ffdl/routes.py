"""FfDL's REST: /v1/models with its logs and archives, /v1/logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from weft.errors import UsageError
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.data.connections import put_secret
from weft.jobs.doors.access import (
    Authenticate,
    Caller,
    DoorError,
    SubmittingService,
    check_submitter,
    find_door_job,
    keep_document,
    kept_document,
    read_bounded,
)
from weft.jobs.doors.archives import zip_folder_answer, zip_snapshot_answer
from weft.jobs.doors.ffdl import trainings
from weft.jobs.doors.ffdl.events import TrainingEvents
from weft.jobs.doors.ffdl.manifest import read_manifest
from weft.jobs.doors.ffdl.translate import DOOR, hard_coded_places, masked, translate
from weft.jobs.doors.output import OutputFollower, rank_logs, read_lines
from weft.jobs.doors.uploads import add_archive, read_form
from weft.jobs.lifecycle import ENDED
from weft.jobs.store.events import add_event
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.listing import JobFilter, list_jobs
from weft.jobs.store.metrics import history, summaries
from weft.jobs.store.snapshots import add_snapshot, load_snapshot

MANIFEST = "ffdl-manifest.json"  # in a job's folder, without passwords
MOST_LISTED = 1000
MOST_PAGE = 10_000
STOP_S = 20.0  # that deleting a running training waits for its end


def ffdl_routes(service: SubmittingService, authenticate: Authenticate) -> list[BaseRoute]:
    """Return the routes; they belong at the root of the server."""
    door = FfdlDoor(service, authenticate)
    events = TrainingEvents(service.database, door.find)
    models = "/v1/models/{model_id}"
    return [
        Route("/v1/models", _guarded(door.create), methods=["POST"]),
        Route("/v1/models", _guarded(door.list), methods=["GET"]),
        Route(models, _guarded(door.show), methods=["GET"]),
        Route(models, _guarded(door.delete), methods=["DELETE"]),
        Route(models, _guarded(door.halt), methods=["PATCH"]),
        Route(f"{models}/definition", _guarded(door.definition), methods=["GET"]),
        Route(f"{models}/trained_model", _guarded(door.trained_model), methods=["GET"]),
        WebSocketRoute(f"{models}/logs", door.logs_socket),
        Route(f"{models}/logs", _guarded(door.logs), methods=["GET"]),
        Route(f"{models}/events", _guarded(events.list_all), methods=["GET"]),
        Route(f"{models}/events/{{event_type}}", _guarded(events.list), methods=["GET"]),
        Route(f"{models}/events/{{event_type}}/{{endpoint}}", _guarded(events.show), methods=["GET"]),
        Route(f"{models}/events/{{event_type}}/{{endpoint}}", _guarded(events.add), methods=["POST"]),
        Route(f"{models}/events/{{event_type}}/{{endpoint}}", _guarded(events.remove), methods=["DELETE"]),
        Route("/health", _health, methods=["GET"]),
        Route(f"{models}/metrics", _guarded(door.metrics), methods=["GET"]),
        Route("/v1/logs/{model_id}/loglines", _guarded(door.loglines), methods=["GET"]),
        Route("/v1/logs/{model_id}/emetrics", _guarded(door.emetrics), methods=["GET"]),
    ]


class FfdlDoor:
    """FfDL's questions, answered by the job service."""

    def __init__(self, service: SubmittingService, authenticate: Authenticate) -> None:
        self._service, self._database, self._authenticate = service, service.database, authenticate

    # -- submitting ---------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        """Start a training from a manifest and a zip of code."""
        caller = await self._authenticate(request)
        check_submitter(caller)
        async with read_form(request) as parts:
            missing = [name for name in ("manifest", "model_definition") if name not in parts]
            if missing:
                raise DoorError(
                    "bad", f"a training must have manifest and model_definition, got no {missing[0]}"
                )
            manifest = read_manifest(parts["manifest"].read(2 << 20))
            snapshot = await asyncio.to_thread(add_archive, self._service.blobs, parts["model_definition"])
        scripts = [
            (file.path, self._service.blobs.read(file.digest))
            for file in snapshot.files
            if file.size < 1 << 20
        ]
        found = translate(manifest, hard_coded_places(scripts))
        sealer = Sealer(self._service.folder / "secret.key")

        def keep(connection: Any) -> str:
            for name, value in found.secrets.items():
                put_secret(connection, sealer, caller.user_id, name, value)
            return add_snapshot(connection, snapshot)

        digest = await self._database.write(keep)
        (job_id,) = await self._service.submit(
            found.spec, user_id=caller.user_id, user_name=caller.user_name, snapshot=digest
        )
        keep_document(self._service.folder, job_id, MANIFEST, masked(manifest))
        for warning in found.warnings:
            text = warning
            await self._database.write(
                lambda connection, text=text: add_event(  # type: ignore[misc]
                    connection, f"job:{job_id}", "note", job=job_id, text=text
                )
            )
        model_id = trainings.training_id(job_id)
        location = f"/v1/models/{model_id}"
        answer: dict[str, Any] = {"model_id": model_id, "location": location}
        return _json(
            answer | ({"warnings": found.warnings} if found.warnings else {}), 201, {"Location": location}
        )

    def _manifest(self, job_id: int) -> dict[str, Any]:
        return kept_document(self._service.folder, job_id, MANIFEST)

    # -- trainings ----------------------------------------------------------------------------------------------------

    async def find(self, request: HTTPConnection, *, change: bool = False) -> tuple[Caller, StoredJob]:
        """Return the caller and the training of a request."""
        caller = await self._authenticate(request)
        job_id = trainings.job_id_of(request.path_params["model_id"])
        what = "a training"
        return caller, await find_door_job(
            self._database, caller, job_id, door=DOOR, what=what, change=change
        )

    async def list(self, request: Request) -> Response:
        caller = await self._authenticate(request)
        wanted = JobFilter(text=f"door={DOOR}", user_name=caller.user_name)
        page = await self._database.read(lambda connection: list_jobs(connection, wanted, most=MOST_LISTED))
        return _json({"models": [trainings.model_json(job, self._manifest(job.id)) for job in page.jobs]})

    async def show(self, request: Request) -> Response:
        _, job = await self.find(request)
        metrics = await self._database.read(lambda connection: summaries(connection, job.id))
        shown = [
            {
                "type": "",
                "timestamp": str(one.last_ms),
                "iteration": one.last_step,
                "values": {one.name: one.last},
            }
            for one in metrics
            if one.last is not None and abs(one.last) < float("inf")
        ]
        return _json(trainings.model_json(job, self._manifest(job.id), shown))

    async def halt(self, request: Request) -> Response:
        caller, job = await self.find(request, change=True)
        try:
            asked = msgspec.json.decode(await read_bounded(request, 1 << 16), type=dict[str, Any])
        except msgspec.MsgspecError:
            asked = {}
        if asked.get("status") != "halt":
            raise DoorError("bad", f"status must be halt, got {str(asked.get('status'))[:40]!r}")
        await self._service.act(job.id, "stop", user_name=caller.user_name)
        return _json({"model_id": trainings.training_id(job.id)}, 202)

    async def delete(self, request: Request) -> Response:
        """Remove a training; one that runs is halted first."""
        caller, job = await self.find(request, change=True)
        if job.state not in ENDED:
            await self._service.act(job.id, "stop", user_name=caller.user_name)
            await self._wait_for_end(job.id)
        await self._service.remove(job.id, user_name=caller.user_name)
        return _json({"model_id": trainings.training_id(job.id)})

    async def _wait_for_end(self, job_id: int) -> None:
        async with asyncio.timeout(STOP_S):
            while not (await self._newest(job_id))[1]:
                await asyncio.sleep(0.1)

    async def _newest(self, job_id: int) -> tuple[Path | None, bool]:
        """Return the folder of a job's newest attempt, and whether the job has ended or is gone."""
        from weft.jobs.store.jobs import find_job

        found = await self._database.read(lambda connection: find_job(connection, job_id))
        if found is None:
            return None, True
        folder = self._service.log_folder(job_id, found.attempt) if found.attempt else None
        return folder, found.state in ENDED

    # -- archives -----------------------------------------------------------------------------------------------------

    async def definition(self, request: Request) -> Response:
        _, job = await self.find(request)
        if job.snapshot is None:
            raise DoorError("gone", "the code of a training must be kept, got none")
        digest = job.snapshot
        snapshot = await self._database.read(lambda connection: load_snapshot(connection, digest))
        return await zip_snapshot_answer("model.zip", self._service.blobs, snapshot)

    async def trained_model(self, request: Request) -> Response:
        _, job = await self.find(request)
        if not job.attempt:
            raise DoorError("not-found", "a training must have run to have results, got one that has not")
        folder = self._service.log_folder(job.id, job.attempt)
        if not folder.is_dir():
            raise DoorError("gone", "the results of a training must be kept, got none; they were removed")
        return await zip_folder_answer("trained_model.zip", folder / "outputs" / "results")

    # -- logs and metrics ---------------------------------------------------------------------------------------------

    def _follower(self, job: StoredJob) -> OutputFollower:
        learners = int(self._manifest(job.id).get("learners", 1))
        return OutputFollower(lambda: self._newest(job.id), named=learners > 1)

    async def logs(self, request: Request) -> Response:
        _, job = await self.find(request)
        pieces = self._follower(job).pieces(follow=_flag(request, "follow"))
        return StreamingResponse(pieces, media_type="text/plain; charset=utf-8")

    async def logs_socket(self, socket: WebSocket) -> None:
        """Send the output in pieces of text until the training has ended."""
        try:
            _, job = await self.find(socket)
        except DoorError:
            await socket.close(4401)
            return
        await socket.accept()
        try:
            async for piece in self._follower(job).pieces(follow=_flag(socket, "follow")):
                await socket.send_text(piece.decode(errors="replace"))
            await socket.close()
        except (WebSocketDisconnect, RuntimeError):  # the client went away
            return

    async def metrics(self, request: Request) -> Response:
        _, job = await self.find(request)
        records = await self._records(job)
        return StreamingResponse(_lines(records), media_type="application/x-ndjson")

    async def _records(self, job: StoredJob) -> list_of_records:
        def read(connection: Any) -> dict[str, Any]:
            found = {}
            for one in summaries(connection, job.id):
                points = history(connection, job.id, one.name)
                found[one.name] = list(
                    zip(points.steps.tolist(), points.times_ms.tolist(), points.values.tolist(), strict=True)
                )
            return found

        return trainings.records_of(await self._database.read(read), job)

    async def emetrics(self, request: Request) -> Response:
        _, job = await self.find(request)
        return _json({"models": _page(request, await self._records(job))})

    async def loglines(self, request: Request) -> Response:
        _, job = await self.find(request)
        folder = self._service.log_folder(job.id, job.attempt)
        lines = await asyncio.to_thread(read_lines, folder) if job.attempt else []
        times = (
            {rank: int(path.stat().st_mtime * 1000) for rank, path in rank_logs(folder)}
            if job.attempt
            else {}
        )
        items = [
            trainings.line_json(job, line, times.get(rank, 0), index)
            for index, (rank, line) in enumerate(lines, 1)
        ]
        return _json({"models": _page(request, items)})


list_of_records = list[dict[str, Any]]


async def _health(request: Request) -> Response:
    return _json({"status": "SERVING"})


def _page(request: Request, items: list_of_records) -> list_of_records:
    query = request.query_params
    try:
        pos, size = int(query.get("pos", "0")), int(query.get("pagesize", "10"))
    except ValueError:
        raise DoorError("bad", "pos and pagesize must be whole numbers, got others") from None
    if not 0 < size <= MOST_PAGE:
        raise DoorError("bad", f"pagesize must be 1 to {MOST_PAGE}, got {size}")
    return trainings.page_of(items, pos=pos, size=size, since=query.get("since_time", ""))


def _flag(request: HTTPConnection, name: str) -> bool:
    return request.query_params.get(name, "").lower() in ("true", "1", "yes")


async def _lines(records: list_of_records) -> AsyncIterator[bytes]:
    for record in records:
        yield msgspec.json.encode(record) + b"\n"


def _json(answer: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(answer), status, headers, media_type="application/json")


def _guarded(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint whose refusals are told in FfDL's words."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except DoorError as error:
            word, status = trainings.ERRORS[error.kind]
            headers = {"WWW-Authenticate": 'Basic realm="weft"'} if status == 401 else {}
            return _json({"code": status, "error": word, "description": str(error)}, status, headers)
        except TimeoutError:
            return _json(
                {"code": 409, "error": "Conflict", "description": "it is still ending; try again"}, 409
            )
        except UsageError as error:
            return _json({"code": 400, "error": "Bad Request", "description": str(error)}, 400)

    return answer
