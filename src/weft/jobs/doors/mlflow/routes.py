"""The paths of MLflow's tracking REST, and of its artifacts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from weft.errors import UsageError
from weft.jobs.doors.access import (
    Authenticate,
    Caller,
    DoorError,
    DoorService,
    changeable_job,
    read_bounded,
    visible_job,
)
from weft.jobs.doors.mlflow import artifacts, messages
from weft.jobs.doors.mlflow.handlers import Tracking
from weft.jobs.doors.mlflow.registry import Registry
from weft.jobs.doors.mlflow.registry_records import RegistryRequest

VERSION = "3.0.0"  # of the protocol: runs, metrics and artifacts; no traces, which clients send from 3.4 on
MOST_BYTES = 4 << 20  # of requests that are not batches
LONGEST_INPUTS_BYTES = 64 << 20  # schemas and profiles of data sets


def mlflow_routes(service: DoorService, authenticate: Authenticate) -> list[BaseRoute]:
    """Return the routes; they belong at the root of the server."""
    tracking, registry = Tracking(service), Registry(service)
    files = ArtifactFiles(service, authenticate)

    def get(path: str, answer: Callable[[Caller, Any], Awaitable[dict[str, Any]]]) -> Route:
        async def endpoint(request: Request) -> Response:
            return _json(await answer(await authenticate(request), request.query_params))

        return Route(path, _guarded(endpoint), methods=["GET"])

    def post(
        path: str,
        answer: Callable[[Caller, Any], Awaitable[dict[str, Any]]],
        message: type[Any],
        most: int = MOST_BYTES,
        methods: tuple[str, ...] = ("POST",),
    ) -> Route:
        decoder = msgspec.json.Decoder(message)

        async def endpoint(request: Request) -> Response:
            caller = await authenticate(request)
            return _json(await answer(caller, _decode(decoder, await read_bounded(request, most))))

        return Route(path, _guarded(endpoint), methods=list(methods))

    paths = [
        post("/runs/log-batch", tracking.log_batch, messages.LogBatch, messages.MOST_BATCH_BYTES),
        post("/runs/log-metric", tracking.log_metric, messages.LogMetric),
        post("/runs/log-parameter", tracking.log_param, messages.RunKeyValue),
        post("/runs/set-tag", tracking.set_tag, messages.RunKeyValue),
        post("/runs/delete-tag", tracking.delete_tag, messages.RunKey),
        post("/runs/log-inputs", tracking.log_inputs, messages.LogInputs, LONGEST_INPUTS_BYTES),
        post("/runs/create", tracking.create_run, messages.CreateRun),
        post("/runs/update", tracking.update_run, messages.UpdateRun),
        post("/runs/delete", tracking.delete_run, messages.RunReference),
        post("/runs/restore", tracking.restore_run, messages.RunReference),
        post("/runs/search", tracking.search_runs, messages.SearchRuns),
        get("/runs/get", tracking.run),
        get("/metrics/get-history", tracking.history),
        get("/artifacts/list", tracking.artifacts),
        get("/experiments/get-by-name", tracking.experiment_by_name),
        get("/experiments/get", tracking.experiment),
        post("/experiments/create", tracking.create_experiment, messages.CreateExperiment),
        post("/experiments/search", tracking.search_experiments, messages.SearchExperiments),
        post("/experiments/delete", tracking.delete_experiment, messages.ExperimentReference),
        post("/experiments/restore", tracking.restore_experiment, messages.ExperimentReference),
        post("/experiments/update", tracking.update_experiment, messages.UpdateExperiment),
        post("/experiments/set-experiment-tag", tracking.tag_experiment, messages.ExperimentTag),
        post("/registered-models/create", registry.create, RegistryRequest),
        post("/registered-models/rename", registry.rename, RegistryRequest),
        post("/registered-models/update", registry.update, RegistryRequest, methods=("PATCH",)),
        post("/registered-models/delete", registry.delete, RegistryRequest, methods=("DELETE",)),
        get("/registered-models/get", registry.get),
        get("/registered-models/search", registry.search),
        post("/registered-models/get-latest-versions", registry.latest, RegistryRequest),
        get("/registered-models/get-latest-versions", registry.latest),
        post("/registered-models/set-tag", registry.set_tag, RegistryRequest),
        post("/registered-models/delete-tag", registry.delete_tag, RegistryRequest, methods=("DELETE",)),
        post("/registered-models/alias", registry.set_alias, RegistryRequest),
        post("/registered-models/alias", registry.delete_alias, RegistryRequest, methods=("DELETE",)),
        get("/registered-models/alias", registry.by_alias),
        post("/model-versions/create", registry.create_version, RegistryRequest),
        post("/model-versions/update", registry.update_version, RegistryRequest, methods=("PATCH",)),
        post("/model-versions/transition-stage", registry.transition, RegistryRequest),
        post("/model-versions/delete", registry.delete_version, RegistryRequest, methods=("DELETE",)),
        get("/model-versions/get", registry.version),
        get("/model-versions/search", registry.search_versions),
        get("/model-versions/get-download-uri", registry.download),
        post("/model-versions/set-tag", registry.set_tag, RegistryRequest),
        post("/model-versions/delete-tag", registry.delete_tag, RegistryRequest, methods=("DELETE",)),
        Route("/{path:path}", _guarded(_unknown)),
    ]
    return [
        Mount("/api/2.0/mlflow", routes=paths),
        Mount("/api/2.0/mlflow-artifacts", routes=files.routes()),
        Mount("/api/3.0/mlflow", routes=[Route("/{path:path}", _guarded(_unknown))]),
        Route("/version", _version, methods=["GET"]),
    ]


class ArtifactFiles:
    """Files of runs, up and down."""

    def __init__(self, service: DoorService, authenticate: Authenticate) -> None:
        self._service, self._authenticate = service, authenticate

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/artifacts", _guarded(self.list), methods=["GET"]),
            Route("/artifacts/{path:path}", _guarded(self.download), methods=["GET"]),
            Route("/artifacts/{path:path}", _guarded(self.upload), methods=["PUT"]),
            Route("/artifacts/{path:path}", _guarded(self.delete), methods=["DELETE"]),
            Route("/{path:path}", _guarded(_unknown)),
        ]

    async def _target(self, request: Request, text: str, *, change: bool) -> artifacts.ArtifactPath:
        caller = await self._authenticate(request)
        target = artifacts.parse_path(text)
        check = changeable_job if change else visible_job
        await self._service.database.read(lambda connection: check(connection, caller, target.job_id))
        return target

    async def list(self, request: Request) -> Response:
        target = await self._target(request, request.query_params.get("path", ""), change=False)
        base = artifacts.safe_path("")  # names of a listing are relative to the folder that was asked for
        return _json(
            {"files": artifacts.list_folder(self._service.folder, target.job_id, target.path, base=base)}
        )

    async def download(self, request: Request) -> Response:
        target = await self._target(request, request.path_params["path"], change=False)
        place = artifacts.locate(self._service.folder, target.job_id, target.path)
        if not place.is_file():
            raise DoorError(
                "not-found", f"an artifact must be there, got {target.path}; list the run's artifacts"
            )
        # Never shown by a browser as a page of ours: a run's files may be anybody's.
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return FileResponse(place, media_type="application/octet-stream", headers=headers)

    async def upload(self, request: Request) -> Response:
        target = await self._target(request, request.path_params["path"], change=True)
        await artifacts.receive(self._service.folder, target, request.stream())
        return _json({})

    async def delete(self, request: Request) -> Response:
        target = await self._target(request, request.path_params["path"], change=True)
        artifacts.remove(self._service.folder, target)
        return _json({})


async def _version(request: Request) -> Response:
    return PlainTextResponse(VERSION)


async def _unknown(request: Request) -> Response:
    return _error("ENDPOINT_NOT_FOUND", f"{request.method} {request.url.path} is not among the parts of MLflow's REST "
                  "that weft has: experiments, runs, metrics, artifacts, registered models", 404)  # fmt: skip


def _json(answer: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _error(code: str, text: str, status: int) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="weft"'} if status == 401 else None
    body = msgspec.json.encode({"error_code": code, "message": text})
    return Response(body, status, media_type="application/json", headers=headers)


def _decode(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DoorError("bad", f"a request must be MLflow's JSON, got: {error}") from None


def _guarded(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint whose refusals are told in MLflow's words."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except DoorError as error:
            code, status = messages.ERRORS[error.kind]
            return _error(code, str(error), status)
        except UsageError as error:
            return _error("INVALID_PARAMETER_VALUE", str(error), 400)

    return answer
