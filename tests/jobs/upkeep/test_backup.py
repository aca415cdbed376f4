"""Backup and restore: everything comes back, on SQLite and PostgreSQL, and nothing is written over."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from stat import S_IMODE

import pytest
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.code.blobs import BlobStore
from weft.jobs.metrics.batches import encode_batch
from weft.jobs.spec.read import read_spec, resolve
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event, newest_event
from weft.jobs.store.jobs import find_job, submit_job
from weft.jobs.store.metrics import add_batch, pack_job, summaries
from weft.jobs.store.tables import user
from weft.jobs.upkeep.backup import back_up, restore

pytestmark = pytest.mark.xdist_group("databases")  # a server is started for them
DATA = b"print(1)\n"


def fill(database: Database, folder: Path) -> None:
    BlobStore(folder / "blobs").add(hashlib.sha256(DATA).hexdigest(), DATA)
    Sealer(folder / "secret.key")
    outputs = folder / "jobs" / "1" / "attempt-1" / "outputs"
    for name in ("outputs", "run", "code"):
        (folder / "jobs" / "1" / "attempt-1" / name).mkdir(parents=True)
    (outputs / "model.bin").write_bytes(b"weights")
    (outputs.parent / "run" / "secret").write_text("secret")

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.insert(user), {"name": "ann", "role": "admin", "created_ms": 0})
        one = submit_job(
            connection, resolve(read_spec("run: a.py\ntags: {k: v}")), user_id=1, user_name="ann"
        )
        submit_job(connection, resolve(read_spec("run: b.py")), user_id=1, user_name="ann", parent_id=one)
        points = encode_batch([("loss", 1, 1, float("nan")), ("loss", 2, 2, 0.5)])
        add_batch(connection, one, "s", 1, points)
        pack_job(connection, one)

    database.submit(work).result()


def test_a_backup_made_while_the_service_runs_brings_everything_back(address: str, tmp_path: Path) -> None:
    folder, again = tmp_path / "data", tmp_path / "again"
    folder.mkdir()
    database = Database.open(address)
    fill(database, folder)
    target = tmp_path / "backup.tar.gz"
    report = back_up(address, folder, target, with_key=True, with_files=True)
    assert (report.rows["job"], report.rows["user_account"], report.bytes) == (2, 1, target.stat().st_size)
    assert S_IMODE(target.stat().st_mode) == 0o600
    newest = database.ask(newest_event)
    database.close()
    restored = restore(target, f"sqlite:///{again}/weft.db", again)
    assert restored.rows == report.rows
    back = Database.open(f"sqlite:///{again}/weft.db")
    try:
        two = back.ask(lambda c: find_job(c, 2))
        assert two is not None
        assert (two.parent_id, two.user_name) == (1, "ann")
        (loss,) = back.ask(lambda c: summaries(c, 1))
        assert (loss.points, loss.last) == (2, 0.5)
        back.submit(lambda c: add_event(c, "jobs", "x")).result()
        assert back.ask(newest_event) == newest + 1
    finally:
        back.close()
    assert BlobStore(again / "blobs").read(hashlib.sha256(DATA).hexdigest()) == DATA
    assert (again / "secret.key").read_bytes() == (folder / "secret.key").read_bytes()
    assert (again / "jobs" / "1" / "attempt-1" / "outputs" / "model.bin").read_bytes() == b"weights"
    assert not (again / "jobs" / "1" / "attempt-1" / "run").exists()


def test_a_backup_of_sqlite_moves_to_another_database(address: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    database = Database.open(f"sqlite:///{folder}/weft.db")
    fill(database, folder)
    back_up(f"sqlite:///{folder}/weft.db", folder, tmp_path / "backup.tar.gz")
    database.close()
    restore(tmp_path / "backup.tar.gz", address, tmp_path / "again")
    back = Database.open(address)
    try:
        text = resolve(read_spec("run: c.py"))
        assert back.submit(lambda c: submit_job(c, text, user_id=1, user_name="ann")).result() == 3
    finally:
        back.close()
    assert not (tmp_path / "again" / "secret.key").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    address = f"sqlite:///{folder}/weft.db"
    with pytest.raises(UsageError, match="must exist to be backed up"):
        back_up(address, folder, tmp_path / "x.tar.gz")
    Database.open(address).close()
    back_up(address, folder, tmp_path / "x.tar.gz")
    with pytest.raises(UsageError, match="must be a new file"):
        back_up(address, folder, tmp_path / "x.tar.gz")
    with pytest.raises(UsageError, match="empty folder"):
        restore(tmp_path / "x.tar.gz", address, folder)


def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no tar")
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("../escaped")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    for name in ("text", "evil.tar.gz", "nothing"):
        with pytest.raises(UsageError, match="whole backup"):
            restore(tmp_path / name, f"sqlite:///{tmp_path}/again/weft.db", tmp_path / "again")
    assert not (tmp_path / "escaped").exists()
    assert list((tmp_path / "again").iterdir()) == []
