"""The OpenAPI document, and requests made up from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from testing.serving.server import Server, Starter

from weft.serve.server.models.repository import Repository
from weft.serve.server.options import ServerOptions
from weft.serve.server.pictures.routes import Pictures
from weft.serve.server.protocols.openapi import OPERATIONS
from weft.serve.server.protocols.pages import routes as page_routes
from weft.serve.server.protocols.rest import V2
from weft.serve.server.protocols.v1 import V1
from weft.serve.server.state import ServerState

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_the_document_names_what_is_served(server: Server) -> None:
    told = server.call("GET", "/openapi.json").json()
    (name,) = told["paths"]["/v2/models/{name}"]["get"]["parameters"]
    assert "double" in name["schema"]["enum"]
    examples = told["components"]["schemas"]["InferRequest"]["examples"]
    (double,) = [one for one in examples if one["inputs"][0]["shape"] == [1, 4]]
    assert server.post("/v2/models/double/infer", double).status == 200
    assert "openapi.json" in server.call("GET", "/docs").body.decode()


def test_every_route_is_in_the_document() -> None:
    state = ServerState(Repository([]), ServerOptions())
    documented = {(one.method, one.path) for one in OPERATIONS}
    inference = {
        ("post", path) for _, path in documented if path.endswith("/infer")
    }  # answered by the app itself
    pages = {("get", path) for path in ("/", "/docs", "/v2/docs", "/openapi.json")}
    routes = [*V1(state).routes(), *Pictures(state).routes(), *V2(state).routes()]
    served = {
        (method.lower(), route.path) for route in routes for method in route.methods or () if method != "HEAD"
    }
    assert documented == served | inference
    assert pages == {("get", route.path) for route in page_routes(state)}


@pytest.mark.clients
def test_requests_made_up_from_the_document_never_break_the_server(start: Starter, onnx_models: Path) -> None:
    files = [str(onnx_models / f"{name}.onnx") for name in ("double", "mixed", "colours", "boxes")]
    server = start(*files)
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/openapi.json"]
    command += [
        "--max-examples",
        "5",
        "--seed",
        "1",
        "--phases",
        "examples,coverage,fuzzing",
        "--checks",
        CHECKS,
    ]
    command += [
        "--exclude-path-regex",
        "unload$",
        "--generation-database",
        "none",
        "--no-color",
        "--request-timeout",
        "60",
    ]
    done = subprocess.run(
        command,
        cwd=start.folder,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert not [event for event in server.events() if event.get("status", 0) >= 500]
    with server.client() as client:
        assert client.ready("double")
