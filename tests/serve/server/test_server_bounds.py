"""Bounds that hostile requests meet: JSON, pictures, slow servers, names of other sites, keys, shapes."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from testing.serving.server import Server, Starter

from weft.serve.client import Client
from weft.serve.server.hosts import is_loopback_name
from weft.serve.server.keys import KeyRing, add_key, revoke_key
from weft.serve.server.models.repository import names_only
from weft.serve.server.pictures.fetching import fetch
from weft.serve.server.pictures.pictures import decode, opened
from weft.serve.server.protocols.v2 import parse_infer
from weft.serve.server.refusal import RefusalError


def jpeg(width: int, height: int) -> bytes:
    import cv2
    import numpy as np

    return bytes(cv2.imencode(".jpg", np.zeros((height, width, 3), np.uint8))[1])


def test_a_decoy_header_does_not_hide_the_size_of_a_jpeg() -> None:
    """The decoder passes over FF 00 and finds the real header; a reader that trusts its length finds the decoy."""
    whole = jpeg(64, 48)
    decoy = b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 9, 9) + bytes(10)
    for begin in (b"\xff\x00", b"\xff\xda", b"\xff\xd9"):
        # A segment of an odd kind, whose length leads over the real header to the decoy at the end.
        hidden = begin + struct.pack(">H", len(whole)) + whole[2:] + decoy
        with pytest.raises(RefusalError, match="damaged"):
            opened(b"\xff\xd8" + hidden, 50_000_000)
    assert opened(whole, 50_000_000).width == 64


def test_pixels_that_are_not_as_many_as_the_header_said_are_refused() -> None:
    encoded = opened(jpeg(64, 48), 50_000_000)
    assert decode(encoded).shape == (48, 64, 3)
    import dataclasses

    with pytest.raises(RefusalError, match="damaged"):
        decode(dataclasses.replace(encoded, width=9, height=9))


def test_json_is_bounded_by_itself(server: Server) -> None:
    """A few kB that unpack to more JSON than is parsed; binary tensors of that size are taken."""
    row = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4' + b" " * 990_000 + b"]}]}"
    path = "/v2/models/double/infer"
    assert server.call("POST", path, gzip.compress(row), content_encoding="gzip").status == 200
    for data in (row + b" " * 200_000, row + b" " * 20_000_000):
        told = server.call("POST", path, gzip.compress(data), content_encoding="gzip")
        assert told.status == 413


def test_long_json_is_refused_where_binary_is_not(start: Starter, onnx_models: Path) -> None:
    import numpy as np

    server = start(str(onnx_models / "double.onnx"), "--no-grpc", "--max-json", "100kB")
    rows = np.ones((10_000, 4), np.float32)
    instances = json.dumps({"instances": rows.tolist()}).encode()
    with server.client() as client:
        assert client.infer("double", {"x": rows})["y"].sum() == 80_000
        for call in (
            lambda: client.infer("double", {"x": rows}, binary=False),
            lambda: client._json("POST", "/v1/models/double:predict", instances),
        ):
            with pytest.raises(Exception, match="at most") as refused:
                call()
            assert getattr(refused.value, "status", None) == 413
        assert client.infer("double", {"x": rows[:2000]}, binary=False)["y"].sum() == 16_000


class Drip(threading.Thread):
    """A server that answers with a header a byte at a time, for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.over = threading.Event()

    def run(self) -> None:
        with suppress(OSError):
            connection, _ = self.listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                while not self.over.wait(0.05):
                    connection.sendall(b"y")

    def close(self) -> None:
        self.over.set()
        self.listening.close()
        self.join()


@pytest.fixture
def drip() -> Iterator[str]:
    server = Drip()
    server.start()
    yield f"http://127.0.0.1:{server.listening.getsockname()[1]}/picture"
    server.close()


def test_a_server_that_sends_a_byte_now_and_then_is_left_at_the_deadline(drip: str) -> None:
    with pytest.raises(RefusalError, match="did not give the picture"):
        fetch(drip, 1000, ["127.0.0.0/8"], timeout_s=0.5)


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "127.0.0.1", "127.9.9.9:1", "[::1]:8000", "a.localhost", "LocalHost."],
)
def test_names_of_this_machine(host: str) -> None:
    assert is_loopback_name(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.com",
        "evil.com:8000",
        "127.0.0.1.evil.com",
        "localhost.evil.com",
        "10.0.0.1",
        "[::2]",
        "[::1",
        "a:b:c",
    ],
)
def test_names_of_others(host: str) -> None:
    assert not is_loopback_name(host)
    assert not is_loopback_name(host, ("proxy",))
    assert is_loopback_name("proxy:8000", ("proxy",))


def test_a_page_whose_name_leads_here_is_not_answered(server: Server) -> None:
    for path, method in (("/v2/models/double", "GET"), ("/v2/repository/models/double/unload", "POST")):
        told = server.call(method, path, host="evil.com", origin="http://evil.com")
        assert told.status == 421
        assert "--allow-host" in told.json()["error"]
    assert server.call("GET", "/v2/models/double").status == 200


def test_a_key_file_that_turns_to_garbage_leaves_the_keys_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.json"
    _, text = add_key(path, "anna")
    ring = KeyRing(path)

    def check() -> None:
        ring._looked = float("-inf")  # as if time had passed
        ring.check(text.encode())

    check()
    whole = path.read_text()
    for garbage in ("", "{", "[1]", '[{"id": 1}]', "\0"):
        path.write_text(garbage)
        check()
    assert capsys.readouterr().err.count("the keys from before stay valid") == 5
    path.write_text(whole)
    revoke_key(path, "anna")
    with pytest.raises(RefusalError, match="revoked"):
        check()


def tensor(**changes: Any) -> bytes:
    given = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1], **changes}
    return json.dumps({"inputs": [given]}).encode()


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL", "BYTES"])
@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [1] * 65},
        {"shape": [0, 1 << 62], "data": []},
        {"shape": [0, 1 << 62, 1 << 62], "data": []},
        {"shape": [1 << 70], "data": []},
        {"shape": [-1], "data": []},
        {"data": {}},
        {"data": [{}]},
        {"data": None},
        {"data": [10**400]},
    ],
)
def test_tensors_that_cannot_be_are_the_caller_s_fault(changes: dict[str, Any], datatype: str) -> None:
    with pytest.raises(RefusalError) as refused:
        parse_infer(tensor(datatype=datatype, **changes))
    assert refused.value.status == 400


def test_huge_timeouts_and_versions_are_no_fault_of_the_server(server: Server) -> None:
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
    for timeout in (10**30, 1e300):
        asked = {**body, "parameters": {"timeout": timeout}}
        assert server.post("/v2/models/double/infer", asked).status == 200
    digits = "9" * 5000
    assert server.call("GET", f"/v2/models/double/versions/{digits}").status == 404
    assert server.post("/v2/repository/models/double/load", {"parameters": {"version": digits}}).status == 404
    seldon = {"data": {"tensor": {"shape": [0, 1 << 62], "values": []}}}
    assert server.post("/api/v1.0/predictions?model=double", seldon).status == 400


def test_reasons_for_callers_name_files_not_folders() -> None:
    assert names_only("/srv/store/m/3/model.onnx must be a model") == "model.onnx must be a model"
    assert names_only("got nothing at models/a b/x.onnx; see") == "got nothing at a x.onnx; see"
    assert names_only("must run on zeros, got: 1.5") == "must run on zeros, got: 1.5"


def test_a_server_whose_model_does_not_load_is_not_ready(
    start: Starter, onnx_models: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    server = start(str(onnx_models / "double.onnx"), str(broken))
    told = server.call("GET", "/v2/health/ready")
    assert (told.status, "broken" in told.json()["error"]) == (503, True)
    asked = server.call("GET", "/v2/models/broken")
    assert asked.status == 503
    assert "broken.onnx" in asked.json()["error"]
    assert str(tmp_path) not in asked.json()["error"]
    with server.client() as client:
        assert client.live()
        assert not client.ready()
        client.unload("broken")
        assert client.ready()


def test_what_a_client_cannot_use_is_told() -> None:
    from weft.errors import UsageError

    for url in ("http://[::1", "http://h:99999", "ftp://h", "http://"):
        with pytest.raises(UsageError, match="must look like"):
            Client(url)
    with pytest.raises(UsageError, match="certificates in PEM"):
        Client("https://h", ca=__file__)
