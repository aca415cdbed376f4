"""Uploads at a door: forms of several parts, and code in archives, read within bounds."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from weft.errors import UsageError
from weft.jobs.code.blobs import BlobStore, check_snapshot
from weft.jobs.code.snapshot import LARGEST_FILE_BYTES, MOST_BYTES, MOST_FILES, CodeSnapshot, SnapshotFile
from weft.jobs.doors.access import DoorError
from weft.text import format_size

MOST_PARTS = 20
MOST_UPLOAD_BYTES = MOST_BYTES + (4 << 20)
MOST_FIELD_BYTES = 16 << 20  # of a field that was sent as a file
MOST_TEXT_BYTES = 128 << 20  # of a part without a file name, which is held in memory


@asynccontextmanager
async def read_form(
    request: Request, most_bytes: int = MOST_UPLOAD_BYTES
) -> AsyncIterator[dict[str, IO[bytes]]]:
    """Yield the parts of a form by name, as files.

    Clients of WMLA send their archive without a file name. Starlette takes such a part for text, decodes it and
    refuses it above 1 MiB. Decoding as Latin-1 loses nothing, so the bytes come back whole.
    """
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        raise DoorError(
            "bad", f"a request must be multipart/form-data, got {kind[:80]!r}; send the files as a form"
        )
    headers = Headers({"content-type": f"{kind}; charset=latin-1"})
    parser = MultiPartParser(
        headers,
        _bounded(request, most_bytes),
        max_files=MOST_PARTS,
        max_fields=MOST_PARTS,
        max_part_size=MOST_TEXT_BYTES,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError) as error:
        raise DoorError("bad", f"a request must be a whole form, got: {error}") from None
    try:
        yield {
            name: value.file if isinstance(value, UploadFile) else io.BytesIO(value.encode("latin-1"))
            for name, value in form.multi_items()
        }
    finally:
        await form.close()


@dataclass(frozen=True)
class UploadedForm:
    """A form: its fields of text, and its files in order, each with the name that the client gave it."""

    fields: dict[str, str]
    files: tuple[tuple[str, IO[bytes]], ...]


@asynccontextmanager
async def read_upload(
    request: Request,
    most_bytes: int = MOST_UPLOAD_BYTES,
    most_files: int = 1000,
    texts: frozenset[str] = frozenset(),
) -> AsyncIterator[UploadedForm]:
    """Yield a form whose files have names, many of which may share a field.

    The fields `texts` are text also where a client sends them as files.
    """
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        raise DoorError(
            "bad", f"a request must be multipart/form-data, got {kind[:80]!r}; send the files as a form"
        )
    parser = MultiPartParser(
        request.headers,
        _bounded(request, most_bytes),
        max_files=most_files,
        max_fields=most_files,
        max_part_size=1 << 20,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError) as error:
        raise DoorError("bad", f"a request must be a whole form, got: {error}") from None
    try:
        files = [
            (value.filename or "", value.file)
            for name, value in form.multi_items()
            if isinstance(value, UploadFile) and name not in texts
        ]
        fields = {name: value for name, value in form.multi_items() if isinstance(value, str)}
        for name, value in form.multi_items():
            if isinstance(value, UploadFile) and name in texts:
                fields[name] = (await value.read(MOST_FIELD_BYTES)).decode(errors="replace")
        yield UploadedForm(fields, tuple(files))
    finally:
        await form.close()


async def _bounded(request: Request, most_bytes: int) -> AsyncGenerator[bytes, None]:
    total = 0
    async for part in request.stream():
        total += len(part)
        if total > most_bytes:
            raise DoorError(
                "too-large",
                f"an upload must be at most {format_size(most_bytes, trimmed=True)}, got more; send less",
            )
        yield part


# Raised by the standard library's readers of archives.
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    EOFError,
    NotImplementedError,
)
Entry = tuple[str, bool, Callable[[], IO[bytes]]]  # path, whether it is a program, how to open it


def add_archive(blobs: BlobStore, file: IO[bytes], *, script_name: str | None = None) -> CodeSnapshot:
    """Keep the files of a zip or tar archive, and return them as a snapshot.

    A file that is no archive is code itself, where `script_name` says what to call it.
    """
    start = file.read(4)
    file.seek(0)
    if start[:2] == b"PK":
        return _keep(blobs, _of_zip(file))
    try:
        return _keep(blobs, _of_tar(file))
    except _BROKEN as error:
        if script_name is None or not _is_text(file):
            raise DoorError(
                "bad", f"code must be a zip or tar archive, got neither ({error}); pack the folder"
            ) from None
    file.seek(0)
    return _keep(blobs, iter([(script_name, False, lambda: file)]))


def _is_text(file: IO[bytes]) -> bool:
    file.seek(0)
    data = file.read(LARGEST_FILE_BYTES)
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _of_zip(file: IO[bytes]) -> Iterator[Entry]:
    try:
        archive = zipfile.ZipFile(file)
        entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DoorError("bad", f"code must be a whole zip archive, got: {error}; pack it again") from None
    for info in entries:
        mode = info.external_attr >> 16
        if info.is_dir():
            continue
        if stat.S_ISLNK(mode) or info.flag_bits & 1:
            raise DoorError(
                "bad", f"an archive must have plain files, got a link or a password for {info.filename!r}"
            )
        yield info.filename, bool(mode & stat.S_IXUSR), lambda info=info: archive.open(info)  # type: ignore[misc]


def _of_tar(file: IO[bytes]) -> Iterator[Entry]:
    archive = tarfile.open(fileobj=file, mode="r:*")  # noqa: SIM115  (closed with the upload)

    def entries() -> Iterator[Entry]:
        for info in archive:
            if info.isdir():
                continue
            if not info.isfile():
                raise DoorError(
                    "bad", f"an archive must have plain files, got another kind for {info.name!r}"
                )
            yield info.name, bool(info.mode & stat.S_IXUSR), lambda info=info: _opened(archive, info)  # type: ignore[misc]

    return entries()


def _opened(archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    found = archive.extractfile(info)
    assert found is not None, "a plain file can be read"
    return found


def _keep(blobs: BlobStore, entries: Iterator[Entry]) -> CodeSnapshot:
    """Read every file within bounds, whatever sizes the archive claims."""
    files: dict[str, SnapshotFile] = {}
    total = 0
    for name, program, opened in entries:
        path = str(PurePosixPath(name.removeprefix("./")))
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise DoorError(
                "bad", f"paths of an archive must stay within it, got {name[:200]!r}; pack it again"
            )
        try:
            with opened() as reading:
                data = reading.read(LARGEST_FILE_BYTES + 1)
        except (*_BROKEN, OSError, ValueError) as error:
            raise DoorError(
                "bad", f"an archive must be whole, got {error} in {name[:200]!r}; pack it again"
            ) from None
        total += len(data)
        if len(data) > LARGEST_FILE_BYTES or total > MOST_BYTES or len(files) >= MOST_FILES:
            raise DoorError(
                "too-large",
                f"code must be at most {MOST_FILES} files of {format_size(MOST_BYTES, trimmed=True)} in all, got more",
            )
        digest = hashlib.sha256(data).hexdigest()
        blobs.add(digest, data)
        files[path] = SnapshotFile(path, "program" if program else "file", digest, len(data))
    snapshot = CodeSnapshot(tuple(sorted(files.values(), key=lambda file: file.path)))
    try:
        check_snapshot(snapshot)
    except UsageError as error:
        raise DoorError("bad", str(error)) from None
    return snapshot
