"""Models of tables by the API: a table is sent and looked at, a run begins as a job, and its model is served."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest
from testing.jobs.web import ServiceThread, WebService
from tests.auto.data import mixed_columns, write_csv

from weft.jobs.auto.reading import AutoRunFiles
from weft.jobs.auto.runs import RUN_FOLDER, model_name
from weft.jobs.auto.worker import main, table_in

PATIENCE_S = 600.0


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebService]:
    with ServiceThread(tmp_path_factory.mktemp("data"), {}) as service:
        yield service


@pytest.fixture(scope="module")
def ann(web: WebService) -> httpx.Client:
    return web.user("ann")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("tables") / "orders.csv", mixed_columns(300))


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def sent(client: httpx.Client, table: Path) -> Any:
    return ok(client.post("/auto/tables", params={"name": table.name}, content=table.read_bytes()), 201)


def folder_of(web: WebService, job: int) -> Path:
    return web.folder / "jobs" / str(job) / "checkpoints" / RUN_FOLDER


def test_a_table_is_looked_at_before_a_run_begins(ann: httpx.Client, table: Path) -> None:
    look = sent(ann, table)
    kinds = {one["name"]: one["kind"] for one in look["columns"]}
    assert (kinds["age"], kinds["when"], kinds["city"], kinds["y"]) == ("number", "date", "text", "text")
    assert look["rows"] is None  # a CSV file does not say
    kept = io.BytesIO()
    pa.parquet.write_table(pa.table({"x": [1.5, 2.5], "y": [0, 1]}), kept)
    answer = ann.post("/auto/tables", params={"name": "folder/small.parquet"}, content=kept.getvalue())
    assert (ok(answer, 201)["rows"], ok(answer, 201)["file"]) == (2, "small.parquet")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("notes.txt", b"x", "ends in one of .csv"),
        ("bad.parquet", b"no parquet", "readable parquet file"),
        ("empty.csv", b"", "readable csv file"),
        ("twice.csv", b"a,a\n1,2\n", "different names"),
    ],
)
def test_a_file_that_is_no_table_is_refused(ann: httpx.Client, name: str, content: bytes, said: str) -> None:
    answer = ann.post("/auto/tables", params={"name": name}, content=content)
    assert (answer.status_code, said in answer.text) == (422, True), answer.text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": "yy"}, "did you mean y?"),
        ({"time": "wen"}, "did you mean when?"),
        ({"fairness": ["cty"]}, "did you mean city?"),
        ({"time": "when", "group": "city"}, "without --group"),
        ({"dataset": "orders"}, "got both or neither"),
        ({"upload": "0" * 64}, "send the table again"),
        ({"minutes": 0}, "minutes must be"),
    ],
)
def test_a_run_that_cannot_be_is_refused(
    ann: httpx.Client, table: Path, changes: dict[str, Any], said: str
) -> None:
    body = {"target": "y", "upload": sent(ann, table)["upload"], "file": "orders.csv", **changes}
    answer = ann.post("/auto/runs", json=body)
    assert (answer.status_code, said in answer.text) == (422, True), answer.text


def test_a_data_set_is_a_table_too(web: WebService, ann: httpx.Client, table: Path) -> None:
    ok(ann.post("/datasets", json={"name": "orders", "source": str(table.parent)}), 201)
    look = ok(ann.get("/auto/tables", params={"dataset": "orders"}))
    assert (look["dataset"], look["file"]) == ("orders@1", "orders.csv")
    begun = ok(ann.post("/auto/runs", json={"dataset": "orders", "target": "y", "minutes": 1}), 201)
    assert (begun["table"], begun["target"]) == ("orders@1/orders.csv", "y")
    job = begun["job"]["id"]
    assert ok(ann.get(f"/auto/runs/{job}"))["leaderboard"] == []
    assert web.user("ben").post(f"/auto/runs/{job}/finish").status_code == 403
    refused = ann.post(f"/auto/runs/{job}/finish")
    assert refused.status_code == 409, refused.text


def test_files_of_a_run_are_read_without_trust(
    web: WebService, ann: httpx.Client, table: Path, tmp_path: Path
) -> None:
    asked = {"target": "y", "upload": sent(ann, table)["upload"], "file": "orders.csv", "minutes": 1}
    job = ok(ann.post("/auto/runs", json=asked), 201)["job"]["id"]
    folder = folder_of(web, job)
    folder.mkdir(parents=True)
    board = [{"name": "baseline", "score": 0.7, "held_score": None, "weight": 0, "seconds": 0, "params": {}}]
    told = {"doing": "a baseline", "spent_s": 2, "budget_s": 60, "metric": "log_loss", "leaderboard": board}
    (folder / "progress.json").write_text(json.dumps(told))
    shown = ok(ann.get(f"/auto/runs/{job}"))
    assert (shown["doing"], shown["leaderboard"][0]["name"], shown["score"]) == (
        "a baseline",
        "baseline",
        None,
    )
    (folder / "progress.json").write_text('{"leaderboard": [{"name": 3}]}')
    assert ann.get(f"/auto/runs/{job}").status_code == 409
    assert [one["score"] for one in ok(ann.get("/auto/runs"))["runs"] if one["job"]["id"] == job] == [None]
    (folder / "progress.json").unlink()
    (tmp_path / "secret.json").write_text('{"doing": "secret"}')
    (folder / "progress.json").symlink_to(tmp_path / "secret.json")
    assert ok(ann.get(f"/auto/runs/{job}"))["doing"] == ""


def test_a_worker_finds_its_table_and_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nothing.json"], {}) == 2
    assert "must have a request" in capsys.readouterr().err
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.csv").touch()
    (tmp_path / "readme.md").touch()
    assert table_in(tmp_path, "") == tmp_path / "deep" / "a.csv"
    assert table_in(tmp_path / "deep" / "a.csv", "a.csv") == tmp_path / "deep" / "a.csv"
    request = {"file": "", "uploaded": False, "config": {"target": "y"}}
    (tmp_path / "request.json").write_text(json.dumps(request))
    (tmp_path / "b.parquet").touch()
    places = {
        "WEFT_CHECKPOINT": str(tmp_path),
        "WEFT_OUTPUTS": str(tmp_path),
        "WEFT_DATA_TABLE": str(tmp_path),
    }
    assert main([str(tmp_path / "request.json")], places) == 2
    assert "must have one table, got 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "target", "name"),
    [("orders.csv", "y", "orders-y"), ("a/b.parquet", "Kündigung?", "b-Kundigung"), ("", "数", "table")],
)
def test_models_have_names_that_the_store_takes(file: str, target: str, name: str) -> None:
    assert model_name(file, target) == name


def ended(client: httpx.Client, job: int) -> Any:
    until = time.monotonic() + PATIENCE_S
    while (found := ok(client.get(f"/jobs/{job}")))["state"] not in ("completed", "failed", "stopped"):
        assert time.monotonic() < until, found
        time.sleep(0.2)
    return found


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_an_uploaded_table_becomes_a_served_model(tmp_path: Path, table: Path) -> None:
    """A run of an hour is finished early, once it has a model; its graph is in the store, and answers raw rows."""
    with ServiceThread(tmp_path, {}, runs_jobs=True) as service:
        admin = service.admin()
        body = {
            "target": "y", "upload": sent(admin, table)["upload"], "file": "orders.csv", "minutes": 60,
            "models": ["linear"], "fairness": ["city"],
        }  # fmt: skip
        job = ok(admin.post("/auto/runs", json=body), 201)["job"]["id"]
        until = time.monotonic() + PATIENCE_S
        while len((shown := ok(admin.get(f"/auto/runs/{job}")))["leaderboard"]) < 2:
            assert shown["job"]["state"] not in ("failed", "stopped"), admin.get(f"/jobs/{job}/logs").text
            assert time.monotonic() < until, shown
            time.sleep(0.1)
        roles = {one["name"]: one["role"] for one in shown["columns"]}
        assert (roles["note"], roles["when"], roles["id"]) == ("text", "date", "identifier")
        assert admin.post(f"/auto/runs/{job}/finish").status_code == 202
        done = ended(admin, job)
        assert done["state"] == "completed", (done["message"], admin.get(f"/jobs/{job}/logs").text[-3000:])
        assert not AutoRunFiles(service.folder / "jobs" / str(job))._folder.joinpath("stop").exists()
        shown = ok(admin.get(f"/auto/runs/{job}"))
        assert shown["model"] == "orders-y@1"
        assert shown["score"] is not None
        assert shown["explanation"]["importance"]
        assert {one["column"] for one in shown["explanation"]["groups"]} == {"city"}
        files = {one["name"]: one["url"] for one in shown["files"]}
        report = admin.get(files["report.html"].removeprefix("/api/v1"))
        assert "Partial dependence" in report.text
        deployed = ok(admin.post("/deployments", json={"name": "orders", "model": "orders-y@1"}), 201)
        answer = served(admin, deployed["name"])
        assert len(answer["outputs"]) >= 1
        assert ok(admin.get(f"/auto/runs/{job}"))["deployments"] == ["orders"]
        admin.delete("/deployments/orders")


def served(admin: httpx.Client, name: str) -> Any:
    """Return the answer of a deployment to one raw row, as soon as it answers."""
    until = time.monotonic() + PATIENCE_S
    while (found := ok(admin.get(f"/deployments/{name}")))["state"] != "running" or not found["inputs"]:
        assert time.monotonic() < until, found
        time.sleep(0.1)
    values: dict[str, Any] = {"FP64": [30.0], "BYTES": ["Ulm"]}
    inputs = [
        {"name": one["name"], "datatype": one["datatype"], "shape": [1, 1], "data": values[one["datatype"]]}
        for one in found["inputs"]
    ]
    return ok(admin.post(f"/deployments/{name}/infer", json={"inputs": inputs}))
