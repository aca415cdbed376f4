"""Data of a job, brought before its start and carried away after its end.

before   dataset:NAME@V is checked against its manifest, s3:// is fetched into the cache; both are recorded by digest
after    outputs named s3://BUCKET/PREFIX are carried there, a model goes into the model store with its origin
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from pathlib import Path

from weft.errors import UsageError
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.data.connections import find_connection
from weft.jobs.data.datasets import RegisteredVersion, find_version, record_input
from weft.jobs.data.manifests import DataManifest, changed, check_unchanged, scan
from weft.jobs.data.s3 import S3Cache, manifest_of, upload_folder
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event
from weft.jobs.store.jobs import StoredJob
from weft.s3 import S3Bucket, S3Place, parse_place
from weft.text import plural

CHECKPOINTS = "checkpoints"  # the output that means the job's checkpoints


def variable_of(name: str) -> str:
    """Return the variable of a data set: my-set is WEFT_DATA_MY_SET."""
    return "WEFT_DATA_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


class DataStaging:
    """Brings data and carries results; used by the service around each attempt."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database, self._folder = database, folder
        self._cache = S3Cache(folder / "cache" / "s3")

    async def bucket(self, place: S3Place, user_id: int) -> S3Bucket:
        """Return a bucket, reached as its user may."""
        sealer = Sealer(self._folder / "secret.key")
        found = await self._database.read(lambda c: find_connection(c, sealer, user_id, place))
        return await asyncio.to_thread(S3Bucket, found, place)

    def sweep(self, unused_s: float) -> int:
        """Remove fetched data that no job has begun with for so long; return the bytes freed."""
        return self._cache.sweep(unused_s, time.time())

    async def scan(self, source: str, user_id: int) -> DataManifest:
        """Return the manifest of a path or of a place in S3."""
        if not source.startswith("s3://"):
            path = Path(source)
            if not path.is_absolute():
                raise UsageError(f"data must be an absolute path or s3://BUCKET/PREFIX, got {source[:200]!r}")
            return await asyncio.to_thread(scan, path)
        bucket = await self.bucket(parse_place(source), user_id)
        return manifest_of(await asyncio.to_thread(bucket.objects), bucket.place)

    # -- before -------------------------------------------------------------------------------------------------------

    async def bring(self, job: StoredJob, spec: JobSpec, folder: Path) -> Mapping[str, str]:
        """Return the folder of each data set of a job; what is in S3 is fetched, what was registered is checked."""
        found = {}
        for name, place in spec.data.items():
            if place.startswith("dataset:"):
                staged = await self._bring_dataset(job, name, place)
            elif place.startswith("s3://"):
                staged = await self._bring_s3(job, name, parse_place(place))
            else:
                continue
            found[variable_of(name)] = str(staged)
        return found

    async def _bring_dataset(self, job: StoredJob, name: str, reference: str) -> Path:
        version, manifest = await self._database.read(lambda c: find_version(c, reference))
        shown = f"{version.name}@{version.version}"
        if version.source.startswith("s3://"):
            place = parse_place(version.source)
            bucket = await self.bucket(place, job.user_id)
            objects = await asyncio.to_thread(bucket.objects)
            if manifest_of(objects, place).digest != manifest.digest:
                raise changed(shown, f"other objects in {place}")
            staged = await asyncio.to_thread(self._cache.fetch, bucket, objects)
        else:
            staged = Path(version.source)
            await asyncio.to_thread(check_unchanged, staged, manifest, shown)
        await self._record(job, name, version.digest, "dataset", _named(version))
        return staged

    async def _bring_s3(self, job: StoredJob, name: str, place: S3Place) -> Path:
        bucket = await self.bucket(place, job.user_id)
        objects = await asyncio.to_thread(bucket.objects)
        staged = await asyncio.to_thread(self._cache.fetch, bucket, objects)
        await self._record(job, name, manifest_of(objects, place).digest, "s3", str(place))
        return staged

    async def _record(self, job: StoredJob, name: str, digest: str, kind: str, source: str) -> None:
        await self._database.write(
            lambda c: record_input(c, job.id, name, digest=digest, source_type=kind, source=source)
        )

    # -- after --------------------------------------------------------------------------------------------------------

    async def carry(self, job: StoredJob, spec: JobSpec, folder: Path) -> None:
        """Carry outputs to S3: the folder of that name among the outputs, or the checkpoints."""
        for name, text in spec.outputs.items():
            if not text.startswith("s3://"):
                continue
            place = parse_place(text.replace("{job}", str(job.id)))
            source = folder.parent / CHECKPOINTS if name == CHECKPOINTS else folder / "outputs" / name
            bucket = await self.bucket(place, job.user_id)
            count = await asyncio.to_thread(upload_folder, bucket, source)
            kept = f"{place} has {plural(count, 'file')} of {name}"
            await self._database.write(
                lambda c, kept=kept: add_event(c, f"job:{job.id}", "note", job=job.id, text=kept)  # type: ignore[misc]
            )


def _named(version: RegisteredVersion) -> str:
    return f"dataset:{version.name}@{version.version}"
