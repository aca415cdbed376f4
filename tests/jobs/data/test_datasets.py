from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.data.connections import find_connection, put_secret
from weft.jobs.data.datasets import (
    DatasetNotFound,
    add_version,
    find_dataset,
    find_version,
    jobs_reading,
    list_datasets,
    parse_reference,
    record_input,
    remove_version,
)
from weft.jobs.data.manifests import check_unchanged, scan
from weft.jobs.data.serving import parse_figures, quantiles, serve_command
from weft.jobs.store import tables
from weft.jobs.store.database import Database
from weft.s3 import S3Place, parse_place

pytestmark = pytest.mark.xdist_group("databases")


def test_equal_data_has_an_equal_digest(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "x.csv").write_text("1,2")
        (tmp_path / name / "sub" / "y.csv").write_text("3,4")
    first, second = scan(tmp_path / "a"), scan(tmp_path / "b")
    assert first.digest == second.digest
    assert [file.path for file in first.files] == ["sub/y.csv", "x.csv"]
    (tmp_path / "b" / "x.csv").write_text("1,3")
    assert scan(tmp_path / "b").digest != first.digest
    single = scan(tmp_path / "a" / "x.csv")
    assert (single.single, single.files[0].path, single.total_bytes) == (True, "x.csv", 3)
    (tmp_path / "empty").mkdir()
    for wrong in ("empty", "none"):
        with pytest.raises(UsageError, match="data must"):
            scan(tmp_path / wrong)


def test_data_that_changed_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("one")
    manifest = scan(data)
    check_unchanged(data, manifest, "d@1")
    (data / "x").write_text("one")  # written again with the same content
    check_unchanged(data, manifest, "d@1")
    (data / "x").write_text("two")
    with pytest.raises(UsageError, match="d@1 must be as it was registered, got another content"):
        check_unchanged(data, manifest, "d@1")
    (data / "x").write_text("longer")
    with pytest.raises(UsageError, match="6 bytes in place of 3"):
        check_unchanged(data, manifest, "d@1")
    (data / "x").write_text("one")
    (data / "y").write_text("")
    with pytest.raises(UsageError, match="a new file y"):
        check_unchanged(data, manifest, "d@1")
    (data / "x").unlink()
    with pytest.raises(UsageError, match="No such file"):
        check_unchanged(data, manifest, "d@1")


@pytest.fixture
def store(database: Database) -> Any:
    """A function that carries out work in a transaction; ann is there, with job 1."""

    def make(connection: sa.Connection) -> None:
        connection.execute(sa.insert(tables.user).values(id=1, name="ann", role="member", created_ms=0))
        row = {"id": 1, "name": "j", "project": "p", "user_id": 1, "kind": "run", "state": "running"}
        more = {"queue": "default", "priority": 50, "spec": "{}", "created_ms": 0, "queued_ms": 0}
        connection.execute(sa.insert(tables.job).values(**row, **more))

    database.submit(make).result()
    return lambda work: database.submit(work).result(timeout=60)


def test_versions_are_numbered_once_and_never_change(store: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"

    def add(text: str, source: str = "/x", **more: Any) -> int:
        path.write_text(text)
        wanted = {"source": source, "manifest": scan(path), "user_id": 1, "user_name": "ann", **more}
        return int(store(lambda c: add_version(c, "digits", **wanted)).version)

    assert [add("1"), add("2", note="more"), add("2"), add("2", source="/y")] == [1, 2, 2, 3]
    found = store(lambda c: find_dataset(c, "digits"))
    assert [one.version for one in found.versions] == [3, 2, 1]
    assert found.versions[1].note == "more"
    version, manifest = store(lambda c: find_version(c, "dataset:digits@1"))
    assert (version.source, version.digest, manifest.digest) == ("/x", manifest.digest, manifest.digest)
    assert store(lambda c: find_version(c, "dataset:digits"))[0].version == 3
    store(lambda c: remove_version(c, "digits@3", user_name="ann"))
    assert add("3") == 4  # 3 is never given again
    for missing in ("digits@3", "digits@9", "none"):
        with pytest.raises(DatasetNotFound):
            store(lambda c, missing=missing: find_version(c, missing))
    store(lambda c: remove_version(c, "digits", user_name="ann"))
    assert store(list_datasets) == ()


def test_references_and_places() -> None:
    assert parse_reference("dataset:a.b@3") == ("a.b", 3)
    assert parse_reference("a@latest") == ("a", None)
    for wrong in ("", "a@b", "a b", "@3", "a@"):
        with pytest.raises(UsageError):
            parse_reference(wrong)
    assert parse_place("s3://bucket/a/b/") == S3Place("bucket", "a/b")
    assert parse_place("s3://work@bucket") == S3Place("bucket", "", "work")
    assert str(parse_place("s3://work@bucket/x")) == "s3://work@bucket/x"
    for wrong in (
        "s3://",
        "s3://b",
        "http://bucket/x",
        "s3://bucket/../x",
        "s3://a:b@bucket/x",
        "s3://b ucket",
    ):
        with pytest.raises(UsageError):
            parse_place(wrong)


def test_what_a_job_reads_is_recorded_once(store: Any) -> None:
    for _ in range(2):
        store(
            lambda c: record_input(
                c, 1, "digits", digest="d" * 64, source_type="dataset", source="dataset:digits@1"
            )
        )
    assert store(lambda c: jobs_reading(c, "d" * 64)) == (1,)


def test_connections_are_sealed(store: Any, tmp_path: Path) -> None:
    sealer = Sealer(tmp_path / "secret.key")
    text = '{"endpoint": "http://x", "key": "k", "secret": "s3cret"}'
    store(lambda c: put_secret(c, sealer, 1, "S3_WORK", text))
    store(lambda c: put_secret(c, sealer, 1, "S3_WORK", text))
    found = store(lambda c: find_connection(c, sealer, 1, S3Place("b", "", "work")))
    assert (found.endpoint, found.secret) == ("http://x", "s3cret")
    assert "s3cret" not in repr(found)
    with pytest.raises(UsageError, match="S3_HOME"):
        store(lambda c: find_connection(c, sealer, 1, S3Place("b", "", "home")))
    assert store(lambda c: find_connection(c, sealer, 1, S3Place("b", ""))).endpoint == ""
    store(lambda c: put_secret(c, sealer, 1, "S3", "no json"))
    with pytest.raises(UsageError, match="must be JSON"):
        store(lambda c: find_connection(c, sealer, 1, S3Place("b", "")))


METRICS = """# HELP weft_requests_total Requests answered.
weft_requests_total{model="m",version="3"} 100.0
weft_failures_total{model="m",version="3",status="400"} 2.0
weft_failures_total{model="m",version="3",status="429"} 3.0
weft_model_ready{model="m",version="3"} 1.0
weft_request_seconds_bucket{le="0.001",model="m",version="3"} 50.0
weft_request_seconds_bucket{le="0.01",model="m",version="3"} 90.0
weft_request_seconds_bucket{le="+Inf",model="m",version="3"} 100.0
weft_in_flight 1.0
"""


def test_figures_of_a_server() -> None:
    found = parse_figures(METRICS)
    assert (found.requests, found.failures, found.in_flight, found.versions) == (100, 5, 1, (3,))
    assert (found.p50_ms, found.p99_ms) == (1.0, 10.0)  # above the last bound nothing finer is known
    assert parse_figures("").p50_ms is None
    assert quantiles({0.1: 0.0, 0.2: 10.0, float("inf"): 10.0}, (0.5,)) == [pytest.approx(150.0)]
    command = serve_command("python", store=Path("/s"), model="m", alias="a", ready_file=Path("/r"))
    assert (command[5], command[9], command[11]) == ("m@a", "127.0.0.1", "0")
