"""A made-up service that answers as the API does: the pages of the console in a browser without jobs that run.

python -m testing.console.app 10000 --port 8901    serve a world of so many jobs
"""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from testing.console import (
    answers,
    auto_answers,
    data_answers,
    study_answers,
    texts,
    training_answers,
    vision_answers,
)
from testing.console.vision_world import make_vision
from testing.console.world import METRICS, World, make_world, now_ms, series

from weft.console import pages
from weft.errors import UsageError
from weft.jobs.api.operations import OPERATIONS, PREFIX
from weft.jobs.spec.read import SpecError

ACTIONS = ("stop", "pause", "resume", "retry", "hold", "release")
POLICY = "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
COOKIE = "weft_session"
PICTURES = 1000  # of the made-up data set


def make_app(world: World, *, logged_in: bool = True) -> Starlette:
    """Return the service over a world."""
    study_answers.add_studies(world)
    world.vision = make_vision(PICTURES if world.jobs else 0)
    world.tables = auto_answers.TablesWorld()
    routes = [Route(f"{PREFIX}/stream", _streamer(world))]
    routes += [Route(f"{PREFIX}/session", _log_in, methods=["POST"])]
    routes += [Route(f"{PREFIX}/jobs/{{job:int}}/files/{{path:path}}", _file)]
    routes += [Route(f"{PREFIX}/jobs/{{job:int}}/code/{{path:path}}", _code)]
    routes += [Route(f"{PREFIX}/jobs/{{job:int}}/logs/raw", lambda request: PlainTextResponse("raw\n"))]
    for one in OPERATIONS:
        handler = _handler(one.name)
        if handler is not None:
            path = PREFIX + one.path
            routes.append(
                Route(path, _answering(world, handler, one.status, logged_in), methods=[one.method.upper()])
            )
    built = pages()
    if built is not None:
        routes += [Mount("/assets", StaticFiles(directory=built / "assets"))]  # type: ignore[list-item]
        routes += [Route("/{path:path}", _page(built))]
    refusals: dict[Any, Any] = {HTTPException: _refused, SpecError: _bad_spec, UsageError: _bad_use}
    return Starlette(routes=routes, exception_handlers=refusals)


def _handler(name: str) -> Callable[..., Any] | None:
    verb = name.removesuffix("_job")
    if verb in ACTIONS:
        return lambda world, request: answers.act(world, request, verb)
    if name in ("drain_host", "undrain_host"):
        return answers.drain_host
    modules = (answers, data_answers, study_answers, vision_answers, training_answers, auto_answers)
    return next((getattr(module, name) for module in modules if hasattr(module, name)), None)


def _answering(
    world: World, handler: Callable[..., Any], status: int, logged_in: bool
) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        if not logged_in and COOKIE not in request.cookies:
            raise HTTPException(401, "log in first")
        if request.method != "GET" and request.headers.get("x-weft-csrf") != "csrf-of-tests":
            raise HTTPException(
                403, "a write must have the session's X-Weft-CSRF, got another; reload the page"
            )
        found = handler(world, request)
        found = await found if inspect.isawaitable(found) else found
        if isinstance(found, Response) or status == 204:
            return found or Response(status_code=status)
        return Response(msgspec.json.encode(found), status, media_type="application/json")

    return answer


async def _log_in(request: Request) -> Response:
    body = await request.json()
    if body.get("link") == "used" or (body.get("password") not in (None, "correct horse")):
        raise HTTPException(401, "the name and the password must belong together; try again")
    answer = Response(
        msgspec.json.encode(answers.show_session(World(), request)), 201, media_type="application/json"
    )
    answer.set_cookie(COOKIE, "of-tests", httponly=True, samesite="strict")
    return answer


async def _file(request: Request) -> Response:
    path = request.path_params["path"]
    if path.endswith(".png"):
        return FileResponse(Path(__file__).resolve().parents[2] / "docs" / "pictures" / "serve.png")
    return PlainTextResponse(
        texts.CSV if path.endswith(".csv") else json.dumps({"accuracy": 0.941}, indent=2)
    )


async def _code(request: Request) -> Response:
    return PlainTextResponse(texts.CODE[request.path_params["path"]])


def _page(built: Path) -> Callable[[Request], Any]:
    async def page(request: Request) -> Response:
        file = built / request.path_params["path"]
        found = file if request.path_params["path"] and file.is_file() else built / "index.html"
        return FileResponse(found, headers={"content-security-policy": POLICY, "cache-control": "no-cache"})

    return page


async def _refused(request: Request, wrong: HTTPException) -> Response:
    words = {401: "unauthorized", 404: "not-found", 409: "wrong-state"}
    error = {"code": words.get(wrong.status_code, "refused"), "text": wrong.detail, "problems": []}
    return Response(json.dumps({"error": error}), wrong.status_code, media_type="application/json")


async def _bad_spec(request: Request, wrong: SpecError) -> Response:
    error = {"code": "bad-spec", "text": str(wrong), "problems": [vars(one) for one in wrong.problems]}
    return Response(json.dumps({"error": error}), 422, media_type="application/json")


async def _bad_use(request: Request, wrong: UsageError) -> Response:
    error = {"code": "bad-request", "text": str(wrong), "problems": []}
    return Response(json.dumps({"error": error}), 422, media_type="application/json")


def _streamer(world: World) -> Callable[[Request], Any]:
    async def stream(request: Request) -> Response:
        topics = request.query_params.get("topics", "jobs").split(",")
        return StreamingResponse(_messages(world, topics), media_type="text/event-stream")

    return stream


async def _messages(world: World, topics: list[str]) -> AsyncIterator[str]:
    """Yield points of the job that is looked at, and changes of the list."""
    watched = [int(topic.split(":")[1]) for topic in topics if topic.endswith(":metrics")]
    followed = [int(topic.split(":")[1]) for topic in topics if topic.startswith("study:")]
    yield ": hello\n\n"
    number = 0
    while True:
        await asyncio.sleep(0.25)
        number += 1
        for job in watched:
            if world.jobs.get(job, {}).get("state") == "running":
                yield _points(world, job)
        for study in followed:
            told = study_answers.move_on(world, study)
            if told:
                yield f"event: study\ndata: {json.dumps(told)}\n\n"
        if number % 8 == 0 and "jobs" in topics:
            data = {"topic": "jobs", "time_ms": now_ms()}
            yield f"id: {number}\nevent: changed\ndata: {json.dumps(data)}\n\n"


def _points(world: World, job: int) -> str:
    world.steps[job] += 5
    step = world.steps[job]
    points = {
        name: [[step, now_ms(), float(series(job, name, np.array([float(step)]))[0])]] for name in METRICS
    }
    return f"event: points\ndata: {json.dumps({'topic': f'job:{job}:metrics', 'job': job, 'points': points})}\n\n"


def main() -> None:
    """Serve until told to stop; the first line on stdout is the address."""
    words = sys.argv[1:]
    listener = socket.create_server(
        ("127.0.0.1", int(words[words.index("--port") + 1]) if "--port" in words else 0)
    )
    app = make_app(make_world(int(words[0])), logged_in="--logged-out" not in words)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)).run([listener])


if __name__ == "__main__":
    main()
