"""A training of FfDL whose data and results are in an object store, from the manifest to the bucket."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from testing.cluster.waiting import wait_until
from testing.s3_server import s3_server
from tests.jobs.doors.conftest import Users, client_of, life_of

from weft.jobs.doors.ffdl.routes import ffdl_routes
from weft.jobs.service.service import JobService

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of moto's server

MANIFEST = """
name: words
cpus: 0.5
framework:
  name: custom
  version: none
  command: >
    tr a-z A-Z < $DATA_DIR/in.txt > $RESULT_DIR/out.txt;
    cat $RESULT_DIR/out.txt
data_stores:
  - id: store
    type: mount_cos
    training_data: {{container: words}}
    training_results: {{container: results}}
    connection: {{auth_url: "{endpoint}", user_name: key, password: secret, region: us-east-1}}
"""


@pytest.fixture
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


def test_data_comes_from_a_bucket_and_results_go_to_one(
    endpoint: str, jobs: JobService, users: Users, serve: Callable[..., str], tmp_path: Path
) -> None:
    store = boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    for name in ("words", "results"):
        store.create_bucket(Bucket=name)
    store.put_object(Bucket="words", Key="in.txt", Body=b"hello\n")
    code = tmp_path / "model.zip"
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("readme.txt", "no code")
    with client_of(serve(ffdl_routes(jobs, users), life_of(jobs)), "ann") as client:
        files = {
            "manifest": MANIFEST.format(endpoint=endpoint).encode(),
            "model_definition": code.read_bytes(),
        }
        made = client.post("/v1/models", files={name: (name, data) for name, data in files.items()})
        assert made.status_code == 201, made.text
        path = made.json()["location"]

        def status() -> dict[str, str]:
            found: dict[str, str] = client.get(path).json()["training"]["training_status"]
            return found

        wait_until(lambda: status()["status"] in ("COMPLETED", "FAILED"), "the end", 60)
        assert status()["status"] == "COMPLETED", status()
        assert client.get(f"{path}/logs").text == "HELLO\n"
    kept = store.get_object(Bucket="results", Key=f"{made.json()['model_id']}/out.txt")["Body"].read()
    assert kept == b"HELLO\n"
    listed = store.list_objects_v2(Bucket="results", Prefix=made.json()["model_id"])["Contents"]
    assert any(item["Key"].endswith("learner-1/training-log.txt") for item in listed)
