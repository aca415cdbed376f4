"""Downloads: files that may be written to meanwhile are sent up to the size that they had at first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from starlette.responses import StreamingResponse

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
    told = {**headers, "content-length": str(size)}
    return StreamingResponse(_parts(path, size), headers=told, media_type=media_type)


async def _parts(path: Path, size: int) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while size > 0:
            part = await asyncio.to_thread(file.read, min(size, _PART_BYTES))
            if not part:  # it was cut meanwhile: the client sees that the answer is not whole
                return
            size -= len(part)
            yield part
    finally:
        file.close()
