"""Backup and restore: one file with the database and all code, made while the service runs.

The database in it is SQLite, whatever the service uses, so a backup can be restored to SQLite or to PostgreSQL, by the
same version of weft or a later one. Secrets are in it sealed; the key that opens them is in it only if asked for.
"""

from __future__ import annotations

import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.files import drafting
from weft.jobs.store.database import Database, make_engine
from weft.jobs.store.events import now_ms
from weft.jobs.store.study_tables import study
from weft.jobs.store.web_tables import webhook
from weft.version import __version__

METADATA = webhook.metadata  # of the tables of all modules
assert METADATA is study.metadata
MANIFEST, TABLES, KEY = "weft-backup.json", "weft.db", "secret.key"
_TOGETHER = 500  # rows copied at a time
_LEFT_OUT = ("code", "run")  # of an attempt: made again from the snapshot; a run's own files and its secret


class BackupManifest(msgspec.Struct, frozen=True):
    """The description of a backup."""

    version: str
    created_ms: int
    rows: dict[str, int]


@dataclass(frozen=True)
class BackupReport:
    """A backup that was made or restored."""

    path: Path
    bytes: int
    rows: dict[str, int]


def back_up(
    address: str, folder: Path, target: Path, *, with_key: bool = False, with_files: bool = False
) -> BackupReport:
    """Write a backup of the data folder `folder`, whose database is at `address`; a service may run meanwhile.

    `with_files` adds the outputs, artifacts and checkpoints of jobs.
    """
    if target.exists():
        raise UsageError(f"a backup must be a new file, got {target} that exists; name another")
    target.parent.mkdir(parents=True, exist_ok=True)
    with drafting(target.parent, ".backup-") as draft:
        rows = _copy_out(address, draft / TABLES)
        manifest = BackupManifest(__version__, now_ms(), rows)
        (draft / MANIFEST).write_bytes(msgspec.json.encode(manifest))
        whole = draft / "backup.tar.gz"
        with tarfile.open(whole, "w:gz", compresslevel=1) as archive:
            for name in (MANIFEST, TABLES):
                archive.add(draft / name, name)
            # After the database: a content that a row names was there before the row.
            for path, name in _files(folder, with_key=with_key, with_files=with_files):
                archive.add(path, name, recursive=False)
        whole.chmod(0o600)
        whole.replace(target)
    return BackupReport(target, target.stat().st_size, rows)


def _files(folder: Path, *, with_key: bool, with_files: bool) -> Iterator[tuple[Path, str]]:
    if with_key and (folder / KEY).is_file():
        yield folder / KEY, KEY
    for path in sorted((folder / "blobs").glob("[0-9a-f][0-9a-f]/*")):
        if not path.name.startswith("."):
            yield path, f"blobs/{path.parent.name}/{path.name}"
    if with_files:
        for path in sorted((folder / "jobs").rglob("*")):
            parts = path.relative_to(folder / "jobs").parts
            if path.is_file() and not path.is_symlink() and not (len(parts) > 2 and parts[2] in _LEFT_OUT):
                yield path, path.relative_to(folder).as_posix()


def _copy_out(address: str, place: Path) -> dict[str, int]:
    """Write the database to a file of SQLite; return how many rows each table has."""
    source = make_engine(address)
    try:
        if source.dialect.name == "sqlite":
            _copy_sqlite(str(source.url.database), place)
        else:
            _upgrade(f"sqlite:///{place}")
            _copy_tables(source, f"sqlite:///{place}")
    finally:
        source.dispose()
    copy = make_engine(f"sqlite:///{place}")
    try:
        with copy.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            known = set(sa.inspect(connection).get_table_names())
            return {
                table.name: int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)
                for table in METADATA.sorted_tables
                if table.name in known
            }
    finally:
        copy.dispose()


def _copy_sqlite(database: str, place: Path) -> None:
    if not Path(database).is_file():
        raise UsageError(f"the database must exist to be backed up, got nothing at {database}; check --data")
    source, copy = sqlite3.connect(f"file:{database}?mode=ro", uri=True), sqlite3.connect(place)
    try:
        source.backup(copy)
    finally:
        copy.close()
        source.close()


def _upgrade(address: str) -> None:
    """Make the tables of a database, or bring them to today's schema."""
    Database.open(address).close()


def _copy_tables(source: sa.Engine, address: str) -> None:
    """Copy all rows of a database, as they are at one moment, into one that has the tables and no rows."""
    target = make_engine(address)
    try:
        with (
            source.connect().execution_options(**_one_moment(source)) as reading,
            target.execution_options(writes=True).begin() as writing,
        ):
            for table in METADATA.sorted_tables:
                order = list(table.primary_key.columns)
                found = reading.execute(
                    sa.select(table).order_by(*order).execution_options(yield_per=_TOGETHER)
                )
                for part in found.mappings().partitions(_TOGETHER):
                    writing.execute(sa.insert(table), [dict(row) for row in part])
            if target.dialect.name == "postgresql":
                _move_counters(writing)
    finally:
        target.dispose()


def _one_moment(engine: sa.Engine) -> dict[str, str]:
    return {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}


def _move_counters(connection: sa.Connection) -> None:
    """Have PostgreSQL number new rows after those that were copied."""
    for table in METADATA.sorted_tables:
        column = table.autoincrement_column
        if column is not None:
            largest = f"(SELECT COALESCE(MAX({column.name}), 0) + 1 FROM {table.name})"
            serial = f"pg_get_serial_sequence('{table.name}', '{column.name}')"
            connection.exec_driver_sql(f"SELECT setval({serial}, {largest}, false)")


def restore(source: Path, address: str, folder: Path) -> BackupReport:
    """Put a backup into an empty data folder and an empty database; the service must not run."""
    _check_empty(address, folder)
    folder.mkdir(0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".restore-") as place:
        draft = Path(place)
        manifest = _unpack(source, draft)
        _upgrade(f"sqlite:///{draft / TABLES}")
        if address.startswith("sqlite"):
            database = Path(str(sa.make_url(address).database))
            database.parent.mkdir(0o700, parents=True, exist_ok=True)
            (draft / TABLES).chmod(0o600)
            (draft / TABLES).replace(database)
        else:
            _upgrade(address)
            copy = make_engine(f"sqlite:///{draft / TABLES}")
            try:
                _copy_tables(copy, address)
            finally:
                copy.dispose()
        for name in ("blobs", "jobs", KEY):
            if (draft / name).exists():
                (draft / name).replace(folder / name)
    return BackupReport(source, source.stat().st_size, manifest.rows)


def _check_empty(address: str, folder: Path) -> None:
    for name in (TABLES, "blobs", "jobs", KEY):
        place = folder / name
        if place.is_file() or (place.is_dir() and any(place.iterdir())):
            raise UsageError(
                f"a backup must be restored to an empty folder, got {place}; name another with --data"
            )
    if address.startswith("sqlite"):
        return
    engine = make_engine(address)
    try:
        with engine.connect() as connection:
            if "job" in sa.inspect(connection).get_table_names():
                raise UsageError(
                    "a backup must be restored to an empty database, got one with tables; make another"
                )
    finally:
        engine.dispose()


def _unpack(source: Path, draft: Path) -> BackupManifest:
    """Unpack a backup; one that is none, or that would write elsewhere, is refused."""
    try:
        with tarfile.open(source, "r:gz") as archive:
            archive.extractall(draft, filter="data")
        return msgspec.json.decode((draft / MANIFEST).read_bytes(), type=BackupManifest)
    except (tarfile.TarError, OSError, EOFError, msgspec.MsgspecError) as error:
        raise UsageError(f"{source} must be a whole backup of weft, got: {error}; name another") from None
