"""A client of any server that speaks the open inference protocol V2 over REST: ours, Triton, KServe, MLServer.

    client = Client("http://127.0.0.1:8000")
    answer = client.infer("digits", {"x": rows})       # numpy in, numpy out, bytes in between
    client.picture("birds", "gull.jpg")                # [{"label": ..., "confidence": ...}, ...]

Connections are http.client's, one kept open for each thread: a small request costs the caller 0.23 ms of CPU time,
with urllib3 0.48 ms, with httpx 0.84 ms.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import numpy as np

from weft.errors import UsageError, WeftError
from weft.serve.server.protocols.tensors import NAMES, NUMPY, Array, from_bytes, to_bytes
from weft.serve.server.refusal import RefusalError


class ServerError(WeftError):
    """A request that a server refused or failed to answer; `status` is the HTTP status, 0 where there was no answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """A client of one server. Threads may share a client; each thread has a connection of its own."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_s: float = 60.0,
        ca: str | os.PathLike[str] | None = None,  # certificates to trust, PEM
    ) -> None:
        self._parts = parts = _split(url)
        self._base = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout_s = timeout_s
        self._context = _trusting(ca) if parts.scheme == "https" else None
        self._local = threading.local()
        self._open: list[http.client.HTTPConnection] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._local = threading.local()

    # -- inference -----------------------------------------------------------------------------------

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        *,
        version: str | int | None = None,
        outputs: tuple[str, ...] = (),
        binary: bool = True,
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Array]:
        """Return the model's outputs by name. Tensors are sent as bytes, or as JSON if `binary` is False."""
        body, json_length = pack(inputs, outputs, binary, request_id, timeout_s)
        headers = {"Content-Type": "application/octet-stream" if binary else "application/json"}
        if json_length is not None:
            headers["Inference-Header-Content-Length"] = str(json_length)
        found, answer = self._request("POST", f"{_path(model, version)}/infer", body, headers)
        length = found.get("inference-header-content-length")
        return unpack(answer, int(length) if length else None)

    def picture(self, model: str, picture: str | os.PathLike[str] | bytes, **query: Any) -> Any:
        """Return the classes or boxes that a model finds in a JPEG or PNG, best first."""
        data = picture if isinstance(picture, bytes) else Path(picture).read_bytes()
        words = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
        path = f"{_path(model)}/picture" + (f"?{words}" if words else "")
        return self._json("POST", path, data, {"Content-Type": "application/octet-stream"})

    # -- about the server ------------------------------------------------------------------------------

    def live(self) -> bool:
        return self._succeeds("/v2/health/live")

    def ready(self, model: str | None = None) -> bool:
        return self._succeeds(f"{_path(model)}/ready" if model else "/v2/health/ready")

    def metadata(self, model: str | None = None, version: str | int | None = None) -> dict[str, Any]:
        found: dict[str, Any] = self._json("GET", _path(model, version) if model else "/v2")
        return found

    def statistics(self, model: str | None = None) -> list[dict[str, Any]]:
        found = self._json("GET", f"{_path(model)}/stats" if model else "/v2/models/stats")
        return list(found["model_stats"])

    def index(self) -> list[dict[str, str]]:
        return list(self._json("POST", "/v2/repository/index", b"{}"))

    def load(self, model: str, version: str | int | None = None) -> None:
        body = {} if version is None else {"parameters": {"version": str(version)}}
        self._json("POST", f"/v2/repository/models/{quote(model)}/load", json.dumps(body).encode())

    def unload(self, model: str) -> None:
        self._json("POST", f"/v2/repository/models/{quote(model)}/unload", b"{}")

    def set_traffic(
        self, model: str, *, canary: str | None = None, percent: float = 0.0, shadow: str | None = None
    ) -> None:
        """Give a canary version `percent` of the requests, and a shadow version a copy of each."""
        body = {"canary": canary, "percent": percent, "shadow": shadow}
        self._json("POST", f"/v2/repository/models/{quote(model)}/traffic", json.dumps(body).encode())

    # -- connections ------------------------------------------------------------------------------------

    def _succeeds(self, path: str) -> bool:
        try:
            self._request("GET", path)
        except ServerError:
            return False
        return True

    def _json(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        return json.loads(self._request(method, path, body, headers or {})[1])

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[dict[str, str], bytes]:
        kept = getattr(self._local, "connection", None)
        connection = kept or self._connect()
        target = self._base + path
        try:
            try:
                answer = self._exchange(connection, method, target, body, headers or {})
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if kept is None:
                    raise
                # The server closed the connection while it was idle, so the server has not seen this request.
                self._drop(connection)
                connection = self._connect()
                answer = self._exchange(connection, method, target, body, headers or {})
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._drop(connection)
            where = self._parts.netloc.rpartition("@")[2]
            raise ServerError(0, _unanswered(where, error)) from error
        if answer.status >= 400:
            raise ServerError(answer.status, _reason(data, answer))
        return {name.lower(): value for name, value in answer.getheaders()}, data

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        connection.request(method, target, body, {**self._headers, **headers})
        return connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname, self._parts.port
        assert host is not None
        connection: http.client.HTTPConnection
        if self._context is not None:
            connection = http.client.HTTPSConnection(
                host, port, timeout=self._timeout_s, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            where = self._parts.netloc.rpartition("@")[2]
            raise ServerError(0, _unanswered(where, error)) from error
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._local.connection = connection
        self._open.append(connection)
        return connection

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        connection.close()
        self._local.connection = None
        if connection in self._open:
            self._open.remove(connection)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets that do not close, a port above 65535
        good = False
    if not good:
        raise UsageError(f"a server's URL must look like http://host:8000, got {url!r}")
    return parts


def _trusting(ca: str | os.PathLike[str] | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"ca must be a file of certificates in PEM, got {ca}: {error}") from error


def pack(
    inputs: Mapping[str, Any],
    outputs: tuple[str, ...] = (),
    binary: bool = True,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> tuple[bytes, int | None]:
    """Return the body of a V2 request, and the length of its JSON if the bytes of tensors follow."""
    tensors: list[dict[str, Any]] = []
    raw: list[bytes] = []
    for name, value in inputs.items():
        array = np.asarray(value)
        if array.dtype.kind in "US":
            array = array.astype(object)
        if array.dtype not in NAMES:
            raise UsageError(
                f"input {name!r} must be of a type that V2 knows, got {array.dtype}; one of {', '.join(NUMPY)}"
            )
        tensor: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": NAMES[array.dtype]}
        if binary:
            raw.append(to_bytes(array))
            tensor["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            tensor["data"] = array.ravel().tolist()
        tensors.append(tensor)
    body: dict[str, Any] = {"inputs": tensors}
    if request_id is not None:
        body["id"] = request_id
    if outputs:
        body["outputs"] = [{"name": name} for name in outputs]
    parameters: dict[str, Any] = {"binary_data_output": True} if binary else {}
    if timeout_s is not None:
        parameters["timeout"] = int(timeout_s * 1e6)
    if parameters:
        body["parameters"] = parameters
    text = json.dumps(body).encode()
    if not binary:
        return text, None
    text += b" " * (-len(text) % 16)  # a server can use a tensor in place if its first byte is aligned
    return b"".join([text, *raw]), len(text)


def unpack(body: bytes, json_length: int | None) -> dict[str, Array]:
    """Return the outputs of a V2 answer by name."""
    head = json.loads(body if json_length is None else body[:json_length])
    at = len(body) if json_length is None else json_length
    found: dict[str, Array] = {}
    try:
        for tensor in head["outputs"]:
            name, kind, shape = tensor["name"], tensor["datatype"], tensor["shape"]
            size = tensor.get("parameters", {}).get("binary_data_size")
            if size is None:
                found[name] = np.array(tensor["data"], NUMPY[kind]).reshape(shape)
            else:
                found[name] = from_bytes(name, kind, shape, body[at : at + size])
                at += size
    except (KeyError, ValueError, RefusalError) as error:
        raise ServerError(0, f"the answer must be one of V2, got: {error}") from error
    return found


def _path(model: str, version: str | int | None = None) -> str:
    base = f"/v2/models/{quote(model)}"
    return base if version is None else f"{base}/versions/{quote(str(version))}"


def _unanswered(where: str, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or repr(error)
    return f"{where} must be a server that answers, got: {reason}; check the address, and whether it runs"


def _reason(data: bytes, answer: http.client.HTTPResponse) -> str:
    try:
        return str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status} {answer.reason}"
