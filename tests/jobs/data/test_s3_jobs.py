"""Jobs whose data and results are in S3, spoken by moto's server, and data sets by name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import sqlalchemy as sa
from testing.jobs.desk import Desk, desk_on, opened
from testing.s3_server import s3_server

from weft.errors import ConnectError, UsageError
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.data.connections import put_secret
from weft.jobs.data.datasets import add_version
from weft.jobs.data.manifests import scan
from weft.jobs.data.s3 import S3Cache, manifest_of, upload_folder
from weft.jobs.store.data_tables import job_input
from weft.jobs.store.database import Database
from weft.s3 import S3Bucket, S3Connection, S3Object, S3Place

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of moto's server


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def connection(endpoint: str) -> S3Connection:
    return S3Connection(endpoint, "key", "secret", "us-east-1")


@pytest.fixture
def bucket(connection: S3Connection, request: pytest.FixtureRequest) -> Any:
    """A client of a new bucket, whose name is the fixture's."""
    client = boto3.session.Session().client(
        "s3", endpoint_url=connection.endpoint, aws_access_key_id="key", aws_secret_access_key="secret",
        region_name="us-east-1",
    )  # fmt: skip
    name = f"b{abs(hash(request.node.nodeid))}"
    client.create_bucket(Bucket=name)

    class Filled:
        bucket = name

        @staticmethod
        def put(key: str, data: bytes) -> None:
            client.put_object(Bucket=name, Key=key, Body=data)

        @staticmethod
        def get(key: str) -> bytes:
            found: bytes = client.get_object(Bucket=name, Key=key)["Body"].read()
            return found

    return Filled


def test_objects_are_fetched_once_by_etag(bucket: Any, connection: S3Connection, tmp_path: Path) -> None:
    for key, data in (
        ("raw/a.txt", b"a"),
        ("raw/sub/b.txt", b"b"),
        ("raw/same.txt", b"a"),
        ("rawer/c", b"c"),
    ):
        bucket.put(key, data)
    place = S3Place(bucket.bucket, "raw")
    source, cache = S3Bucket(connection, place), S3Cache(tmp_path)
    fetched: list[str] = []
    download = source.download
    source.download = lambda wanted, path: (fetched.append(wanted.key), download(wanted, path))[1]  # type: ignore[method-assign, func-returns-value]
    tree = cache.fetch(source, source.objects())
    assert {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()} == {
        "a.txt": b"a", "same.txt": b"a", "sub/b.txt": b"b",
    }  # fmt: skip
    assert len(fetched) == 2  # equal contents once
    assert cache.fetch(source, source.objects()) == tree
    bucket.put("raw/a.txt", b"new")
    other = cache.fetch(source, source.objects())
    assert (other / "a.txt").read_bytes() == b"new"
    assert (tree / "a.txt").read_bytes() == b"a"  # what a running job reads stays
    assert len(fetched) == 3
    single = S3Bucket(connection, S3Place(bucket.bucket, "raw/a.txt"))
    assert cache.fetch(single, single.objects()).read_bytes() == b"new"
    assert cache.sweep(0.0, 2e12) > 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_troubles_with_s3_are_told_without_credentials(
    bucket: Any, connection: S3Connection, tmp_path: Path
) -> None:
    missing = S3Bucket(connection, S3Place("nobucket", ""))
    with pytest.raises(UsageError, match="NoSuchBucket"):
        missing.objects()
    with pytest.raises(UsageError, match="must have objects"):
        manifest_of([], S3Place("b", "x"))
    with pytest.raises(UsageError, match="plain paths"):
        manifest_of([S3Object("x/../../etc", 1, "e")], S3Place("b", "x"))
    source = S3Bucket(connection, S3Place(bucket.bucket, ""))
    bucket.put("a", b"1")
    (found,) = source.objects()
    bucket.put("a", b"2")
    with pytest.raises(UsageError):  # it changed since it was listed
        source.download(found, tmp_path / "a")
    away = S3Bucket(S3Connection("http://127.0.0.1:9", "key", "topsecret", "x"), S3Place("b1", ""))
    with pytest.raises(ConnectError, match="must be reachable") as told:
        away.objects()
    assert "topsecret" not in str(told.value)


def test_a_folder_goes_up(bucket: Any, connection: S3Connection, tmp_path: Path) -> None:
    (tmp_path / "out" / "sub").mkdir(parents=True)
    (tmp_path / "out" / "m.bin").write_bytes(b"m")
    (tmp_path / "out" / "sub" / "n.bin").write_bytes(b"n")
    assert upload_folder(S3Bucket(connection, S3Place(bucket.bucket, "r/7")), tmp_path / "out") == 2
    assert (bucket.get("r/7/m.bin"), bucket.get("r/7/sub/n.bin")) == (b"m", b"n")


SCRIPT = """
import json, os, pathlib
raw, named = (pathlib.Path(os.environ["WEFT_DATA_" + name]) for name in ("MY_RAW", "DIGITS"))
out = pathlib.Path(os.environ["WEFT_OUTPUTS"]) / "models"
out.mkdir()
(out / "seen.json").write_text(json.dumps([(raw / "a.txt").read_text(), (named / "x.csv").read_text()]))
(pathlib.Path(os.environ["WEFT_CHECKPOINT"]) / "last.pt").write_text("weights")
"""


@pytest.fixture
def tell(tmp_path: Path) -> Callable[..., None]:
    """A function that runs a story with a service of its own."""

    def run(story: Callable[[Desk, Database], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with desk_on(database, tmp_path) as desk:
                await story(desk, database)

        with opened(f"sqlite:///{tmp_path}/weft.db") as database:
            asyncio.run(whole())

    return run


def test_a_job_reads_from_s3_and_writes_back(
    tell: Callable[..., None], bucket: Any, connection: S3Connection, tmp_path: Path
) -> None:
    bucket.put("raw/a.txt", b"from s3")
    folder = tmp_path / "digits"
    folder.mkdir()
    (folder / "x.csv").write_text("1,2,3")
    manifest = scan(folder)

    async def story(desk: Desk, database: Database) -> None:
        sealer = Sealer(desk.service.folder / "secret.key")
        text = json.dumps(
            {"endpoint": connection.endpoint, "key": "key", "secret": "secret", "region": "us-east-1"}
        )
        await database.write(lambda c: put_secret(c, sealer, 1, "S3_MOTO", text))
        wanted: dict[str, Any] = {
            "source": str(folder),
            "manifest": manifest,
            "user_id": 1,
            "user_name": "ann",
        }
        await database.write(lambda c: add_version(c, "digits", **wanted))
        at = f"s3://moto@{bucket.bucket}"
        spec = f"data: {{my-raw: '{at}/raw', digits: dataset:digits@1}}\n"
        spec += f"outputs: {{models: '{at}/out/{{job}}', checkpoints: '{at}/ckpt'}}"
        number = await desk.submit(SCRIPT, spec)
        job = await desk.reach(number)
        assert job.state == "completed", job.message
        assert json.loads(bucket.get(f"out/{number}/seen.json")) == ["from s3", "1,2,3"]
        assert bucket.get("ckpt/last.pt") == b"weights"
        rows = await database.read(lambda c: c.execute(sa.select(job_input).order_by(job_input.c.name)).all())
        assert [(row.name, row.source_type, row.source) for row in rows] == [
            ("digits", "dataset", "dataset:digits@1"), ("my-raw", "s3", f"{at}/raw"),
        ]  # fmt: skip
        assert rows[0].digest == manifest.digest
        (folder / "x.csv").write_text("other")
        job = await desk.reach(await desk.submit(SCRIPT, spec))
        assert job.state == "failed"
        assert "digits@1 must be as it was registered" in (job.message or "")

    tell(story)
