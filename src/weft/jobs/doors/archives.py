"""Archives that a door answers with: made on disk, sent, and removed."""

from __future__ import annotations

import asyncio
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from weft.jobs.code.blobs import BlobStore
from weft.jobs.code.snapshot import CodeSnapshot


async def zip_snapshot_answer(name: str, blobs: BlobStore, snapshot: CodeSnapshot) -> Response:
    """Return the files of a snapshot as a zip."""
    return await _zip_answer(name, lambda file: _zip_snapshot(blobs, snapshot, file))


async def zip_folder_answer(name: str, folder: Path) -> Response:
    """Return the plain files of a folder as a zip; an empty one where there is no folder."""
    return await _zip_answer(name, lambda file: _zip_folder(folder, file))


async def _zip_answer(name: str, write: Callable[[IO[bytes]], None]) -> Response:
    with tempfile.NamedTemporaryFile(prefix="weft-", suffix=".zip", delete=False) as file:
        path = Path(file.name)
        try:
            await asyncio.to_thread(write, file)
        except BaseException:
            path.unlink()
            raise
    return FileResponse(
        path, media_type="application/zip", filename=name, background=BackgroundTask(path.unlink)
    )


def _zip_folder(folder: Path, file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.is_file() and not path.is_symlink():
                archive.write(path, str(path.relative_to(folder)))


def _zip_snapshot(blobs: BlobStore, snapshot: CodeSnapshot, file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in snapshot.files:
            info = zipfile.ZipInfo(entry.path)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if entry.kind == "program" else 0o100644) << 16
            archive.writestr(info, blobs.read(entry.digest))
