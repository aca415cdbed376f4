"""The OpenAPI document, and requests made up from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.serve.server.serving_process import Server, Starter

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_the_document_names_what_is_served(server: Server) -> None:
    told = server.call("GET", "/openapi.json").json()
    (name,) = told["paths"]["/v2/models/{name}"]["get"]["parameters"]
    assert "double" in name["schema"]["enum"]
    examples = told["components"]["schemas"]["InferRequest"]["examples"]
    (double,) = [one for one in examples if one["inputs"][0]["shape"] == [1, 4]]
    assert server.post("/v2/models/double/infer", double).status == 200
    assert "openapi.json" in server.call("GET", "/docs").body.decode()


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
