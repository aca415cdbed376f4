"""Tables of runs: looked at before one begins, kept when they are uploaded, and found in registered data sets."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from weft.auto.reading.files import FILES
from weft.auto.shapes import TableShape, shape_of
from weft.errors import UsageError
from weft.jobs.auto.runs import DOCUMENT
from weft.jobs.code.blobs import BlobStore
from weft.jobs.code.snapshot import CodeSnapshot, SnapshotFile
from weft.jobs.data.datasets import find_version
from weft.jobs.store.database import Database
from weft.jobs.store.snapshots import add_snapshot
from weft.text import suggestion


def table_file(name: str) -> str:
    """Return the name of an uploaded table, without folders; UsageError unless it is one that can be read."""
    file = PurePosixPath(name.replace("\\", "/")).name
    if PurePosixPath(file).suffix.lower() not in FILES or not file.isprintable() or file.startswith("."):
        raise UsageError(f"a table must be a file that ends in one of {', '.join(FILES)}, got {name[:200]!r}")
    return file


def check_columns(shape: TableShape, config: Mapping[str, Any]) -> None:
    """Refuse settings that name a column which the table does not have."""
    names = [column.name for column in shape.columns]
    single = {name: (config[name],) for name in ("target", "time", "group") if name in config}
    several = {name: tuple(config.get(name, ())) for name in ("fairness", "drop")}
    for setting, wanted in (single | several).items():
        for name in wanted:
            if name not in names:
                raise UsageError(
                    f"{setting} must be a column of the table, got {name[:80]!r}; {suggestion(name, names)}"
                )


class AutoTables:
    """The tables that a service can begin runs with."""

    def __init__(self, database: Database, blobs: BlobStore) -> None:
        self._database, self._blobs = database, blobs

    async def keep(self, name: str, data: bytes) -> tuple[str, TableShape]:
        """Keep an uploaded table; return its digest and its columns."""
        file = table_file(name)
        shape = await asyncio.to_thread(shape_of, data, PurePosixPath(file).suffix)
        digest = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
        await asyncio.to_thread(self._blobs.add, digest, data)
        return digest, shape

    async def uploaded(self, digest: str, name: str) -> TableShape:
        """Return the columns of a table that was uploaded; UsageError if it is not there."""
        if self._blobs.missing([digest]):
            raise UsageError("an upload must be there, got none with that digest; send the table again")
        data = await asyncio.to_thread(self._blobs.read, digest)
        return await asyncio.to_thread(shape_of, data, PurePosixPath(table_file(name)).suffix)

    async def registered(self, reference: str, file: str) -> tuple[str, str, TableShape | None]:
        """Return NAME@VERSION of a data set, its table's file and its columns, where these can be looked at here.

        Columns of data in S3 are not looked at: it is fetched when the job begins.
        """
        version, manifest = await self._database.read(lambda c: find_version(c, reference))
        named = f"{version.name}@{version.version}"
        tables = [one.path for one in manifest.files if PurePosixPath(one.path).suffix.lower() in FILES]
        if file not in tables and (file or len(tables) != 1):
            known = ", ".join(tables[:10]) or "no table"
            raise UsageError(f"file must name a table of {named}, got {file[:200]!r}; it has {known}")
        chosen = file or tables[0]
        if version.source.startswith("s3://"):
            return named, chosen, None
        source = Path(version.source)
        path = source if manifest.single else source / chosen
        return named, chosen, await asyncio.to_thread(shape_of, path, path.suffix)

    async def snapshot(self, document: Mapping[str, Any], upload: Mapping[str, str]) -> str:
        """Keep a request and an uploaded table, by its name and digest, as the code of a job; return its digest."""
        request = json.dumps(document).encode()
        digest = hashlib.sha256(request).hexdigest()
        await asyncio.to_thread(self._blobs.add, digest, request)
        files = [SnapshotFile(DOCUMENT, "file", digest, len(request))]
        for name, kept in upload.items():
            size = len(await asyncio.to_thread(self._blobs.read, kept))
            files.append(SnapshotFile(name, "file", kept, size))
        made = CodeSnapshot(tuple(sorted(files, key=lambda one: one.path)))
        return await self._database.write(lambda c: add_snapshot(c, made))
