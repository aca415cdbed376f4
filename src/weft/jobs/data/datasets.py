"""Data sets in the store: names with numbered versions that never change.

`dataset:digits@3` is version 3 of digits, `dataset:digits` the newest. A version holds a manifest of its files; jobs
that read it record its digest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.data.manifests import DataManifest
from weft.jobs.store.data_tables import dataset, dataset_version, job_input
from weft.jobs.store.events import add_audit, add_event, now_ms
from weft.jobs.store.tables import user

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REFERENCE = re.compile(r"(?:dataset:)?([^@]+)(?:@(\d{1,9}|latest))?")


class DatasetNotFound(UsageError, LookupError):  # noqa: N818  (the name of the answer: 404)
    """A data set, or a version of one, that is not there."""


@dataclass(frozen=True)
class RegisteredVersion:
    """One version of a data set."""

    name: str
    version: int
    source: str
    digest: str
    files: int
    bytes: int
    note: str
    user_name: str
    created_ms: int


@dataclass(frozen=True)
class Dataset:
    """A data set with its versions, newest first."""

    id: int
    name: str
    description: str
    user_id: int
    user_name: str
    created_ms: int
    versions: tuple[RegisteredVersion, ...]


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a data set's name must be letters, digits, dots, dashes and underscores, got {name[:80]!r}; rename it"
        )
    return name


def parse_reference(text: str) -> tuple[str, int | None]:
    """Return the name and the version of `dataset:digits@3`; no version means the newest."""
    match = _REFERENCE.fullmatch(text)
    if match is None or not _NAME.fullmatch(match[1]):
        raise UsageError(
            f"a data set must be named NAME or NAME@VERSION, got {text[:80]!r}; see weft dataset list"
        )
    return match[1], int(match[2]) if match[2] and match[2] != "latest" else None


def add_version(
    connection: sa.Connection,
    name: str,
    *,
    source: str,
    manifest: DataManifest,
    user_id: int,
    user_name: str,
    note: str = "",
    description: str | None = None,
) -> RegisteredVersion:
    """Add the next version; the newest one again, from the same place, is not added twice."""
    check_name(name)
    row = connection.execute(sa.select(dataset).where(dataset.c.name == name)).one_or_none()
    if row is None:
        made = {"name": name, "description": description or "", "user_id": user_id, "created_ms": now_ms()}
        row = connection.execute(
            sa.insert(dataset).values(**made, next_version=1).returning(*dataset.c)
        ).one()
    elif description is not None:
        connection.execute(sa.update(dataset).where(dataset.c.id == row.id).values(description=description))
    newest = _versions(connection, row.id)[:1]
    if newest and (newest[0].digest, newest[0].source) == (manifest.digest, source):
        return newest[0]
    values: dict[str, Any] = {
        "dataset_id": row.id,
        "version": row.next_version,
        "source": source,
        "digest": manifest.digest,
        "manifest": msgspec.json.encode(manifest).decode(),
        "files": len(manifest.files),
        "bytes": manifest.total_bytes,
        "note": note,
        "user_id": user_id,
        "created_ms": now_ms(),
    }
    connection.execute(sa.insert(dataset_version), values)
    connection.execute(
        sa.update(dataset).where(dataset.c.id == row.id).values(next_version=row.next_version + 1)
    )
    add_event(connection, "datasets", "added", name=name, version=row.next_version)
    add_audit(connection, user_name, "add data set", f"{name}@{row.next_version}", source=source)
    return _versions(connection, row.id)[0]


def _versions(connection: sa.Connection, dataset_id: int) -> tuple[RegisteredVersion, ...]:
    columns = [
        column for column in dataset_version.c if column.name not in ("manifest", "dataset_id", "user_id")
    ]
    found = sa.select(dataset.c.name, *columns, user.c.name.label("user_name")).select_from(
        dataset_version.join(dataset, dataset.c.id == dataset_version.c.dataset_id).join(
            user, user.c.id == dataset_version.c.user_id
        )
    )
    found = found.where(dataset_version.c.dataset_id == dataset_id).order_by(dataset_version.c.version.desc())
    return tuple(RegisteredVersion(**row._mapping) for row in connection.execute(found))


def list_datasets(connection: sa.Connection) -> tuple[Dataset, ...]:
    """Return all data sets by name."""
    return tuple(
        _dataset(connection, row) for row in connection.execute(_select().order_by(dataset.c.name)).all()
    )


def find_dataset(connection: sa.Connection, name: str) -> Dataset:
    """Return a data set with all its versions."""
    row = connection.execute(_select().where(dataset.c.name == name)).one_or_none()
    if row is None:
        raise DatasetNotFound(f"a data set must be known, got {name[:80]!r}; see weft dataset list")
    return _dataset(connection, row)


def _select() -> sa.Select[Any]:
    columns = [column for column in dataset.c if column.name != "next_version"]
    return sa.select(*columns, user.c.name.label("user_name")).join(user, user.c.id == dataset.c.user_id)


def _dataset(connection: sa.Connection, row: Any) -> Dataset:
    return Dataset(**row._mapping, versions=_versions(connection, row.id))


def find_version(connection: sa.Connection, reference: str) -> tuple[RegisteredVersion, DataManifest]:
    """Return the version that a reference means, with its files."""
    name, number = parse_reference(reference)
    found = find_dataset(connection, name)
    chosen = next((one for one in found.versions if number in (None, one.version)), None)
    if chosen is None:
        known = ", ".join(str(one.version) for one in reversed(found.versions)) or "none"
        raise DatasetNotFound(f"{name} must have the version {number or 'latest'}, got versions {known}")
    text = connection.scalar(
        sa.select(dataset_version.c.manifest).where(
            dataset_version.c.dataset_id == found.id, dataset_version.c.version == chosen.version
        )
    )
    return chosen, msgspec.json.decode(text or "{}", type=DataManifest)


def remove_version(connection: sa.Connection, reference: str, *, user_name: str) -> None:
    """Forget a version, or with the last of them the data set; the data itself stays where it is."""
    name, number = parse_reference(reference)
    found = find_dataset(connection, name)
    if number is None:
        connection.execute(sa.delete(dataset).where(dataset.c.id == found.id))
    else:
        chosen, _ = find_version(connection, f"{name}@{number}")
        mine = (dataset_version.c.dataset_id == found.id) & (dataset_version.c.version == chosen.version)
        connection.execute(sa.delete(dataset_version).where(mine))
    add_event(connection, "datasets", "removed", name=name, version=number)
    add_audit(connection, user_name, "remove data set", f"{name}@{number or 'all'}")


def record_input(
    connection: sa.Connection, job_id: int, name: str, *, digest: str, source_type: str, source: str
) -> None:
    """Record that a job reads data; what it read in an earlier attempt stays."""
    key = (job_input.c.job_id == job_id) & (job_input.c.name == name) & (job_input.c.digest == digest)
    if connection.scalar(sa.select(job_input.c.job_id).where(key)) is not None:
        return
    row = {
        "job_id": job_id,
        "name": name,
        "digest": digest,
        "context": "training",
        "source_type": source_type,
    }
    connection.execute(sa.insert(job_input), row | {"source": source, "description": "{}"})


def jobs_reading(connection: sa.Connection, digest: str) -> tuple[int, ...]:
    """Return the jobs that have read data with a digest, newest first."""
    found = (
        sa.select(job_input.c.job_id).where(job_input.c.digest == digest).order_by(job_input.c.job_id.desc())
    )
    return tuple(connection.scalars(found.limit(1000)))
