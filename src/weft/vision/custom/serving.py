"""A custom model behind HTTP: `deploy.py` in its own process, asked for every picture that comes.

    GET  /test               alive
    POST /detect_upload      a picture as the body, or as the first file of a form; /classify_upload is the same
    POST /classify_upload

One picture is looked at after another, as the product did it. Only this machine can ask: the code of the zip is
someone's, and nothing here asks for keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from weft.errors import ModelError, PictureError, UsageError
from weft.vision.custom.running import CustomModel
from weft.vision.pictures import decode

MOST_BYTES = 64 << 20  # of a picture


class CustomServer:
    """The routes of one custom model."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model: CustomModel | None = None
        self._one_by_one = asyncio.Lock()

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

        uploads = ("/detect_upload", "/classify_upload")
        return Starlette(
            routes=[
                Route("/test", self._alive, methods=["GET"]),
                *(Route(path, self._asked, methods=["POST"]) for path in uploads),
            ],
            lifespan=lifespan,
        )

    async def _alive(self, request: Request) -> Response:
        return JSONResponse({"result": "success"})

    async def _asked(self, request: Request) -> Response:
        try:
            data = await _picture(request)
            async with self._one_by_one:
                answer = await asyncio.to_thread(self._answer, data, dict(request.query_params))
        except (PictureError, UsageError) as error:
            return JSONResponse({"error": str(error)}, 400)
        except ModelError as error:
            return JSONResponse({"error": str(error)}, 500)
        return Response(json.dumps(answer), media_type="application/json")

    def _answer(self, data: bytes, params: dict[str, str]) -> Any:
        """Return what `onInference` says of a picture, which is checked before someone's code sees it."""
        decode(data)
        assert self._model is not None
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


def serve_custom(folder: Path, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve a folder of `train_custom` on this machine until SIGINT or SIGTERM."""
    import uvicorn

    if not _is_loopback(host):
        raise UsageError(f"--host must be a loopback address for a custom model, got {host}; use 127.0.0.1")
    app = CustomServer(folder).app()
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning"))
    say(f"{folder.name}: http://{host}:{port}/detect_upload")
    server.run()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
