"""Models of jobs: exported into the model store with their origin, and traced back to data, code and samples."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.errors import ModelError, UsageError, WeftError
from weft.jobs.spec.model import ExportSpec, JobSpec
from weft.jobs.store.data_tables import deployment, job_input, model_origin
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event, now_ms
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.metrics import summaries
from weft.jobs.store.tables import job as job_table
from weft.jobs.store.tables import param, snapshot
from weft.serve.store import Entry, Store
from weft.serve.store.copying import checksum


@dataclass(frozen=True)
class Origin:
    """The job that a version of a model came from, and what was known of it then."""

    model: str
    version: int
    job_id: int | None
    path: str
    created_ms: int
    lineage: dict[str, Any]


class ModelShelf:
    """The model store of the service, and the origins of what is in it."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self.store = Store(folder)

    async def export(self, job: StoredJob, spec: JobSpec, folder: Path) -> None:
        """Put the model of a completed job into the store, where its specification says so."""
        if spec.export is not None:
            await self.add(job, spec.export, folder)

    async def add(self, job: StoredJob, wanted: ExportSpec, folder: Path) -> Entry:
        """Put a file of a job into the store; doing it again gives the same version."""
        path = await asyncio.to_thread(_find, folder, wanted.path)
        entry = await asyncio.to_thread(self._push, path, wanted, job.id)
        lineage = await self._database.read(lambda c: describe_job(c, job))
        lineage["ledger"] = await asyncio.to_thread(judge_samples, folder / "run")
        row = {
            "model": entry.name,
            "version": entry.version,
            "job_id": job.id,
            "path": wanted.path,
            "sha256": entry.sha256,
            "lineage": msgspec.json.encode(lineage).decode(),
            "user_id": job.user_id,
            "created_ms": now_ms(),
        }

        def note(connection: sa.Connection) -> None:
            if _origin_row(connection, entry.name, entry.version) is None:
                connection.execute(sa.insert(model_origin), row)
                named = f"{entry.name}@{entry.version}"
                add_event(
                    connection, f"job:{job.id}", "note", job=job.id, text=f"its model is {named} in the store"
                )
                add_event(connection, "models", "added", model=entry.name, version=entry.version, job=job.id)

        await self._database.write(note)
        return entry

    def _push(self, path: Path, wanted: ExportSpec, job_id: int) -> Entry:
        """Push a file; a version that an interrupted export of this job left is taken for it."""
        aliases = (wanted.alias,) if wanted.alias else ()
        if wanted.model in self.store.names():
            digest = checksum(path).sha256
            known = self._database.ask(lambda c: _versions_of_others(c, wanted.model, job_id))
            for entry in reversed(self.store.list(wanted.model)):
                if entry.record.files[0].sha256 == digest and entry.version not in known:
                    return self.store.tag(f"{entry.name}@{entry.version}", aliases[0]) if aliases else entry
        return self.store.push(path, wanted.model, aliases)

    # -- reading ------------------------------------------------------------------------------------------------------

    def entries(self) -> tuple[Entry, ...]:
        """Return all versions in the store; call it in a thread."""
        return self.store.list()

    def find(self, reference: str) -> Entry:
        return self.store.resolve(reference)


def _find(folder: Path, wanted: str) -> Path:
    for home in (folder / "outputs", folder / "code"):
        path = home / wanted
        if path.is_file() and path.resolve().is_relative_to(home.resolve()):
            return path
    raise UsageError(
        f"export.path must be a file among the outputs of the job, got {wanted!r}; write it to $WEFT_OUTPUTS"
    )


def _origin_row(connection: sa.Connection, model: str, version: int) -> Any:
    mine = (model_origin.c.model == model) & (model_origin.c.version == version)
    return connection.execute(sa.select(model_origin).where(mine)).one_or_none()


def _versions_of_others(connection: sa.Connection, model: str, job_id: int) -> set[int]:
    others = sa.or_(model_origin.c.job_id != job_id, model_origin.c.job_id.is_(None))
    found = sa.select(model_origin.c.version).where(model_origin.c.model == model, others)
    return set(connection.scalars(found))


def origins(connection: sa.Connection, model: str | None = None) -> dict[tuple[str, int], Origin]:
    """Return the origins of versions by model and number."""
    found = sa.select(model_origin)
    if model is not None:
        found = found.where(model_origin.c.model == model)
    return {
        (row.model, row.version): Origin(
            row.model, row.version, row.job_id, row.path, row.created_ms, msgspec.json.decode(row.lineage)
        )
        for row in connection.execute(found)
    }


def models_of_job(connection: sa.Connection, job_id: int) -> list[str]:
    """Return the versions that a job made, as NAME@VERSION."""
    found = sa.select(model_origin).where(model_origin.c.job_id == job_id).order_by(model_origin.c.created_ms)
    return [f"{row.model}@{row.version}" for row in connection.execute(found)]


def deployments_of(connection: sa.Connection, model: str, version: int) -> list[str]:
    """Return the names of deployments that serve a version."""
    mine = (
        (deployment.c.model == model) & (deployment.c.version == version) & (deployment.c.state != "stopped")
    )
    return list(connection.scalars(sa.select(deployment.c.name).where(mine).order_by(deployment.c.name)))


def describe_job(connection: sa.Connection, job: StoredJob) -> dict[str, Any]:
    """Return what a model's origin keeps of its job, also for when the job is gone."""
    inputs = connection.execute(
        sa.select(job_input).where(job_input.c.job_id == job.id).order_by(job_input.c.name)
    )
    data = [
        {"name": row.name, "digest": row.digest, "source": row.source, "kind": row.source_type}
        for row in inputs
    ]
    parameters = connection.execute(sa.select(param.c.name, param.c.value).where(param.c.job_id == job.id))
    spec = connection.scalar(sa.select(job_table.c.spec).where(job_table.c.id == job.id))
    commit = connection.scalar(sa.select(snapshot.c.git_commit).where(snapshot.c.digest == job.snapshot))
    return {
        "job": job.id,
        "name": job.name,
        "project": job.project,
        "user": job.user_name,
        "code": job.snapshot,
        "git_commit": commit,
        "spec": msgspec.json.decode(spec) if spec else None,
        "data": data,
        "params": {row.name: row.value for row in parameters},
        "metrics": {one.name: one.last for one in summaries(connection, job.id) if _is_finite(one.last)},
    }


def _is_finite(value: float | None) -> bool:
    return value is not None and abs(value) < float("inf")


def judge_samples(run_dir: Path) -> dict[str, Any] | None:
    """Return the ledger's verdict on an elastic run: whether each sample was consumed once; None without a ledger."""
    from weft.elastic.history.ledger import audit
    from weft.elastic.history.records import read_ledger

    try:
        found: dict[str, Any] = audit(read_ledger(run_dir)).to_json()
    except (WeftError, OSError, ModelError):
        return None
    return found
