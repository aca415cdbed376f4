"""Downloads: files that may be written to meanwhile are sent up to the size that they had at first."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from starlette.responses import Response, StreamingResponse

_PART_BYTES = 256 << 10
# A file may be a page with scripts; nothing of it runs here, and nobody guesses that it is one.
SAFE_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def file_response(
    path: Path, media_type: str, headers: Mapping[str, str] = SAFE_HEADERS
) -> StreamingResponse:
    """Return the answer that sends a file."""
    size = path.stat().st_size
    all_headers = {**headers, "content-length": str(size)}
    return StreamingResponse(_parts(path, size), headers=all_headers, media_type=media_type)


def range_response(
    path: Path, media_type: str, asked: str | None, headers: Mapping[str, str] = SAFE_HEADERS
) -> Response:
    """Return the answer that sends a file, or the one range of it that a player asks for."""
    size = path.stat().st_size
    all_headers = {**headers, "accept-ranges": "bytes"}
    wanted = _range(asked, size) if asked is not None else None
    if wanted is None:
        all_headers["content-length"] = str(size)
        return StreamingResponse(_parts(path, size), headers=all_headers, media_type=media_type)
    start, end = wanted
    if start >= end:
        return Response(status_code=416, headers={**all_headers, "content-range": f"bytes */{size}"})
    all_headers |= {"content-range": f"bytes {start}-{end - 1}/{size}", "content-length": str(end - start)}
    return StreamingResponse(_parts(path, end - start, start), 206, all_headers, media_type)


def _range(asked: str, size: int) -> tuple[int, int] | None:
    """Return start and end of a range; None where it is none that is understood, and the whole is sent."""
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", asked.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return max(0, size - int(found[2])), size
    return int(found[1]), min(int(found[2]) + 1, size) if found[2] else size


async def _parts(path: Path, size: int, start: int = 0) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        await asyncio.to_thread(file.seek, start)
        while size > 0:
            part = await asyncio.to_thread(file.read, min(size, _PART_BYTES))
            if not part:  # it was cut meanwhile: the client sees that the answer is not whole
                return
            size -= len(part)
            yield part
    finally:
        file.close()
