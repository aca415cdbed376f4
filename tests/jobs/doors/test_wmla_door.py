"""WMLA's REST by curl and by a client that sends its archive without a file name, as WMLA's own does."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from testing.cluster.waiting import wait_until
from tests.jobs.doors.conftest import StoreService, Users, client_of, life_of

from weft.jobs.accounts.tokens import find_holder
from weft.jobs.doors.wmla.arguments import ArgumentsError, find_main, parse_arguments, to_spec
from weft.jobs.doors.wmla.routes import wmla_routes
from weft.jobs.service.service import JobService
from weft.jobs.spec.read import resolve

ROOT = "/platform/rest/deeplearning/v1"


def test_arguments_become_a_job() -> None:
    given = parse_arguments(
        "--exec-start distPyTorch --model-main train.py --model-dir digits --numWorker 2 --workerDeviceType gpu "
        "--appName 'My app' --cs-datastore-meta type=fs,data_path=/data/mnist --consumer x --epochs 3 --name='a b'"
    )
    assert given.script_args == ("--epochs", "3", "--name=a b")
    assert len(given.warnings) == 1
    spec = to_spec(given, main="digits/train.py")
    assert spec.run == ("-m", "weft.jobs.doors.wmla.worker", "digits/train.py", "--epochs", "3", "--name=a b")
    assert (spec.workers, spec.name, spec.data, spec.resources.gpus) == (
        2,
        "My-app",
        {"data": "/data/mnist"},
        1.0,
    )
    elastic = parse_arguments(
        "--exec-start edtPyTorch --model-main a.py --edt-options maxWorkers=8 --numWorker 2"
    )
    resolved = resolve(to_spec(elastic, main="a.py"))
    assert (resolved.min_workers, resolved.max_workers) == (1, 8)
    assert to_spec(parse_arguments("--exec-start pytorch --model-main a.py"), main="a.py").workers == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "--exec-start"),
        ("--exec-start Caffe --model-main a.py", "one of PyTorch"),
        ("--exec-start PyTorch", "--model-main"),
        ("--exec-start PyTorch --model-main ../a.py", "--model-main"),
        ("--exec-start PyTorch --model-main /a.py", "--model-main"),
        ("--exec-start PyTorch --model-main a.py --numWorker none", "--numWorker"),
        ("--exec-start PyTorch --model-main a.py --workerDeviceType tpu", "cpu or gpu"),
        ("--exec-start PyTorch --model-main a.py --numWorker", "a value"),
        ("--exec-start PyTorch --model-main 'a.py", "quotes"),
    ],
)
def test_bad_arguments_are_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ArgumentsError, match=reason):
        parse_arguments(text)


def test_the_script_is_found_in_the_packed_folder() -> None:
    given = parse_arguments("--exec-start PyTorch --model-main main.py --model-dir /home/x/net")
    assert find_main(["main.py", "net/main.py"], given) == "main.py"
    assert find_main(["net/main.py", "old/main.py"], given) == "net/main.py"
    assert find_main(["other/main.py"], given) == "other/main.py"
    with pytest.raises(ArgumentsError, match="in the model"):
        find_main(["x.py"], given)


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def nameless(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a form whose part `file` has no file name, which Starlette takes for text."""
    edge = b"0123456789abcdef"
    body = (
        b"--"
        + edge
        + b'\r\nContent-Disposition: form-data; name="file"\r\n\r\n'
        + data
        + b"\r\n--"
        + edge
        + b"--\r\n"
    )
    return body, {"Content-Type": f"multipart/form-data; boundary={edge.decode()}"}


def wait_for_end(client: httpx.Client, number: str) -> dict[str, Any]:
    def state() -> Any:
        return client.get(f"{ROOT}/execs/{number}").json()

    wait_until(lambda: state()["state"] == "FINISHED", "the end", 60)
    found: dict[str, Any] = state()
    return found


def test_an_execution_from_logon_to_its_result(
    service: StoreService, jobs: JobService, users: Users, serve: Callable[..., str]
) -> None:
    address = serve(wmla_routes(jobs, users), life_of(jobs))
    script = b"""
import os, sys, helper
print("hello", helper.WORD, sys.argv[1:], os.environ["WORLD_SIZE"], flush=True)
open(os.path.join(os.environ["RESULT_DIR"], "model.txt"), "w").write("weights")
"""
    noise = bytes(range(256)) * 8192  # 2 MiB that is no text
    packed = tar_of({"net/main.py": script, "net/helper.py": b"WORD = 'you'", "net/noise.bin": noise}, "w")
    args = (
        "--exec-start distPyTorch --model-main main.py --model-dir net --numWorker 2 --appName demo --lr 0.1"
    )
    body, headers = nameless(packed)
    with client_of(address, "ann") as client:
        made = client.post(
            f"{ROOT}/execs", params={"sigName": "s", "args": args}, content=body, headers=headers
        )
        assert made.status_code == 200, made.text
        found = made.json()
        assert (found["appName"], found["numWorker"], found["creator"]) == ("demo", 2, "ann")
        number, app = found["id"], found["appId"]
        ended = wait_for_end(client, number)
        log = client.get(f"{ROOT}/execs/{number}/log", headers={"Accept": "application/json"}).json()
        assert ended["schedulerState"] == "completed", (ended, log)
        assert log.count("hello you ['--lr', '0.1'] 2") == 2
        text = client.get(f"{ROOT}/scheduler/applications/{app}/executor/2/logs/stdout?lastlines=1").text
        assert text == "hello you ['--lr', '0.1'] 2\n"
        assert client.get(f"{ROOT}/scheduler/applications/{app}/driver/logs/stdout").status_code == 200
        listed = client.get(f"{ROOT}/scheduler/applications?state=finished&search=dem").json()
        assert [one["id"] for one in listed] == [app]
        with zipfile.ZipFile(io.BytesIO(client.get(f"{ROOT}/execs/{number}/result").content)) as archive:
            assert archive.read("model.txt") == b"weights"
        assert [one["id"] for one in client.get(f"{ROOT}/execs").json()] == [number]
        with client_of(address, "bob") as bob:
            assert bob.get(f"{ROOT}/execs").json() == []
            assert bob.delete(f"{ROOT}/execs/{number}").status_code == 403
        assert client.delete(f"{ROOT}/execs").json() == {"ids": [number]}
        assert client.get(f"{ROOT}/execs/{number}").status_code == 404


def curl(address: str, *options: str) -> tuple[int, Any]:
    done = subprocess.run(
        ["curl", "-s", "--noproxy", "*", "-m", "60", "-w", "\n%{http_code}", *options, address],
        capture_output=True,
        check=True,
    )
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), json.loads(body)


def test_curl_sends_a_script_and_stops_it(
    service: StoreService, jobs: JobService, users: Users, serve: Callable[..., str], tmp_path: Path
) -> None:
    address = serve(wmla_routes(jobs, users), life_of(jobs))
    status, answer = curl(f"{address}/auth/v1/logon", "-u", "ann:ann")
    holder = service.database.ask(lambda c: find_holder(c, answer["accessToken"], ("api",)))
    assert status == 200
    assert holder is not None
    assert (holder.account.name, set(holder.token.scopes)) == ("ann", {"read", "write"})
    assert curl(f"{address}/auth/v1/logon", "-H", "Authorization: Bearer ann")[0] == 401
    assert curl(f"{address}/auth/v1/logon", "-u", "ann:wrong")[0] == 401
    script = tmp_path / "long.py"
    script.write_text("import time\nprint('begun', flush=True)\ntime.sleep(100)\n")
    token = ("-H", "X-Auth-Token: ann")
    query = urlencode({"args": "--exec-start PyTorch --model-main long.py"})
    status, made = curl(f"{address}{ROOT}/execs?{query}", *token, "-F", f"file=@{script}")
    assert status == 200, made
    one = f"{address}{ROOT}/execs/{made['id']}"
    wait_until(lambda: curl(one, *token)[1]["state"] == "RUNNING", "the start", 60)
    assert curl(one, *token, "-X", "DELETE")[0] == 409
    assert curl(f"{one}/stop", *token, "-X", "POST")[0] == 200
    with client_of(address, "ann") as client:
        assert wait_for_end(client, made["id"])["schedulerState"] == "stopped"


def test_refusals_have_a_message(jobs: JobService, users: Users, serve: Callable[..., str]) -> None:
    address = serve(wmla_routes(jobs, users))
    with client_of(address, "ann") as client:
        assert {one["name"] for one in client.get(f"{ROOT}/execs/frameworks").json()} >= {"edtPyTorch"}
        assert client.get(f"{ROOT}/conf").json()["user"] == "ann"
        assert client.get(f"{ROOT}/scheduler/instances").json()[0]["state"] == "STARTED"
        args = {"args": "--exec-start PyTorch --model-main a.py"}
        for data in (b"\x1f\x8b broken", tar_of({"../a.py": b""}), tar_of({"b.py": b""})):
            body, headers = nameless(data)
            refused = client.post(f"{ROOT}/execs", params=args, content=body, headers=headers)
            assert refused.status_code == 400, data
            assert refused.json()["message"]
        assert client.post(f"{ROOT}/execs", params=args, files={"other": b"x"}).status_code == 400
        assert client.get(f"{ROOT}/execs/ann-99").status_code == 404
        assert client.get(f"{ROOT}/scheduler/applications?start=x").status_code == 400
    with client_of(address, "eve") as viewer:
        assert viewer.post(f"{ROOT}/execs", params=args, files={"file": b"x"}).status_code == 403
