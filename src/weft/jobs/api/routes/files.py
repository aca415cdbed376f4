"""Files of jobs: outputs, artifacts, checkpoints and code, and the upload of code before a job is submitted."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import quote

import sqlalchemy as sa
from starlette.responses import Response

from weft.jobs.api.binding import Handler, bounded_parts
from weft.jobs.api.downloads import SAFE_HEADERS, file_response
from weft.jobs.api.failures import ApiRefusal, not_found
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.files import (
    CodeAnswer,
    CodeFileView,
    FileEntry,
    FileQuery,
    FilesAnswer,
    FilesQuery,
    SnapshotAnswer,
)
from weft.jobs.api.views import find
from weft.jobs.code.blobs import check_snapshot
from weft.jobs.code.snapshot import LARGEST_FILE_BYTES, CodeSnapshot
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.snapshots import add_snapshot, load_snapshot

MOST_ENTRIES = 2000
PREVIEW_BYTES = 1 << 20
# What a job's owner may see of its folder. The run directory is not among it: it holds the secret of the run.
_TOP = re.compile(r"artifacts|checkpoints|attempt-\d+")
_OF_ATTEMPT = ("code", "outputs")
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
           ".webp": "image/webp"}  # fmt: skip
_TABLES = frozenset({".csv", ".tsv"})
_TEXTS = frozenset(
    {
        "",
        ".txt",
        ".md",
        ".py",
        ".json",
        ".jsonl",
        ".yaml",
        ".yml",
        ".toml",
        ".log",
        ".cfg",
        ".ini",
        ".sh",
        ".xml",
    }
)


async def list_all(call: ApiCall) -> FilesAnswer:
    query: FilesQuery = call.query
    found = await find(call)
    root = _root(call, found)
    place = await asyncio.to_thread(safe_place, root, query.path)
    entries = await asyncio.to_thread(lambda: sorted(_entries(root, place), key=_order))
    return FilesAnswer(tuple(entries[:MOST_ENTRIES]), len(entries) > MOST_ENTRIES)


def _root(call: ApiCall, found: StoredJob) -> Path:
    return call.state.jobs.folder / "jobs" / str(found.id)


def safe_place(root: Path, path: str) -> Path:
    """Return a place below a job's folder; one that is elsewhere, or not for users, is not found."""
    parts = PurePosixPath(path).parts
    bad = path.startswith("/") or ".." in parts or "\0" in path or not _is_shown(parts)
    try:
        real = (root / path).resolve(strict=True) if not bad and path else root
        inside = not path or real.relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):
        raise not_found("the file") from None
    if bad or (isinstance(inside, Path) and not _is_shown(inside.parts)):
        raise not_found("the file")
    return real


def _is_shown(parts: tuple[str, ...]) -> bool:
    if not parts:
        return True
    if not _TOP.fullmatch(parts[0]):
        return False
    return not (parts[0].startswith("attempt-") and len(parts) > 1 and parts[1] not in _OF_ATTEMPT)


def _entries(root: Path, place: Path) -> Iterator[FileEntry]:
    if not place.is_dir():
        if place == root:
            return
        raise not_found("the folder")
    base = place.relative_to(root.resolve()) if place != root else Path()
    with os.scandir(place) as scanned:
        for number, entry in enumerate(scanned):
            if number > 10 * MOST_ENTRIES:
                return
            parts = (*base.parts, entry.name)
            if not _is_shown(parts) or not entry.name.isprintable() or entry.is_symlink():
                continue
            state = entry.stat(follow_symlinks=False)
            folder = entry.is_dir(follow_symlinks=False)
            path = "/".join(parts)
            modified = state.st_mtime_ns // 1_000_000
            yield FileEntry(path, 0 if folder else state.st_size, folder, modified, kind_of(path, folder))


def _order(entry: FileEntry) -> tuple[bool, str]:
    return (not entry.is_dir, entry.path)


def kind_of(path: str, folder: bool = False) -> Literal["folder", "text", "image", "table", "other"]:
    """Return how a preview may show a file."""
    if folder:
        return "folder"
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _IMAGES:
        return "image"
    return "table" if suffix in _TABLES else "text" if suffix in _TEXTS else "other"


async def read(call: ApiCall) -> Response:
    query: FileQuery = call.query
    found = await find(call)
    path = str(call.path["path"])
    place = await asyncio.to_thread(safe_place, _root(call, found), path)
    if not place.is_file():
        raise not_found("the file")
    if query.preview:
        return await _preview(place)
    return file_response(place, "application/octet-stream", _as_download(place.name))


async def _preview(place: Path) -> Response:
    kind = kind_of(place.name)
    if kind == "image":
        return file_response(place, _IMAGES[place.suffix.lower()])
    data = await asyncio.to_thread(_first_bytes, place)
    if kind == "other" and b"\0" in data:
        raise ApiRefusal(415, f"{place.name} must be text or a picture to be shown; download it")
    return Response(data, headers=SAFE_HEADERS, media_type="text/plain; charset=utf-8")


def _first_bytes(place: Path) -> bytes:
    with place.open("rb") as file:
        return file.read(PREVIEW_BYTES)


def _as_download(name: str) -> dict[str, str]:
    text = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    return {**SAFE_HEADERS, "content-disposition": text}


# -- code ------------------------------------------------------------------------------------------------


async def snapshot_of(call: ApiCall, found: StoredJob) -> CodeSnapshot | None:
    """Return the snapshot of a job's code; None for a job without one."""
    digest = found.snapshot
    if digest is None:
        return None
    return await call.database.read(lambda c: load_snapshot(c, digest))


async def list_code(call: ApiCall) -> CodeAnswer:
    taken = await snapshot_of(call, await find(call))
    if taken is None:
        return CodeAnswer((), None, False)
    files = tuple(CodeFileView(file.path, file.kind, file.size, file.digest) for file in taken.files)
    return CodeAnswer(files, taken.git_commit, taken.git_diff is not None)


async def read_code(call: ApiCall) -> Response:
    taken = await snapshot_of(call, await find(call))
    path = str(call.path["path"])
    file = next((one for one in taken.files if one.path == path), None) if taken is not None else None
    if file is None:
        raise not_found("the file")
    digest = file.digest
    data = await asyncio.to_thread(call.state.jobs.blobs.read, digest)
    return Response(data, headers=SAFE_HEADERS, media_type="text/plain; charset=utf-8")


async def add_code(call: ApiCall) -> SnapshotAnswer:
    taken: CodeSnapshot = call.body
    blobs = call.state.jobs.blobs

    def missing() -> tuple[str, ...]:
        check_snapshot(taken)
        return blobs.missing(taken.blobs)

    def add(connection: sa.Connection) -> tuple[str, ...]:
        # Looked at once more: retention removes contents, in the same thread, until a snapshot names them.
        absent = blobs.missing(taken.blobs)
        if not absent:
            add_snapshot(connection, taken)
        return absent

    absent = await asyncio.to_thread(missing) or await call.database.write(add)
    return SnapshotAnswer(taken.digest, absent)


async def add_blob(call: ApiCall) -> None:
    digest = str(call.path["digest"])
    with call.state.jobs.blobs.receiving(digest) as draft:
        async for part in bounded_parts(call.request, LARGEST_FILE_BYTES):
            await asyncio.to_thread(draft.write, part)
        await asyncio.to_thread(draft.keep)


HANDLERS: Mapping[str, Handler] = {
    "add_snapshot": add_code,
    "add_blob": add_blob,
    "list_files": list_all,
    "read_file": read,
    "list_code": list_code,
    "read_code": read_code,
}
