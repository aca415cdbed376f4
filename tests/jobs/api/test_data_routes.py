"""Data sets, models and deployments over HTTP: from a folder to a model that answers, and back."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from testing.cluster.waiting import wait_until
from testing.jobs.web import WebService
from testing.serving.small_models import times

from weft.jobs.data.datasets import record_input
from weft.jobs.store.jobs import move_job
from weft.jobs.store.tables import job


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def ran(web: WebService, client: httpx.Client, **files: float) -> int:
    """Submit a job that has run, and has left models of some factors among its outputs."""
    number = int(ok(client.post("/jobs", json={"spec": {"run": "train.py"}}), 201)["jobs"][0]["id"])
    for after in ("staging", "starting", "running", "completed"):
        web.write(partial(move_job, job_id=number, after=after))
    web.write(lambda c: c.execute(sa.update(job).where(job.c.id == number).values(attempt=1)))
    outputs = web.running.state.jobs.log_folder(number, 1) / "outputs"
    outputs.mkdir(parents=True)
    for name, factor in files.items():
        times(outputs / f"{name}.onnx", factor)
    return number


def test_a_data_set_is_registered_listed_and_forgotten(web: WebService, tmp_path: Path) -> None:
    ann, bob = web.user("data-ann"), web.user("data-bob")
    (tmp_path / "x.csv").write_text("1,2")
    made = ok(ann.post("/datasets", json={"name": "digits", "source": str(tmp_path), "note": "first"}), 201)
    assert (made["name"], made["user"], made["mine"], len(made["versions"])) == (
        "digits",
        "data-ann",
        True,
        1,
    )
    (tmp_path / "y.csv").write_text("3")
    again = ok(ann.post("/datasets", json={"name": "digits", "source": str(tmp_path)}), 201)
    assert [one["version"] for one in again["versions"]] == [2, 1]
    assert (again["versions"][0]["files"], again["versions"][0]["bytes"]) == (2, 4)
    assert "digits" in [one["name"] for one in ok(bob.get("/datasets"))["datasets"]]
    assert not ok(bob.get("/datasets/digits"))["mine"]
    detail = ok(bob.get("/datasets/digits/versions/2"))
    assert [file["path"] for file in detail["listing"]] == ["x.csv", "y.csv"]
    assert (detail["jobs"], detail["models"]) == ([], [])
    assert bob.delete("/datasets/digits").status_code == 403
    assert ann.delete("/datasets/digits/versions/1").status_code == 204
    assert ann.get("/datasets/digits/versions/1").status_code == 404
    assert ann.delete("/datasets/digits").status_code == 204
    assert ann.get("/datasets/digits").status_code == 404
    for wrong in (
        {"source": "relative"},
        {"source": "/none"},
        {"source": "s3://"},
        {"source": "/", "name": "a b"},
    ):
        assert ann.post("/datasets", json={"name": "x"} | wrong).status_code == 422, wrong
    viewer = web.user("data-eve", "viewer")
    assert viewer.post("/datasets", json={"name": "x", "source": str(tmp_path)}).status_code == 403


def test_a_model_is_traced_to_its_job_and_data(web: WebService, tmp_path: Path) -> None:
    ann = web.user("model-ann")
    (tmp_path / "x.csv").write_text("5")
    digest = ok(ann.post("/datasets", json={"name": "traced", "source": str(tmp_path)}), 201)["versions"][0][
        "digest"
    ]
    number = ran(web, ann, model=2.0)
    source = {"digest": digest, "source_type": "dataset", "source": "dataset:traced@1"}
    web.write(lambda c: record_input(c, number, "digits", **source))
    ask = {"job": number, "model": "doubler", "alias": "candidate"}
    made = ok(ann.post("/models", json=ask), 201)
    assert made["name"] == "doubler"
    (version,) = ok(ann.post("/models", json=ask), 201)["versions"]  # the same again is the same version
    assert (version["version"], version["job"]) == (1, number)
    assert set(version["aliases"]) == {"latest", "candidate"}
    detail = ok(ann.get("/models/doubler/versions/1"))
    lineage = detail["lineage"]
    assert (lineage["job"], lineage["user"], lineage["ledger"]) == (number, "model-ann", None)
    assert lineage["data"] == [
        {"name": "digits", "digest": digest, "source": "dataset:traced@1", "kind": "dataset"}
    ]
    traced = ok(ann.get("/datasets/traced/versions/1"))
    assert (traced["jobs"], traced["models"]) == ([number], ["doubler@1"])
    assert ann.delete(f"/jobs/{number}").status_code == 204
    assert ok(ann.get("/models/doubler/versions/1"))["lineage"]["job"] is None  # the rest is kept
    assert ok(ann.get("/models/doubler/versions/1"))["lineage"]["data"] == lineage["data"]
    assert ann.delete("/models/doubler/versions/1").status_code == 422  # an alias means it
    assert ann.delete("/models/doubler/aliases/candidate").status_code == 204
    assert ann.delete("/models/doubler/versions/1").status_code == 204
    assert ann.get("/models/doubler").status_code == 404
    assert ann.post("/models", json={"job": 10**6, "model": "x"}).status_code == 404
    other = ran(web, ann)
    for path in ("model.onnx", "../../../weft.db", "/etc/passwd"):
        assert ann.post("/models", json={"job": other, "model": "x", "path": path}).status_code == 422
    assert web.user("model-bob").post("/models", json={"job": other, "model": "x"}).status_code == 403


@pytest.mark.long
def test_a_model_is_served_swapped_rolled_back_and_stopped(web: WebService) -> None:
    ann, bob = web.user("serve-ann"), web.user("serve-bob")
    number = ran(web, ann, two=2.0, three=3.0)
    for path in ("two.onnx", "three.onnx"):
        ok(ann.post("/models", json={"job": number, "model": "times", "path": path}), 201)
    made = ok(ann.post("/deployments", json={"name": "live", "model": "times@1"}), 201)
    assert (made["model"], made["version"], made["state"], made["previous"]) == ("times", 1, "starting", [])

    def shown() -> Any:
        return ok(ann.get("/deployments/live"))

    def factor() -> float:
        inputs = [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 0, 0, 0]}]
        answer = ok(bob.post("/deployments/live/infer", json={"inputs": inputs}))
        return float(answer["outputs"][0]["data"][0])

    try:
        wait_until(lambda: shown()["state"] == "running", "the server", 90)
        assert factor() == 2.0
        assert (shown()["figures"]["requests"], shown()["figures"]["versions"]) == (1, [1])
        assert shown()["figures"]["p95_ms"] > 0
        assert [port["name"] for port in shown()["inputs"]] == ["x"]
        assert ok(ann.get("/models/times"))["versions"][1]["deployments"] == ["live"]
        bad = bob.post("/deployments/live/infer", json={"inputs": [{"name": "z"}]})
        assert bad.status_code == 422
        turned = ok(ann.post("/deployments", json={"name": "live", "model": "times@2"}), 201)
        assert (turned["version"], turned["previous"], turned["state"]) == (2, [1], "running")
        wait_until(lambda: factor() == 3.0, "the other version", 30)
        assert bob.post("/deployments/live/rollback").status_code == 403
        back = ok(ann.post("/deployments/live/rollback"))
        assert (back["version"], back["previous"]) == (1, [])
        wait_until(lambda: factor() == 2.0, "the version before", 30)
        assert ann.post("/deployments/live/rollback").status_code == 422
        first = web.call(web.running.state.jobs.data.deployments.find("live")).pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: shown()["state"] == "failed", "the loss to be seen", 30)
        wait_until(lambda: shown()["state"] == "running" and factor() == 2.0, "another server", 90)
        assert ok(ann.post("/deployments/live/stop"))["state"] == "stopped"
        assert bob.post("/deployments/live/infer", json={"inputs": []}).status_code == 503
    finally:
        assert ann.delete("/deployments/live").status_code == 204
    assert ann.get("/deployments/live").status_code == 404
    assert ann.post("/deployments", json={"name": "x", "model": "none@1"}).status_code == 422
