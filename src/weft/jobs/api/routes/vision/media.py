"""Bytes of files: pictures, thumbnails, films by ranges; and the tools that look at a picture."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.responses import Response

from weft.jobs.api.binding import Handler
from weft.jobs.api.downloads import file_response, range_response
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.routes.vision.caller import user_of, vision_of
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.vision import VisionAssistAnswer, VisionAssistBody

# Content never changes for a file: browsers may keep it, and ask nobody else.
_KEPT = {
    "cache-control": "private, max-age=31536000, immutable",
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
}
_SHOWN_BY_BROWSERS = frozenset({"JPEG", "PNG", "WebP", "GIF", "BMP"})
ASSISTANT = "assistant.onnx"  # in the folder of the library: a model that segments by a prompt


async def _picture(call: ApiCall) -> Response:
    from weft.vision.pictures.headers import CONTENT_TYPES

    user, file_id = user_of(call), call.path["file"]
    path, media = await vision_of(call).call(lambda library: library.picture_path(file_id, user))
    types: Mapping[str, str] = {str(kind): text for kind, text in CONTENT_TYPES.items()}
    if media not in types:
        raise ApiRefusal(422, "a film must be asked for at /film, got /picture")
    if media not in _SHOWN_BY_BROWSERS:
        return await asyncio.to_thread(_as_png, path)
    return file_response(path, types[media], _KEPT)


def _as_png(path: Path) -> Response:
    from weft.vision.pictures.decoding import decode, encode_png

    return Response(encode_png(decode(path)), headers=_KEPT, media_type="image/png")


async def _thumbnail(call: ApiCall) -> Response:
    user, file_id, side = user_of(call), call.path["file"], call.query.side
    path = await vision_of(call).call(lambda library: library.thumbnail(file_id, side, user))
    return file_response(path, "image/jpeg", _KEPT)


async def _film(call: ApiCall) -> Response:
    """Send a film or a range of it, as players ask for."""
    from weft.vision.films.probing import CONTENT_TYPES

    user, file_id = user_of(call), call.path["file"]
    path, media = await vision_of(call).call(lambda library: library.picture_path(file_id, user))
    if path.suffix.lstrip(".") != media:
        raise ApiRefusal(422, "a picture must be asked for at /picture, got /film")
    kind = CONTENT_TYPES.get(media, "application/octet-stream")
    return range_response(path, kind, call.request.headers.get("range"), _KEPT)


async def _assist(call: ApiCall) -> VisionAssistAnswer:
    user, file_id, asked = user_of(call), call.path["file"], call.body
    path, _ = await vision_of(call).call(lambda library: library.picture_path(file_id, user))
    model = vision_of(call).folder / ASSISTANT
    return VisionAssistAnswer(await asyncio.to_thread(_outline, path, asked, model))


def _outline(path: Path, asked: VisionAssistBody, model: Path) -> Any:
    from weft.vision.assist.outlines import grabcut, wand
    from weft.vision.assist.prompted import ModelAssistant
    from weft.vision.pictures.decoding import decode

    if asked.tool == "grabcut" and asked.box is None:
        raise ApiRefusal(422, "grabcut must have a box, got none; draw one")
    if asked.tool == "wand" and asked.point is None:
        raise ApiRefusal(422, "the wand must have a point, got none; click one")
    if asked.tool == "model" and not model.is_file():
        raise ApiRefusal(
            422,
            f"a model must be in the service's folder as vision/{ASSISTANT}, got none; use grabcut or the wand",
        )
    pixels = decode(path)
    if asked.tool == "grabcut" and asked.box is not None:
        return grabcut(pixels, asked.box)
    if asked.tool == "wand" and asked.point is not None:
        return wand(pixels, asked.point, asked.tolerance)
    return ModelAssistant(model).outline(pixels, box=asked.box, point=asked.point)


HANDLERS: Mapping[str, Handler] = {
    "read_vision_picture": _picture,
    "read_vision_thumbnail": _thumbnail,
    "read_vision_film": _film,
    "assist_vision_labels": _assist,
}
