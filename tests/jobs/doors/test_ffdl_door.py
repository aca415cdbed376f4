"""FfDL's REST by curl, as its users' scripts call it, on a service that runs the trainings."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testing.cluster.waiting import wait_until
from tests.jobs.doors.conftest import StoreService, Users, client_of, life_of

from weft import cli
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.data.connections import find_connection
from weft.jobs.doors.ffdl.routes import ffdl_routes
from weft.jobs.metrics.batches import encode_batch
from weft.jobs.service.service import JobService
from weft.jobs.store.jobs import spec_of
from weft.jobs.store.metrics import add_batch
from weft.s3 import parse_place

MANIFEST = """
name: count to three
description: counts
learners: 1
cpus: 0.5
framework: {name: pytorch, version: "1.0", command: "python3 count.py ${DATA_DIR} | cat; test -f /job/seen"}
"""
SCRIPT = """
import os, pathlib, sys
for number in range(3):
    print("number", number, flush=True)
pathlib.Path("/job/seen").write_text("x")
pathlib.Path(os.environ["RESULT_DIR"], "weights.txt").write_text(os.environ["TRAINING_ID"])
"""


class Curl:
    """Calls curl as one user, and returns the status and the body."""

    def __init__(self, address: str, folder: Path, user: str = "ann") -> None:
        self._address, self._folder, self._user = address, folder, user

    def __call__(self, path: str, *options: str) -> tuple[int, bytes]:
        command = [
            "curl",
            "-s",
            "-u",
            f"{self._user}:{self._user}",
            "--noproxy",
            "*",
            "-m",
            "60",
            "-w",
            "\n%{http_code}",
        ]
        header = ["-H", f"X-Watson-Userinfo: bluemix-instance-id={self._user}"]
        done = subprocess.run(
            [*command, *header, *options, f"{self._address}{path}"],
            capture_output=True,
            check=True,
            cwd=self._folder,
        )
        body, _, status = done.stdout.rpartition(b"\n")
        return int(status), body

    def json(self, path: str, *options: str, status: int = 200) -> Any:
        found, body = self(path, *options)
        assert found == status, body
        return json.loads(body)


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A folder with a manifest and the zip of a model."""
    folder = tmp_path / "client"
    folder.mkdir()
    (folder / "manifest.yml").write_text(MANIFEST)
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        archive.writestr("count.py", SCRIPT)
    return folder


SEND = ("-F", "manifest=@manifest.yml", "-F", "model_definition=@model.zip")


def test_a_training_from_submitting_to_its_results(
    jobs: JobService, users: Users, serve: Callable[..., str], packed: Path
) -> None:
    curl = Curl(serve(ffdl_routes(jobs, users), life_of(jobs)), packed)
    made = curl.json("/v1/models?version=2017-02-13", *SEND, status=201)
    model_id, path = made["model_id"], made["location"]
    assert path == f"/v1/models/{model_id}"
    assert any("count.py:5" in warning for warning in made["warnings"])  # the line that names /job
    status, log = curl(f"{path}/logs?follow=true")  # until it has ended
    assert (status, log.splitlines()[:3]) == (200, [b"number 0", b"number 1", b"number 2"]), log
    wait_until(lambda: _status(curl, path) in ("COMPLETED", "FAILED"), "the end", 30)
    model = curl.json(path)
    training = model["training"]
    assert training["training_status"]["status"] == "COMPLETED", log
    assert (model["name"], model["framework"]) == ("count to three", {"name": "pytorch", "version": "1.0"})
    assert (training["learners"], training["cpus"]) == (1, 0.5)
    assert [one["model_id"] for one in curl.json("/v1/models")["models"]] == [model_id]
    lines = curl.json(f"/v1/logs/{model_id}/loglines?pos=1&pagesize=2")["models"]
    assert [(line["line"], line["meta"]["rindex"]) for line in lines] == [("number 1", 2), ("number 2", 3)]
    with zipfile.ZipFile(io.BytesIO(curl(f"{path}/definition")[1])) as archive:
        assert archive.namelist() == ["count.py"]
    with zipfile.ZipFile(io.BytesIO(curl(f"{path}/trained_model")[1])) as archive:
        assert archive.read("weights.txt").decode() == model_id
        assert archive.read("learner-1/training-log.txt").startswith(b"number 0")
        assert "_submitted_code/model.zip" in archive.namelist()
    assert Curl(curl._address, packed, "bob").json("/v1/models")["models"] == []
    assert Curl(curl._address, packed, "bob")(path, "-X", "DELETE")[0] == 403
    assert curl.json(path, "-X", "DELETE") == {"model_id": model_id}
    assert curl(path)[0] == 404


def _status(curl: Curl, path: str) -> str:
    return str(curl.json(path)["training"]["training_status"]["status"])


def test_a_training_is_halted_and_followed_by_a_socket(
    jobs: JobService, users: Users, serve: Callable[..., str], packed: Path
) -> None:
    from websockets.sync.client import connect

    (packed / "manifest.yml").write_text(MANIFEST.replace("python3 count.py ${DATA_DIR} | cat; test -f /job/seen",
                                                          "echo begun; exec sleep 100"))  # fmt: skip
    address = serve(ffdl_routes(jobs, users), life_of(jobs))
    curl = Curl(address, packed)
    path = curl.json("/v1/models", *SEND, status=201)["location"]
    url = address.replace("http", "ws") + f"{path}/logs?follow=true"
    with connect(url, additional_headers={"Authorization": "Bearer ann"}, proxy=None) as socket:
        assert socket.recv(timeout=120) == "begun\n"
        assert curl.json(path, "-X", "PATCH", "-d", '{"status": "halt"}', status=202)["model_id"] in path
        assert list(socket) == []  # it is closed when the training has ended
    assert _status(curl, path) == "HALTED"


def test_refusals_are_told_in_ffdls_words(service: StoreService, jobs: JobService, users: Users,
                                          serve: Callable[..., str], packed: Path) -> None:  # fmt: skip
    address = serve(ffdl_routes(jobs, users))
    curl = Curl(address, packed)
    assert curl.json("/v1/models/training-9", status=404)["error"] == "Not Found"
    assert Curl(address, packed, "mallory").json("/v1/models", status=401)["code"] == 401
    assert Curl(address, packed, "eve").json("/v1/models", *SEND, status=403)["error"] == "Forbidden"
    assert "model_definition" in curl.json("/v1/models", *SEND[:2], status=400)["description"]
    assert "multipart" in curl.json("/v1/models", "-d", "x", status=400)["description"]
    (packed / "model.zip").write_bytes(b"PK no zip")
    assert "zip" in curl.json("/v1/models", *SEND, status=400)["description"]
    with zipfile.ZipFile(packed / "model.zip", "w") as archive:
        archive.writestr("../../evil.py", "x")
    assert "stay within" in curl.json("/v1/models", *SEND, status=400)["description"]
    (packed / "manifest.yml").write_text("name: x\nmemory: much\nframework: {name: a, command: b}")
    assert "memory must be" in curl.json("/v1/models", *SEND, status=400)["description"]
    assert service.database.ask(lambda c: c.exec_driver_sql("select count(*) from job").scalar()) == 0


def test_credentials_are_sealed_and_metrics_are_paged(
    service: StoreService, jobs: JobService, users: Users, serve: Callable[..., str], packed: Path
) -> None:
    store = """
data_stores:
  - {id: s, type: mount_cos, training_data: {container: digits}, training_results: {container: out},
     connection: {auth_url: "http://s3", user_name: me, password: topsecret}}
"""
    (packed / "manifest.yml").write_text(MANIFEST + "memory: 512MiB\n" + store)
    address = serve(ffdl_routes(jobs, users), life_of(jobs))
    curl = Curl(address, packed)
    path = curl.json("/v1/models", *SEND, status=201)["location"]
    job_id = int(path.rpartition("-")[2])
    spec = service.database.ask(lambda c: spec_of(c, job_id))
    place = parse_place(spec.data["training"])
    sealer = Sealer(service.folder / "secret.key")
    found = service.database.ask(lambda c: find_connection(c, sealer, 1, place))
    assert (place.bucket, found.endpoint, found.key, found.secret) == (
        "digits",
        "http://s3",
        "me",
        "topsecret",
    )
    status, body = curl(path)
    training = json.loads(body)["training"]
    assert (status, training["memory"], training["memory_unit"]) == (200, 512, "MiB")
    assert b"topsecret" not in body
    kept = [file for file in service.folder.rglob("*") if file.is_file() and "client" not in file.parts]
    assert not [file for file in kept if b"topsecret" in file.read_bytes()]
    points = [("test/loss", step, 1000 + step, 1.0 / (step + 1)) for step in range(20)] + [
        ("acc", 3, 5000, 0.5)
    ]
    service.database.submit(lambda c: add_batch(c, job_id, "t", 0, encode_batch(points))).result()
    page = curl.json(f"/v1/logs/training-{job_id}/emetrics?pagesize=3&pos=3")["models"]
    assert [(one["grouplabel"], one["etimes"]["iteration"]["value"]) for one in page] == [
        ("", "3"), ("test", "3"), ("test", "4"),
    ]  # fmt: skip
    assert page[1]["values"] == {"loss": {"type": "FLOAT", "value": "0.25"}}
    last = curl.json(f"/v1/logs/training-{job_id}/emetrics?pos=-1")["models"]
    assert last[0]["etimes"]["iteration"]["value"] == "19"
    with client_of(address, "ann") as client:
        assert len(client.get(f"{path}/metrics").text.splitlines()) == 21


def test_endpoints_are_told_of_a_training(
    service: StoreService, jobs: JobService, users: Users, serve: Callable[..., str], packed: Path
) -> None:
    curl = Curl(serve(ffdl_routes(jobs, users), life_of(jobs)), packed)
    path = curl.json("/v1/models", *SEND, status=201)["location"]
    job_id = int(path.rpartition("-")[2])
    body = ("-X", "POST", "-d", json.dumps({"url": "https://example.org/hook"}))
    added = curl.json(f"{path}/events/status/mine", *body, status=201)
    assert added == {"id": "mine", "url": "https://example.org/hook"}
    curl.json(f"{path}/events/failed/other", *body, status=201)
    assert [one["id"] for one in curl.json(f"{path}/events/status")["endpoints"]] == ["mine"]
    assert {one["type"] for one in curl.json(f"{path}/events")["events"]} == {"status", "failed"}
    told = service.database.ask(lambda c: spec_of(c, job_id)).notify
    assert [(one.webhook, "completed" in one.on, "failed" in one.on) for one in told] == [
        ("https://example.org/hook", True, True), ("https://example.org/hook", False, True),
    ]  # fmt: skip
    assert curl.json(f"{path}/events/status/mine", "-X", "DELETE") == {"id": "mine"}
    assert curl(f"{path}/events/status/mine")[0] == 404
    assert len(service.database.ask(lambda c: spec_of(c, job_id)).notify) == 1
    bad = ("-X", "POST", "-d", json.dumps({"url": "ftp://example.org"}))
    assert "http or https" in curl.json(f"{path}/events/status/bad", *bad, status=400)["description"]
    assert "must be status or" in curl.json(f"{path}/events/mood/bad", *body, status=400)["description"]
    assert Curl(curl._address, packed, "bob")(f"{path}/events/status/bad", *body)[0] == 403
    assert curl.json("/health") == {"status": "SERVING"}


def test_ffdls_words_work_on_the_command_line(
    jobs: JobService,
    users: Users,
    serve: Callable[..., str],
    packed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(packed)
    address = serve(ffdl_routes(jobs, users), life_of(jobs))
    for name, value in (("URL", address), ("USERNAME", "ann"), ("PASSWORD", "ann")):
        monkeypatch.setenv(f"DLAAS_{name}", value)
    (packed / "manifest.yml").write_text(MANIFEST.replace("python3 count.py ${DATA_DIR} | cat", "sleep 600"))

    def say(*words: str, code: int = 0) -> str:
        assert cli.call(("ffdl", *words)) == code
        told = capsys.readouterr()
        return told.out if code == 0 else told.err

    model_id = say("train", "manifest.yml", "model.zip").split()[-1]
    assert "count to three" in say("list")
    assert json.loads(say("show", model_id, "--json"))["model_id"] == model_id
    assert "Learners:    1" in say("show", model_id)
    assert say("download", model_id, "--definition", "--filename", "code.zip") == "wrote code.zip\n"
    assert zipfile.ZipFile("code.zip").namelist() == ["count.py"]
    assert say("loglines", model_id) == say("emetrics", model_id) == ""
    assert say("halt", model_id) == f"halting {model_id}\n"
    assert say("delete", model_id) == f"deleted {model_id}\n"
    assert "got 404" in say("show", model_id, code=2)
    assert "must be a zip or a folder" in say("train", "manifest.yml", "nothing", code=2)
    assert "wrote manifest2.yml" in say("init", "manifest2.yml")
    assert "speaking FfDL's REST v1" in say("version")
