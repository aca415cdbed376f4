"""Custom models (dnn-scripts): zips with train.py and deploy.py that trainings name by their id."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute

from weft.files import write_whole
from weft.jobs.doors.access import Caller, DoorError
from weft.jobs.doors.powerai.base import PowerAiPart, body_of, both, in_order, json_answer, success, text_of
from weft.jobs.doors.powerai.identities import missing
from weft.jobs.doors.uploads import read_upload
from weft.jobs.store.events import now_ms

MOST_SCRIPT_BYTES = 64 << 20
ARCHIVE, ABOUT = "custom.zip", "about.json"
_SCRIPT = "/dnn-scripts/{script}"


class ScriptPart(PowerAiPart):
    """Zips of custom models, each its owner's; their code runs in a training, as a job of who begins it, and in a
    deployment, as who makes that.
    """

    def routes(self) -> list[BaseRoute]:
        return [
            *both("/dnn-scripts", {"GET": self.list, "POST": self.add}),
            *both(_SCRIPT, {"GET": self.show, "PUT": self.change, "DELETE": self.remove}),
            *both(f"{_SCRIPT}/download", {"GET": self.download}),
        ]

    @property
    def _home(self) -> Path:
        return self.service.folder / "vision" / "scripts"

    async def add(self, request: Request) -> Response:
        """Keep a zip; one without train.py and deploy.py is refused."""
        from weft.vision.custom.running import check_custom

        caller = await self.caller(request, writes=True)
        async with read_upload(request, MOST_SCRIPT_BYTES) as form:
            if len(form.files) != 1:
                raise DoorError("bad", f"a custom model must be one file, got {len(form.files)}; send a zip")
            shown, file = form.files[0]
            data, fields = await asyncio.to_thread(file.read), form.fields
        await asyncio.to_thread(check_custom, data)
        identity = str(uuid.uuid4())
        about = {
            "_id": identity,
            "name": (fields.get("name") or Path(shown).stem or "custom")[:100],
            "description": fields.get("description", "")[:1000],
            "usage": fields.get("usage", "cic")[:20],
            "owner": caller.user_name,
            "size": len(data),
            "created_at": now_ms(),
        }
        await asyncio.to_thread(self._keep, identity, data, about)
        return success(201, dnnscript_id=identity, **about)

    def _keep(self, identity: str, data: bytes, about: dict[str, Any]) -> None:
        folder = self._home / identity
        folder.mkdir(0o700, parents=True)
        (folder / ARCHIVE).write_bytes(data)
        write_whole(folder / ABOUT, json.dumps(about))

    def _all(self, caller: Caller) -> list[dict[str, Any]]:
        found = [json.loads(path.read_bytes()) for path in sorted(self._home.glob(f"*/{ABOUT}"))]
        return [one for one in found if caller.role == "admin" or one["owner"] == caller.user_name]

    async def list(self, request: Request) -> Response:
        caller = await self.caller(request)
        return json_answer(in_order(await asyncio.to_thread(self._all, caller), request))

    async def _about(self, caller: Caller, text: str) -> dict[str, Any]:
        for one in await asyncio.to_thread(self._all, caller):
            if text in (one["_id"], one["name"]):
                return one
        raise missing("dnn-script", text)

    async def archive(self, caller: Caller, text: str) -> bytes:
        """Return the zip of a custom model that a training names."""
        about = await self._about(caller, text)
        return await asyncio.to_thread((self._home / about["_id"] / ARCHIVE).read_bytes)

    async def show(self, request: Request) -> Response:
        return json_answer(await self._about(await self.caller(request), request.path_params["script"]))

    async def change(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        about = await self._about(caller, request.path_params["script"])
        for name in ("name", "description"):
            about[name] = text_of(body, name, needed=False)[:1000] or about[name]
        await asyncio.to_thread(write_whole, self._home / about["_id"] / ABOUT, json.dumps(about))
        return success(**about)

    async def remove(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        about = await self._about(caller, request.path_params["script"])
        await asyncio.to_thread(shutil.rmtree, self._home / about["_id"])
        return success()

    async def download(self, request: Request) -> Response:
        about = await self._about(await self.caller(request), request.path_params["script"])
        path = self._home / about["_id"] / ARCHIVE
        return FileResponse(path, media_type="application/zip", filename=f"{about['name']}.zip")
