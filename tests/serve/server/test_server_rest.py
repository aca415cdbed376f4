"""V2 over REST against a real server: what it says, what it refuses, and that it goes on."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
from typing import Any

import numpy as np
import pytest
from testing.serving.server import WEFT, Server

from weft.serve.client import ServerError, pack

ROW = np.array([[1, 2, 3, 4]], np.float32)
V2 = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}


def test_health_and_metadata(server: Server) -> None:
    with server.client() as client:
        assert client.live()
        assert client.ready()
        assert client.ready("double")
        assert not client.ready("nobody")
        assert client.metadata()["name"] == "weft"
        told = client.metadata("double", version=1)
        assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
        assert client.metadata("colours")["parameters"]["labels"] == ["red", "green", "blue"]
        assert {entry["name"]: entry["state"] for entry in client.index()}["double"] == "READY"


@pytest.mark.parametrize("binary", [True, False])
def test_infer(server: Server, binary: bool) -> None:
    with server.client() as client:
        answer = client.infer("double", {"x": ROW}, binary=binary)
        np.testing.assert_array_equal(answer["y"], 2 * ROW)
        answer = client.infer("double", {"x": ROW}, version=1, outputs=("y",), binary=binary)
        np.testing.assert_array_equal(answer["y"], 2 * ROW)
        given = {
            "text": np.array(["a", "ß"]),
            "count": np.array([[1, 2], [3, 4]]),
            "flag": np.array([True, False]),
        }
        answer = client.infer("mixed", given, binary=binary)
        assert answer["said"].tolist() == ["a", "ß"]
        assert answer["more"].tolist() == [[2, 3], [4, 5]]
        assert answer["other"].tolist() == [False, True]


def test_rows_of_more_tokens_than_the_card_allows_are_refused(server: Server) -> None:
    with server.client() as client:
        assert client.infer("words", {"tokens": np.ones((2, 8), np.int64)})["y"].shape == (2, 8)
        with pytest.raises(ServerError, match="at most 8 tokens a row, got 9") as caught:
            client.infer("words", {"tokens": np.ones((2, 9), np.int64)})
        assert caught.value.status == 400


def test_ids_go_through(server: Server) -> None:
    answer = server.post("/v2/models/double/infer", {"id": "seven", **V2}, x_request_id="trace-7")
    assert answer.json()["id"] == "seven"
    assert answer.headers["x-request-id"] == "trace-7"
    assert server.call("GET", "/v2").headers["x-request-id"]
    refused = server.post("/v2/models/nobody/infer", V2, x_request_id="trace-8")
    assert refused.headers["x-request-id"] == "trace-8"
    logged = server.logged(id="trace-8")
    assert logged["status"] == 404
    assert logged["path"] == "/v2/models/nobody/infer"


def test_a_packed_body(server: Server) -> None:
    body = gzip.compress(json.dumps(V2).encode())
    answer = server.call("POST", "/v2/models/double/infer", body, content_encoding="gzip")
    assert answer.json()["outputs"][0]["data"] == [2, 4, 6, 8]
    cut = server.call("POST", "/v2/models/double/infer", body[:-9], content_encoding="gzip")
    assert cut.status == 400
    bomb = gzip.compress(b" " * 2_000_000)
    assert server.call("POST", "/v2/models/double/infer", bomb, content_encoding="gzip").status == 413
    assert server.call("POST", "/v2/models/double/infer", body, content_encoding="br").status == 415


def changed(**changes: Any) -> str:
    return json.dumps({"inputs": [{**V2["inputs"][0], **changes}]})


BODY, LENGTH = pack({"x": ROW})


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "told"),
    [
        ("/v2/models/nobody/infer", json.dumps(V2), {}, 404, "model must be one of"),
        (
            "/v2/models/double/versions/9/infer",
            json.dumps(V2),
            {},
            404,
            "version of 'double' must be one of 1",
        ),
        ("/v2/models/double/what/9/infer", json.dumps(V2), {}, 404, "the path must be"),
        ("/v2/models/double/infer", changed(name="z"), {}, 400, "inputs must be among x"),
        ("/v2/models/double/infer", changed(shape=[2, 2]), {}, 400, "must have the shape"),
        ("/v2/models/double/infer", changed(datatype="INT32"), {}, 400, "must be FP32"),
        ("/v2/models/double/infer", changed(data=[1]), {}, 400, "must have 4 values"),
        ("/v2/models/double/infer", "{", {}, 400, "must be JSON"),
        ("/v2/models/double/infer", "[" * 100_000, {}, 400, "must be JSON"),
        ("/v2/models/double/infer", b"\xff\xfe", {}, 400, "must be JSON"),
        (
            "/v2/models/double/infer",
            BODY[:-1],
            {"inference_header_content_length": str(LENGTH)},
            400,
            "within",
        ),
        ("/v2/models/double/infer", BODY, {"inference_header_content_length": "x"}, 400, "number of bytes"),
        ("/v2/models/double/infer", b"x" * 1_000_001, {}, 413, "at most 1000000 bytes"),
        ("/v2/repository/models/double/load", '{"parameters": {"version": []}}', {}, 400, "version must be"),
        ("/v2/repository/models/double/traffic", '{"percent": 101}', {}, 400, "0 to 100 percent"),
        ("/v2/repository/models/nobody/load", "{}", {}, 404, "model must be one of"),
        ("/v1/models/double:predict", '{"instances": "x"}', {}, 400, "must be JSON"),
        ("/v1/models/double:predict", '{"instances": [[1], [1, 2]]}', {}, 400, "must be rows of FP32"),
        ("/v1/models/mixed:predict", '{"instances": [[1]]}', {}, 400, "models with one input"),
        ("/api/v1.0/predictions?model=double", '{"data": {}}', {}, 400, "ndarray or tensor"),
        ("/api/v1.0/predictions", '{"data": {"ndarray": []}}', {}, 400, "one model if none is named"),
        ("/nothing", "", {}, 404, "there is nothing at /nothing"),
        ("/v2", "", {}, 405, "POST is not for /v2"),
    ],
)
def test_what_is_wrong_is_a_4xx_with_a_reason_and_the_server_goes_on(
    server: Server, path: str, body: str | bytes, headers: dict[str, str], status: int, told: str
) -> None:
    answer = server.call("POST", path, body, **headers)
    assert answer.status == status
    assert told in answer.json()["error"]
    assert server.post("/v2/models/double/infer", V2).status == 200


def test_a_body_that_does_not_say_its_length_is_bounded_too(server: Server) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(
            b"POST /v2/models/double/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        part = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        connection.sendall(17 * part + b"0\r\n\r\n")
        answer = connection.recv(4096)
    assert b" 413 " in answer.splitlines()[0]


def test_a_client_that_hangs_up_half_way_harms_nobody(server: Server) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(
            b"POST /v2/models/double/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{"
        )
    assert server.post("/v2/models/double/infer", V2).status == 200


def test_a_request_may_bring_its_own_bound(server: Server) -> None:
    with server.client() as client, pytest.raises(ServerError, match="longer than") as caught:
        client.infer("busy", {"n": np.array([50_000])}, timeout_s=0.001)
    assert caught.value.status == 504


def test_statistics_and_metrics_count(server: Server) -> None:
    def told() -> tuple[int, int]:
        (found,) = server.call("GET", "/v2/models/double/stats").json()["model_stats"]
        return found["inference_stats"]["success"]["count"], found["inference_stats"]["fail"]["count"]

    def metric(name: str) -> float:
        lines = server.call("GET", "/metrics").body.decode().splitlines()
        return sum(
            float(line.split()[-1]) for line in lines if line.startswith(name) and 'model="double"' in line
        )

    names = (
        "weft_requests_total",
        "weft_failures_total",
        "weft_request_seconds_count",
        "weft_batch_rows_count",
    )
    counts, metrics = told(), [metric(name) for name in names]
    server.post("/v2/models/double/infer", V2)
    server.call("POST", "/v2/models/double/infer", changed(name="z"))
    assert told() == (counts[0] + 1, counts[1] + 1)
    assert [metric(name) for name in names] == [before + 1 for before in metrics]
    assert {model["name"] for model in server.call("GET", "/v2/models/stats").json()["model_stats"]} >= {
        "double"
    }


def test_the_older_doors(server: Server) -> None:
    seldon = server.post("/api/v1.0/predictions?model=double", {"data": {"ndarray": [[1, 2, 3, 4]]}}).json()
    assert seldon["data"]["ndarray"] == [[2, 4, 6, 8]]
    assert seldon["meta"]["requestPath"] == {"double": "1"}
    dense = {"data": {"tensor": {"shape": [1, 4], "values": [1, 2, 3, 4]}}}
    dense = server.post("/seldon/anywhere/double/api/v1.0/predictions", dense).json()
    assert dense["data"]["tensor"] == {"shape": [1, 4], "values": [2, 4, 6, 8]}
    kserve = server.post("/v1/models/double:predict", {"instances": [[1, 2, 3, 4], [0, 0, 0, 1]]}).json()
    assert kserve["predictions"] == [[2, 4, 6, 8], [0, 0, 0, 2]]
    rows = [{"text": "a", "count": [1, 2], "flag": True}]
    named = server.post("/v1/models/mixed:predict", {"instances": rows}).json()
    assert named["predictions"] == [{"said": "a", "more": [2, 3], "other": False}]
    assert "double" in server.call("GET", "/v1/models").json()["models"]
    assert server.call("GET", "/v1/models/double").json() == {"name": "double", "ready": True}
    assert server.call("GET", "/health/ping").body == b"pong"
    assert server.call("GET", "/test").json() == {"status": "running"}


def test_curl(server: Server) -> None:
    command = ["curl", "-sS", "-d", json.dumps(V2), f"{server.url}/v2/models/double/infer"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["outputs"][0]["data"] == [2, 4, 6, 8]


def test_weft_client(server: Server, tmp_path: Any) -> None:
    def weft(*args: str) -> subprocess.CompletedProcess[str]:
        command = [WEFT, "client", *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    given = tmp_path / "given.json"
    given.write_text("[[1, 2, 3, 4]]")
    done = weft("infer", server.url, "double", str(given), "--json")
    assert json.loads(done.stdout) == {"y": [[2, 4, 6, 8]]}
    given.write_text(json.dumps(V2))
    assert "output y  values [[2.0, 4.0" in weft("infer", server.url, "double", str(given)).stdout
    failed = weft("infer", server.url, "nobody", str(given))
    assert failed.returncode == 1
    assert "model must be one of" in failed.stderr
    given.write_text("no json")
    assert weft("infer", server.url, "double", str(given)).returncode == 2


def test_a_page_from_elsewhere_changes_nothing(server: Server) -> None:
    path = "/v2/repository/models/double/unload"
    refused = server.call("POST", path, "{}", origin="http://elsewhere.example")
    assert refused.status == 403
    assert "the server that it came from" in refused.json()["error"]
    own = server.call("POST", "/v2/repository/index", "{}", origin=server.url)
    assert own.status == 200
    with server.client() as client:
        assert client.ready("double")
