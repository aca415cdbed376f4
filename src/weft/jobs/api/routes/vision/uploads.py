"""Uploads: a picture, a film or a zip as the body of a request, kept as it arrives and taken when it is whole."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from weft.errors import PictureError
from weft.jobs.api.binding import Handler, bounded_parts
from weft.jobs.api.routes.vision.caller import admin_of, user_of, vision_of
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.vision import VisionUploadAnswer
from weft.jobs.vision.parts import UPLOADS
from weft.vision.views import VisionFile

MOST_BYTES = 32 << 30  # of a zip or a film
MOST_PICTURE_BYTES = 256 << 20
_FLUSH_BYTES = 4 << 20  # that are gathered before they are written


async def _upload(call: ApiCall) -> VisionUploadAnswer:
    from weft.vision.films.probing import FILM_SUFFIXES

    user, reference, query = user_of(call), call.path["dataset"], call.query
    parts = vision_of(call)
    found = await parts.call(lambda library: library.dataset(reference, user))
    name = PurePosixPath(query.name.replace("\\", "/")).name or "picture"
    suffix = PurePosixPath(name).suffix.lower()
    is_zip, is_film = suffix == ".zip", suffix in FILM_SUFFIXES
    draft: Path = await parts.call(lambda library: library.blobs.draft(suffix if is_zip or is_film else ""))
    kept = False
    try:
        await _receive(call, draft, MOST_BYTES if is_zip or is_film else MOST_PICTURE_BYTES)
        if is_zip:
            place = parts.folder / UPLOADS / draft.name
            place.parent.mkdir(exist_ok=True)
            draft.rename(place)
            kept = True
            request = {"path": str(place), "uploaded": True, "skip_duplicates": query.skip_duplicates}
            task = await parts.begin(
                found.id, "import", call.identity.name, request | {"name": name} | admin_of(call)
            )
            return VisionUploadAnswer(task=task)

        def add(library: Any) -> VisionFile:
            if is_film:
                added: VisionFile = library.add_film(found.id, draft, name, user=user, by=call.identity.name)
                return added
            one: VisionFile = library.add(
                found.id,
                draft.read_bytes(),
                name,
                category=query.category,
                skip_duplicates=query.skip_duplicates,
                user=user,
                by=call.identity.name,
            )
            return one

        added = await parts.call(add)
        await asyncio.to_thread(parts.changed, found.id, file=added.id)
        return VisionUploadAnswer(file=added)
    finally:
        if not kept:
            draft.unlink(missing_ok=True)


async def _receive(call: ApiCall, path: Path, most_bytes: int) -> None:
    """Write a body into a file as it arrives."""
    waiting = bytearray()
    total = 0
    file = await asyncio.to_thread(path.open, "wb")
    try:
        async for part in bounded_parts(call.request, most_bytes):
            waiting += part
            total += len(part)
            if len(waiting) >= _FLUSH_BYTES:
                await asyncio.to_thread(file.write, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(file.write, bytes(waiting))
    finally:
        await asyncio.to_thread(file.close)
    if not total:
        raise PictureError(
            f"{call.query.name[:80]} must be a picture, a film or a zip, got an empty body; send the file"
        )


HANDLERS: Mapping[str, Handler] = {"upload_vision_file": _upload}
