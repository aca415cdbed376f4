"""Who may come in, where the server may be made to go, and what the command line refuses."""

from __future__ import annotations

import http.server
import ipaddress
import json
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, urlsplit

import numpy as np
import pytest
from testing.serving.pictures import picture
from testing.serving.server import WEFT, Starter

from weft.cli.models.serve import command as serve
from weft.errors import UsageError
from weft.serve.client import Client, ServerError
from weft.serve.server.models.torch_runner import TorchRunner
from weft.serve.server.options import ModelOptions, ServerOptions
from weft.serve.server.pictures.fetching import checked_url, fetch, is_public
from weft.serve.server.protocols.tensors import BF16
from weft.serve.server.refusal import RefusalError

ROW = np.ones((1, 4), np.float32)


def weft(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=60, check=False, cwd=cwd)


def test_keys_are_hashed_asked_for_and_revoked(start: Starter, onnx_models: Path, tmp_path: Path) -> None:
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException

    added = weft("serve", "keys", "add", "me", cwd=tmp_path)
    key, file = added.stdout.strip(), tmp_path / "keys.json"
    assert added.returncode == 0
    assert key not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    other = weft("serve", "keys", "add", "you", "--role", "admin", cwd=tmp_path).stdout.strip()
    options = ("--keys", str(file), "--host", "0.0.0.0", "--insecure")
    server = start(str(onnx_models / "double.onnx"), *options)
    url = server.url.replace("0.0.0.0", "127.0.0.1")
    with Client(url) as nobody, Client(url, key=key) as me, Client(url, key=other) as you:
        assert nobody.live()
        with pytest.raises(ServerError, match="a key must be given") as caught:
            nobody.infer("double", {"x": ROW})
        assert caught.value.status == 401
        for path in ("/metrics", "/v2/models/double", "/v1/models", "/nothing"):
            with pytest.raises(ServerError, match="key"):
                nobody._request("GET", path)
        for client in (me, you):
            assert client.infer("double", {"x": ROW})["y"][0, 0] == 2
        with triton.InferenceServerClient(server.grpc.replace("0.0.0.0", "127.0.0.1")) as calls:
            given = triton.InferInput("x", [1, 4], "FP32")
            given.set_data_from_numpy(ROW)
            with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
                calls.infer("double", [given])
            assert calls.infer("double", [given], headers={"x-api-key": key}).as_numpy("y")[0, 0] == 2
            with pytest.raises(InferenceServerException, match="PERMISSION_DENIED"):
                calls.unload_model("double", headers={"x-api-key": key})
        for forbidden in (me.unload, me.load, me.set_traffic):
            with pytest.raises(ServerError, match="must be an administrator's") as denied:
                forbidden("double")
            assert denied.value.status == 403
        assert me.index() == you.index()
        you.load("double")
        listed = json.loads(weft("serve", "keys", "list", "--json", cwd=tmp_path).stdout)
        assert [(one["name"], one["revoked"]) for one in listed] == [("me", None), ("you", None)]
        assert weft("serve", "keys", "revoke", "me", cwd=tmp_path).returncode == 0
        with pytest.raises(ServerError, match="unknown or revoked"):
            ask_for_a_minute(me)
        assert you.infer("double", {"x": ROW})["y"][0, 0] == 2
    unknown = weft("serve", "keys", "revoke", "me", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "(you)" in unknown.stderr


def ask_for_a_minute(client: Client) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        client.infer("double", {"x": ROW})


def test_tls(start: Starter, onnx_models: Path, tmp_path: Path) -> None:
    import grpc

    from weft.serve.server.protocols.inference_pb2 import ServerReadyRequest
    from weft.serve.server.protocols.inference_pb2_grpc import GRPCInferenceServiceStub

    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-addext", "basicConstraints=critical,CA:TRUE", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    server = start(str(onnx_models / "double.onnx"), "--tls-cert", str(cert), "--tls-key", str(key))
    assert server.url.startswith("https://")
    with server.client(ca=cert) as client:
        assert client.infer("double", {"x": ROW})["y"][0, 0] == 2
    with server.client() as stranger, pytest.raises(ServerError, match="must be a server that answers"):
        stranger.metadata()
    credentials = grpc.ssl_channel_credentials(cert.read_bytes())
    with grpc.secure_channel(server.grpc, credentials) as channel:
        stub = GRPCInferenceServiceStub(channel)  # type: ignore[no-untyped-call]
        assert stub.ServerReady(ServerReadyRequest(), timeout=60).ready


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "needs a model, got none"),
        (("nothing.onnx",), "must be an ONNX file, got nothing there"),
        (("m.onnx", "--host", "0.0.0.0"), "must ask for keys"),
        (
            ("m.onnx", "--keys", "no.json"),
            "--keys must be a file of keys .* got no.json .*; `weft serve keys add` makes one",
        ),
        (("m.onnx", "--tls-cert", "m.onnx"), "must be given together"),
        (("m.onnx", "--max-batch", "0"), "--max-batch must be a whole number between 1"),
        (("m.onnx", "--device", "tpu"), "device must be one of"),
        (("m.onnx", "--set", "m"), "--set must be of the form NAME:K=V"),
        (("m.onnx", "--set", "m:speed=9"), "options must be among"),
        (("m.onnx", "--canary", "m=x"), "--canary must be of the form NAME=ALIAS:PERCENT"),
        (("m.onnx", "other/m.onnx"), "different names"),
        (("--store", "empty", "m@1"), "m"),
    ],
)
def test_what_cannot_be_served_is_told(
    args: tuple[str, ...], told: str, tmp_path: Path, onnx_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    for place in (tmp_path, tmp_path / "other"):
        (place / "m.onnx").write_bytes((onnx_models / "double.onnx").read_bytes())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=told):
        serve.main(["--port", "0", "--no-grpc", *args], standalone_mode=False)


def test_a_port_that_is_taken(tmp_path: Path, onnx_models: Path) -> None:
    model = str(onnx_models / "double.onnx")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = weft("serve", model, "--port", port, cwd=tmp_path)
        assert done.returncode == 2
        assert "choose another with --port" in done.stderr
        with pytest.raises(UsageError, match="choose another with --grpc-port"):
            serve.main([model, "--port", "0", "--grpc-port", port], standalone_mode=False)


def test_only_loopback_goes_without_keys() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        ServerOptions(host=host)
    keys = Path("keys.json")
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.com"):
        with pytest.raises(UsageError, match="must ask for keys"):
            ServerOptions(host=host)
        with pytest.raises(UsageError, match="must not travel in clear"):
            ServerOptions(host=host, keys=keys)
        ServerOptions(host=host, insecure=True)
        ServerOptions(host=host, keys=keys, insecure=True)
        ServerOptions(host=host, keys=keys, tls_cert=Path("cert.pem"), tls_key=Path("key.pem"))


def test_options_of_one_model() -> None:
    assert ModelOptions().changed("max_batch=8,delay_ms=2.5") == ModelOptions(max_batch=8, delay_ms=2.5)
    with pytest.raises(UsageError, match="max_batch must be int"):
        ModelOptions().changed("max_batch=x")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("1.1.1.1", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fc00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:1.1.1.1", True),
        ("::127.0.0.1", False),
        ("::1.1.1.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::101:101", True),
        ("64:ff9b:1::7f00:1", False),
        ("2002:7f00:1::", False),
        ("2002:a9fe:a9fe::1", False),
        ("2001::7f00:1", False),
        ("2001:db8::1", False),
        ("3fff::1", False),
        ("fec0::1", False),
        ("ff0e::1", False),
        ("5f00::1", False),
        ("198.18.0.1", False),
        ("255.255.255.255", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is public
    assert is_public(ipaddress.ip_address(address), ["0.0.0.0/0", "::/0"])


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/y", "gopher://x", "http://", "x", "http://x:99999/"]
)
def test_only_web_addresses_are_fetched(url: str) -> None:
    with pytest.raises(RefusalError):
        checked_url(url)


SEEN: list[dict[str, str]] = []  # headers of the requests that Web got


class Web(http.server.BaseHTTPRequestHandler):
    """A picture, and several traps."""

    def do_GET(self) -> None:
        SEEN.append({name.lower(): value for name, value in self.headers.items()})
        body, status, headers = b"", 200, {}
        if self.path == "/picture":
            body = picture()
        elif self.path == "/endless":
            body = b"\xff" * 3_000_000
        elif self.path == "/loop":
            status, headers = 302, {"Location": "/loop"}
        elif self.path == "/moved":
            status, headers = 302, {"Location": "/picture"}
        elif self.path == "/inside":
            status, headers = 302, {"Location": "http://169.254.169.254/latest/meta-data"}
        else:
            status = 404
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):  # it would not read all of it
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_fetching_checks_every_step(web: str) -> None:
    here = ["127.0.0.0/8"]
    assert fetch(f"{web}/picture", 1_000_000, here) == picture()
    assert fetch(f"{web}/moved", 1_000_000, here) == picture()
    for path, status, told in (
        ("/endless", 413, "at most"),
        ("/loop", 400, "redirects"),
        ("/inside", 403, "public address"),
        ("/nothing", 400, "status 404"),
    ):
        with pytest.raises(RefusalError, match=told) as caught:
            fetch(web + path, 1_000_000, here)
        assert caught.value.status == status
    with pytest.raises(RefusalError, match="public address"):
        fetch(f"{web}/picture", 1_000_000)
    with pytest.raises(RefusalError, match="public address"):
        fetch(web.replace("127.0.0.1", "localhost") + "/picture", 1_000_000)


def test_fetching_connects_to_the_address_that_was_checked(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves to a public address, and to a private one when asked again."""
    port = urlsplit(web).port
    asked: list[str] = []

    def getaddrinfo(host: str, *args: object, **options: object) -> list[tuple[object, ...]]:
        asked.append(host)
        address = "127.0.0.1" if host != "rebound.test" or asked.count("rebound.test") == 1 else "10.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert fetch(f"http://name:word@rebound.test:{port}/picture", 1_000_000, ["127.0.0.0/8"]) == picture()
    assert asked[0] == "rebound.test"
    assert set(asked[1:]) <= {"127.0.0.1"}
    assert SEEN[-1]["host"] == f"rebound.test:{port}"
    assert "authorization" not in SEEN[-1]
    with pytest.raises(RefusalError, match="public address"):
        fetch(f"http://rebound.test:{port}/picture", 1_000_000, ["127.0.0.0/8"])


def test_detect_url(start: Starter, onnx_models: Path, web: str) -> None:
    names = [str(onnx_models / f"{name}.onnx") for name in ("colours", "boxes")]
    server = start(*names, "--detect-url", "--fetch-from", "127.0.0.0/8")
    found = server.call("GET", f"/detect_url?url={quote(web + '/picture')}").json()
    assert [one["label"] for one in found] == ["red", "blue"]
    best = server.call("GET", f"/classify_url?url={quote(web + '/picture')}").json()
    assert best[0]["label"] == "green"
    assert server.call("GET", f"/detect_url?url={quote(web + '/inside')}").status == 403
    assert server.call("GET", "/detect_url").status == 400
    assert server.call("GET", "/detect_url?url=file:///etc/passwd").status == 400


def test_spans_where_opentelemetry_is_configured(start: Starter, onnx_models: Path) -> None:
    """Over HTTP and over gRPC, one call and a stream; each as a child of the caller's own span."""
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException

    server = start(str(onnx_models / "double.onnx"), OTEL_TRACES_EXPORTER="console")

    def parent(trace: int) -> dict[str, str]:
        return {"traceparent": f"00-{trace:032x}-b7ad6b7169203331-01"}

    server.call("GET", "/v2/models/double", **parent(1))
    given = triton.InferInput("x", [1, 4], "FP32")
    given.set_data_from_numpy(ROW)
    answers: queue.Queue[object] = queue.Queue()
    with triton.InferenceServerClient(server.grpc) as calls:
        calls.infer("double", [given], headers=parent(2))
        with pytest.raises(InferenceServerException):
            calls.infer("nobody", [given], headers=parent(3))
        calls.start_stream(lambda result, error: answers.put(error), headers=parent(4))
        for _ in range(2):
            calls.async_stream_infer("double", [given])
            assert answers.get(timeout=100) is None
        calls.stop_stream()
    server.process.terminate()
    assert server.process.stdout is not None
    told = server.process.stdout.read()
    infer, stream = ("inference.GRPCInferenceService/" + name for name in ("ModelInfer", "ModelStreamInfer"))
    seen = spans(told)
    assert seen == [
        (1, "GET /v2/models/double", "UNSET"),
        (2, infer, "UNSET"),
        (3, infer, "ERROR"),
        (4, stream, "UNSET"),
        (4, stream, "UNSET"),
    ]


def spans(told: str) -> list[tuple[int, str, str]]:
    """The traces that spans on a console belong to, their names and how they ended."""
    decoder, at, found = json.JSONDecoder(), told.find("{"), []
    while at >= 0:
        span, end = decoder.raw_decode(told, at)
        found.append((int(span["context"]["trace_id"], 16), span["name"], span["status"]["status_code"]))
        at = told.find("{", end)
    return sorted(found)


def test_a_torch_module_that_was_never_exported(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n\n\n"
        "def twice():\n"
        "    layer = torch.nn.Linear(4, 4, bias=False)\n"
        "    torch.nn.init.eye_(layer.weight).data.mul_(2)\n"
        "    return layer\n"
    )
    server = start("mine:twice")
    with server.client() as client:
        told = client.metadata("twice")
        assert told["platform"] == "pytorch_module"
        assert told["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}]
        assert client.infer("twice", {"input": ROW})["output"].tolist() == [[2, 2, 2, 2]]
        with pytest.raises(ServerError, match="must have the shape"):
            client.infer("twice", {"input": ROW[:, :2]})


def test_a_torch_module_in_bf16() -> None:
    import torch

    class Half(torch.nn.Module):
        weft_inputs: ClassVar = {"x": ("BF16", [-1, 4])}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / 2

    runner = TorchRunner(Half(), ModelOptions(device="cpu", threads=torch.get_num_threads()))
    assert [spec.datatype for spec in runner.outputs] == ["BF16"]
    (found,) = runner.run({"x": ROW.astype(BF16)})
    assert found.dtype == BF16
    assert found.tolist() == [[0.5, 0.5, 0.5, 0.5]]


def test_requests_are_logged_where_asked_for(start: Starter, onnx_models: Path) -> None:
    server = start(str(onnx_models / "double.onnx"), "--log-requests")
    assert server.call("GET", "/v2", x_request_id="abc").status == 200
    logged = server.logged(event="request", id="abc")
    assert logged["status"] == 200
    assert logged["ms"] > 0
