"""A custom model behind HTTP: `deploy.py` in its own process, asked for every picture that comes.

    GET  /test                    what `onTest` says
    POST /detect_upload           a picture as the body, or as the first file of a form; /classify_upload is the same
    GET  /detect_url?url=         a picture at a public address, where that is allowed; /classify_url is the same
    POST /v2/models/NAME/picture  the same answer in the words of `weft serve`, with ?confidence= and ?top=

One picture is looked at after another, as the product did it. A process that ended, or did not answer in time, is
started again for the next picture. Only this machine can ask: the code of the zip is someone's, and nothing here asks
for keys. A jobs service runs `python -m weft.vision.custom.serving` with the packed model as its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from weft.errors import ModelError, PictureError, UsageError
from weft.serve.server.http.listener import bind, shown_address
from weft.serve.server.pictures.fetching import fetch
from weft.serve.server.refusal import RefusalError
from weft.vision.custom.answers import shown
from weft.vision.custom.running import CustomModel, read_about
from weft.vision.formats.archives import unpack
from weft.vision.pictures import decode

MOST_BYTES = 64 << 20  # of a picture


class CustomServer:
    """The routes of one custom model."""

    def __init__(self, folder: Path, *, fetches: bool = False) -> None:
        self._folder, self._fetches = folder, fetches
        self._about = read_about(folder)
        self._model: CustomModel | None = None
        self._one_by_one = asyncio.Lock()
        self._requests = self._failures = 0

    def app(self, ready: Callable[[], None] = lambda: None) -> Starlette:
        """Return the application; the model's process lives as long as it does."""

        @contextlib.asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            self._model = await asyncio.to_thread(CustomModel, self._folder)
            try:
                ready()
                yield
            finally:
                await asyncio.to_thread(self._model.close)

        uploads, urls = ("/detect_upload", "/classify_upload"), ("/detect_url", "/classify_url")
        return Starlette(
            routes=[
                Route("/test", self._alive, methods=["GET"]),
                *(Route(path, self._uploaded, methods=["POST"]) for path in uploads),
                *(Route(path, self._fetched, methods=["GET"]) for path in urls),
                Route("/v2/models/{name}/picture", self._picture, methods=["POST"]),
                Route("/metrics", self._metrics, methods=["GET"]),
            ],
            lifespan=lifespan,
        )

    async def _alive(self, request: Request) -> Response:
        said = self._model.test if self._model is not None else None
        return JSONResponse({"result": "success"} | ({"test": said} if said is not None else {}))

    async def _metrics(self, request: Request) -> Response:
        return PlainTextResponse(
            f"weft_requests_total {self._requests}\nweft_failures_total {self._failures}\n"
        )

    async def _uploaded(self, request: Request) -> Response:
        return await self._asked(request, _picture)

    async def _fetched(self, request: Request) -> Response:
        return await self._asked(request, self._at_url)

    async def _picture(self, request: Request) -> Response:
        return await self._asked(request, _picture, plain=False)

    async def _at_url(self, request: Request) -> bytes:
        if not self._fetches:
            raise UsageError("fetching pictures by URL must be allowed, got a server where it is off")
        url = request.query_params.get("url") or request.query_params.get("imageUrl")
        if not url:
            raise UsageError("url must be given, got none; write ?url=https://...")
        return await asyncio.to_thread(fetch, url, MOST_BYTES)

    async def _asked(
        self, request: Request, picture: Callable[[Request], Any], *, plain: bool = True
    ) -> Response:
        self._requests += 1
        try:
            data, query = await picture(request), request.query_params
            params = {"heatmap": "true" if query.get("heat", "") else "false", **query}
            confidence, most = (
                _query_number(query.get("confidence"), 0.25, 1),
                _query_number(query.get("top"), 5, 1000),
            )
            async with self._one_by_one:
                answer = await asyncio.to_thread(self._answer, data, params)
        except ModelError as error:
            self._failures += 1
            return JSONResponse({"error": str(error)}, 500)
        except (PictureError, UsageError, RefusalError) as error:
            self._failures += 1
            return JSONResponse({"error": str(error)}, 400)
        body = answer if plain else shown(answer, self._about["task"], confidence=confidence, most=int(most))
        return Response(json.dumps(body), media_type="application/json")

    def _answer(self, data: bytes, params: dict[str, str]) -> Any:
        """Return what `onInference` says of a picture, which is checked before someone's code sees it."""
        decode(data)
        assert self._model is not None
        if not self._model.is_running:
            self._model.close()
            self._model = CustomModel(self._folder)
        with tempfile.NamedTemporaryFile(prefix="weft-asked-", suffix=".jpg") as file:
            file.write(data)
            file.flush()
            return self._model.predict(Path(file.name), params)


async def _picture(request: Request) -> bytes:
    """Return the bytes of a picture: the body itself, or the first file of a form."""
    if int(request.headers.get("content-length") or 0) > MOST_BYTES:
        raise PictureError(f"a picture must have at most {MOST_BYTES} bytes, got more")
    if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        async with request.form(max_files=1, max_part_size=MOST_BYTES) as form:
            for _, value in form.multi_items():
                if isinstance(value, UploadFile):
                    return await value.read()
        raise PictureError(
            "a form must have a file with a picture, got none; send one, or the picture itself"
        )
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MOST_BYTES:
            raise PictureError(f"a picture must have at most {MOST_BYTES} bytes, got more")
    return bytes(data)


def _query_number(text: str | None, usual: float, most: float) -> float:
    try:
        value = float(text) if text else usual
    except ValueError:
        value = -1.0
    if not 0 <= value <= most:
        raise UsageError(f"a number of the query must be from 0 to {most:g}, got {str(text)[:40]!r}")
    return value


def serve_custom(
    folder: Path, host: str, port: int, say: Callable[[str], None], *, fetches: bool = True
) -> None:
    """Serve a folder of `train_custom` on this machine until SIGINT or SIGTERM; port 0 is any that is free.

    `say` is told the address once the model answers.
    """
    import uvicorn

    if not _is_loopback(host):
        raise UsageError(f"--host must be a loopback address for a custom model, got {host}; use 127.0.0.1")
    server = CustomServer(folder, fetches=fetches)
    with bind(host, port) as listener:
        address = f"http://{shown_address(listener)}"
        app = server.app(lambda: say(address))
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listener])


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def main() -> None:
    """Serve the packed model that is standard input; the file descriptor of the first word is told the address."""
    ready = int(sys.argv[1])

    def say(address: str) -> None:
        with os.fdopen(ready, "w") as file:
            json.dump({"http": address}, file)

    with tempfile.TemporaryDirectory(prefix="weft-custom-") as place:
        packed, folder = Path(place, "custom.zip"), Path(place, "model")
        with packed.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        folder.mkdir()
        unpack(packed, folder)
        serve_custom(folder, "127.0.0.1", 0, say)


if __name__ == "__main__":
    main()
