"""The OpenAPI document: whole, in step with the routes, and requests made up from it never break the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from testing.jobs.web import WebService
from tests.jobs.api.conftest import StartWeb
from tests.jobs.api.test_jobs_routes import submit

from weft.jobs.api.app import HANDLERS
from weft.jobs.api.openapi import document
from weft.jobs.api.operations import OPERATIONS

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_every_operation_has_a_handler_and_a_name_of_its_own() -> None:
    names = [one.name for one in OPERATIONS]
    assert sorted(names) == sorted(HANDLERS)
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(names)


def test_the_document_is_published_and_written_by_the_tool(web: WebService, tmp_path: Path) -> None:
    published = web.client().get("/openapi.json").json()
    assert published == json.loads(json.dumps(document()))
    tool = Path(__file__).parents[3] / "tools" / "openapi.py"
    subprocess.run([sys.executable, str(tool), str(tmp_path / "openapi.json")], check=True)
    assert json.loads((tmp_path / "openapi.json").read_text()) == published


def test_references_of_the_document_exist_and_answers_have_names() -> None:
    told = document()
    text = json.dumps(told)
    known = told["components"]["schemas"]
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.partition('"')[0] in known
    job = known["JobView"]["properties"]
    assert {"id", "state", "reason", "headline", "tags"} <= set(job)
    assert told["paths"]["/api/v1/jobs/{job}"]["get"]["operationId"] == "show_job"
    assert [one["name"] for one in told["paths"]["/api/v1/jobs/{job}/diff"]["get"]["parameters"]] == [
        "job",
        "with",
    ]


def test_the_reference_names_every_operation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "jobs-api.md").read_text()
    for one in OPERATIONS:
        path = one.plain_path.removeprefix("/api/v1")
        assert f"| `{one.method.upper()} {path}` | {one.access} |" in page, one.name


def test_the_types_load_neither_the_server_nor_the_database() -> None:
    look = (
        "import sys, weft.jobs.api.openapi; "
        "print([name for name in ('torch', 'numpy', 'sqlalchemy', 'starlette', 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.clients
@pytest.mark.timeout(900)  # 83 operations take 40 s of a processor, and minutes of a busy one
def test_requests_made_up_from_the_document_never_break_the_service(start_web: StartWeb) -> None:
    web = start_web()
    client = web.user("fuzz")
    number = submit(client, tags={"a": "b"})["id"]
    client.post(
        f"/jobs/{number}/points", json={"source": "a", "sequence": 1, "points": [["loss", 1, 1, 0.5]]}
    )
    token = client.headers["authorization"]
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{web.url}/api/v1/openapi.json"]
    command += [
        "--header",
        f"Authorization: {token}",
        "--checks",
        CHECKS,
        "--max-examples",
        "3",
        "--seed",
        "1",
    ]
    command += ["--phases", "examples,coverage,fuzzing", "--generation-database", "none", "--no-color"]
    # The stream does not end, and hosts that are made up would be looked for. Lists of URLs are made up so long that
    # they are refused before they are read, which breaks the connection at times.
    command += ["--exclude-path-regex", "(stream|vision/datasets/{dataset}/import)$"]
    # A busy machine takes longer than its ten seconds at times, and a connection that is closed as idle while a request
    # is on its way is opened anew, as clients do; a service that is gone stays so.
    command += ["--request-timeout", "120", "--request-retries", "2"]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=840)
    assert done.returncode == 0, done.stdout[:6000] + done.stdout[-3000:] + done.stderr[-2000:]
