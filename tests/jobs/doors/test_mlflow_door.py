from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from tests.jobs.doors.conftest import StoreService, Users, client_of

from weft.jobs.doors.mlflow.routes import mlflow_routes
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import resolve
from weft.jobs.store.jobs import find_job, submit_job
from weft.jobs.store.listing import JobFilter, list_jobs
from weft.jobs.store.metrics import history, pack_job

ROOT = "/api/2.0/mlflow"


class Door:
    """MLflow's REST as one user sees it."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def get(self, path: str, /, **query: Any) -> dict[str, Any]:
        return self.answer(self.client.get(f"{ROOT}/{path}", params=query))

    def post(self, path: str, /, **body: Any) -> dict[str, Any]:
        return self.answer(self.client.post(f"{ROOT}/{path}", json=body))

    def refused(self, path: str, number: int, code: str, /, **body: Any) -> str:
        answer = self.client.post(f"{ROOT}/{path}", json=body)
        assert (answer.status_code, answer.json()["error_code"]) == (number, code), answer.text
        return str(answer.json()["message"])

    @staticmethod
    def answer(answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def begin(self, **more: Any) -> str:
        return str(self.post("runs/create", start_time=1000, **more)["run"]["info"]["run_id"])

    def log(self, run_id: str, *points: tuple[str, float, int], **more: Any) -> None:
        metrics = [{"key": k, "value": v, "timestamp": 1000 + s, "step": s} for k, v, s in points]
        self.post("runs/log-batch", run_id=run_id, metrics=metrics, **more)

    def search(self, filter_: str = "", **more: Any) -> list[str]:
        more.setdefault("experiment_ids", ["0"])
        return [run["info"]["run_id"] for run in self.post("runs/search", filter=filter_, **more)["runs"]]


@pytest.fixture
def doors(
    service: StoreService, users: Users, serve: Callable[[list[Any]], str]
) -> Iterator[Callable[[str], Door]]:
    address = serve(mlflow_routes(service, users))
    clients: list[httpx.Client] = []

    def door(name: str) -> Door:
        clients.append(client_of(address, name))
        return Door(clients[-1])

    yield door
    for client in clients:
        client.close()


@pytest.fixture
def ann(doors: Callable[[str], Door]) -> Door:
    return doors("ann")


def submit(service: StoreService, **more: Any) -> int:
    resolved = resolve(JobSpec(run="train.py", **more))
    return service.database.submit(lambda c: submit_job(c, resolved, user_id=1, user_name="ann")).result()


def test_a_run_is_a_tracked_job(ann: Door, service: StoreService) -> None:
    run_id = ann.begin(run_name="first", tags=[{"key": "team", "value": "vision"}])
    found = service.database.ask(lambda c: find_job(c, int(run_id)))
    assert found is not None
    assert (found.kind, found.state, found.project, found.name) == ("tracked", "running", "default", "first")
    assert (found.started_ms, found.user_name) == (1000, "ann")
    ann.post("runs/update", run_id=run_id, status="FINISHED", end_time=2000)
    info = ann.get("runs/get", run_id=run_id)["run"]["info"]
    assert (info["status"], info["end_time"], info["run_uuid"]) == ("FINISHED", 2000, run_id)
    assert info["artifact_uri"] == f"mlflow-artifacts:/0/{run_id}/artifacts"
    ann.post("runs/update", run_id=run_id, status="RUNNING", run_name="again")
    info = ann.get("runs/get", run_id=run_id)["run"]["info"]
    assert (info["status"], info["run_name"], "end_time" in info) == ("RUNNING", "again", False)


def test_what_is_logged_comes_back(ann: Door, service: StoreService) -> None:
    run_id = ann.begin()
    ann.log(
        run_id, ("loss", 2.0, 0), ("loss", 1.0, 1), ("acc", 0.5, 1), params=[{"key": "lr", "value": "0.1"}]
    )
    ann.post("runs/log-metric", run_id=run_id, key="loss", value="NaN", timestamp="1003", step="3")
    ann.post("runs/log-parameter", run_id=run_id, key="depth", value="4")
    ann.post("runs/set-tag", run_id=run_id, key="note", value="a")
    ann.post("runs/set-tag", run_id=run_id, key="note", value="b")
    data = ann.get("runs/get", run_id=run_id)["run"]["data"]
    assert data["params"] == [{"key": "depth", "value": "4"}, {"key": "lr", "value": "0.1"}]
    assert {"key": "note", "value": "b"} in data["tags"]
    assert data["metrics"][1] == {"key": "loss", "value": "NaN", "timestamp": 1003, "step": 3}
    service.database.submit(lambda c: pack_job(c, int(run_id))).result()  # the same from chunks
    assert ann.get("runs/get", run_id=run_id)["run"]["data"]["metrics"] == data["metrics"]
    ann.post("runs/delete-tag", run_id=run_id, key="note")
    ann.refused("runs/delete-tag", 404, "RESOURCE_DOES_NOT_EXIST", run_id=run_id, key="note")


def test_a_batch_that_is_sent_again_counts_once(ann: Door) -> None:
    run_id = ann.begin()
    for _ in range(2):
        ann.log(run_id, ("loss", 2.0, 0), ("loss", 1.0, 1))
    ann.log(run_id, ("loss", 1.0, 2))
    found = ann.get("metrics/get-history", run_id=run_id, metric_key="loss")["metrics"]
    assert [(point["step"], point["value"]) for point in found] == [(0, 2.0), (1, 1.0), (2, 1.0)]


def test_a_history_is_read_in_pages(ann: Door) -> None:
    run_id = ann.begin()
    for first in (0, 1000):
        ann.log(run_id, *(("loss", float(step), step) for step in range(first, first + 1000)))
    seen, token = [], ""
    for _ in range(3):
        page = ann.get(
            "metrics/get-history", run_id=run_id, metric_key="loss", max_results=800, page_token=token
        )
        seen += [point["step"] for point in page["metrics"]]
        token = page.get("next_page_token", "")
    assert (seen, token) == (list(range(2000)), "")
    wrong = ann.client.get(f"{ROOT}/metrics/get-history?run_id={run_id}&metric_key=loss&page_token=zz")
    assert wrong.status_code == 400


def test_batches_have_bounds_and_are_all_or_nothing(ann: Door) -> None:
    run_id = ann.begin()
    point = {"key": "a", "value": 1.0, "timestamp": 1, "step": 0}
    bad = (400, "INVALID_PARAMETER_VALUE")
    assert "1000 metrics" in ann.refused("runs/log-batch", *bad, run_id=run_id, metrics=[point] * 1001)
    pair = {"key": "k", "value": "v"}
    assert "100 params" in ann.refused("runs/log-batch", *bad, run_id=run_id, params=[pair] * 101)
    assert "100 tags" in ann.refused("runs/log-batch", *bad, run_id=run_id, tags=[pair] * 101)
    big = [{"key": f"k{index}", "value": "x" * 6000} for index in range(100)] * 2
    ann.refused("runs/log-batch", 413, "INVALID_PARAMETER_VALUE", run_id=run_id, params=big)
    for wrong in ({"value": "high"}, {"step": 2**63}, {"key": ""}, {"key": "a\n"}, {"timestamp": "soon"}):
        ann.refused("runs/log-batch", *bad, run_id=run_id, metrics=[point | wrong])
    ann.log(run_id, params=[pair])
    other = [{"key": "k", "value": "other"}]
    ann.refused("runs/log-batch", *bad, run_id=run_id, metrics=[point], params=other)
    data = ann.get("runs/get", run_id=run_id)["run"]["data"]
    assert (data["metrics"], data["params"]) == ([], [pair])


def test_runs_are_found_by_filters_and_in_order(ann: Door) -> None:
    first, second, third = (ann.begin(run_name=name) for name in ("Alpha", "beta", "gamma"))
    for run_id, loss, model in ((first, 0.5, "cnn"), (second, 0.1, "mlp"), (third, 0.3, "CNN")):
        ann.log(run_id, ("loss", 9.0, 0), ("loss", loss, 1), params=[{"key": "model name", "value": model}])
    ann.post("runs/set-tag", run_id=second, key="good", value="yes")
    ann.post("runs/update", run_id=first, status="FINISHED")
    assert ann.search("metrics.loss < 0.4") == [third, second]
    assert ann.search("metrics.loss < 0.4 and params.`model name` = 'CNN'") == [third]
    assert ann.search("params.`model name` LIKE 'c%'") == [first]
    assert ann.search("params.`model name` ILIKE 'c%'") == [third, first]
    assert ann.search("params.`model name` != 'cnn'") == [third, second]
    assert ann.search("tags.good IS NULL") == [third, first]
    assert ann.search("tags.good = 'yes'") == [second]
    assert ann.search("attributes.status = 'FINISHED'") == [first]
    assert ann.search("run_name = 'Alpha' and user_id = 'ann'") == [first]
    assert ann.search(f"run_id IN ('{second}', '{third}')") == [third, second]
    assert ann.search(f"artifact_uri = 'mlflow-artifacts:/0/{first}/artifacts'") == [first]
    assert ann.search("", order_by=["metrics.loss ASC"]) == [second, third, first]
    assert ann.search("", order_by=["params.`model name` DESC"]) == [second, first, third]
    assert ann.search("", order_by=["tags.good ASC", "start_time DESC"])[0] == second
    ann.post("runs/log-metric", run_id=second, key="loss", value="NaN", timestamp=5, step=5)
    assert ann.search("metrics.loss < 1") == [third, first]
    for direction in ("ASC", "DESC"):  # NaN is last either way
        assert ann.search("", order_by=[f"metrics.loss {direction}"])[-1] == second
    ann.refused(
        "runs/search", 400, "INVALID_PARAMETER_VALUE", experiment_ids=["0"], filter="metrics.loss ~ 3"
    )


def test_searches_have_pages(ann: Door) -> None:
    made = [ann.begin() for _ in range(5)]
    page = ann.post("runs/search", experiment_ids=["0"], max_results=3)
    rest = ann.post("runs/search", experiment_ids=["0"], max_results=3, page_token=page["next_page_token"])
    ids = [run["info"]["run_id"] for run in page["runs"] + rest["runs"]]
    assert ids == made[::-1]
    assert "next_page_token" not in rest
    assert ann.search(experiment_ids=["17"]) == []


def test_deleted_runs_are_hidden_until_they_are_restored(ann: Door) -> None:
    run_id = ann.begin()
    ann.post("runs/delete", run_id=run_id)
    assert ann.search() == []
    assert ann.search(run_view_type="DELETED_ONLY") == ann.search(run_view_type="ALL") == [run_id]
    ann.refused("runs/log-metric", 400, "INVALID_STATE", run_id=run_id, key="a", value=1, timestamp=1)
    ann.post("runs/restore", run_id=run_id)
    assert ann.search() == [run_id]


def test_experiments_are_projects(ann: Door, doors: Callable[[str], Door], service: StoreService) -> None:
    submit(service, project="speech", name="own")
    found = ann.get("experiments/get-by-name", experiment_name="speech")["experiment"]  # of a job alone
    assert ann.search(experiment_ids=[found["experiment_id"]]) != []
    made = ann.post("experiments/create", name="My vision", tags=[{"key": "a", "value": "b"}])[
        "experiment_id"
    ]
    ann.refused("experiments/create", 400, "RESOURCE_ALREADY_EXISTS", name="My vision")
    missing = ann.client.get(f"{ROOT}/experiments/get-by-name", params={"experiment_name": "none"})
    assert (missing.status_code, missing.json()["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
    run_id = ann.begin(experiment_id=made)
    jobs = service.database.ask(lambda c: list_jobs(c, JobFilter(project="My vision"))).jobs
    assert [str(job.id) for job in jobs] == [run_id]
    names = [one["name"] for one in ann.post("experiments/search")["experiments"]]
    assert sorted(names) == ["Default", "My vision", "speech"]
    assert [
        one["name"] for one in ann.post("experiments/search", filter="name ILIKE 'my%'")["experiments"]
    ] == ["My vision"]
    assert [one["name"] for one in ann.post("experiments/search", filter="tags.a = 'b'")["experiments"]] == [
        "My vision"
    ]
    assert [one["name"] for one in ann.post("experiments/search", order_by=["name"])["experiments"]] == [
        "Default", "My vision", "speech",
    ]  # fmt: skip
    ann.refused("experiments/delete", 403, "PERMISSION_DENIED", experiment_id=made)
    root = doors("root")
    root.post("experiments/update", experiment_id=made, new_name="seeing")
    assert ann.get("experiments/get", experiment_id=made)["experiment"]["name"] == "seeing"
    assert ann.search(experiment_ids=[made]) == [run_id]
    root.post("experiments/delete", experiment_id=made)
    ann.refused("runs/create", 400, "INVALID_STATE", experiment_id=made)
    root.refused("experiments/delete", 400, "INVALID_PARAMETER_VALUE", experiment_id="0")


def test_a_client_never_ends_our_own_job(
    ann: Door, doors: Callable[[str], Door], service: StoreService
) -> None:
    job_id = submit(service)
    token = doors(f"job-{job_id}")  # as the job's workers have it
    token.log(str(job_id), ("loss", 1.0, 0))
    token.post("runs/update", run_id=str(job_id), status="FINISHED", end_time=5)
    found = service.database.ask(lambda c: find_job(c, job_id))
    assert found is not None
    assert (found.state, found.ended_ms) == ("queued", None)
    assert ann.get("runs/get", run_id=str(job_id))["run"]["info"]["status"] == "SCHEDULED"
    other = ann.begin()
    token.refused("runs/log-metric", 403, "PERMISSION_DENIED", run_id=other, key="a", value=1, timestamp=1)
    child = token.begin(run_name="trial 1")  # within its own
    token.log(child, ("loss", 2.0, 0))
    token.post("runs/update", run_id=child, status="FINISHED")
    inner = service.database.ask(lambda c: find_job(c, int(child)))
    assert inner is not None
    assert (inner.kind, inner.state, inner.parent_id) == ("tracked", "completed", job_id)


def test_others_may_look_but_not_write(ann: Door, doors: Callable[[str], Door], users: Users) -> None:
    run_id = ann.begin()
    bob, eve, nobody = doors("bob"), doors("eve"), doors("mallory")
    assert bob.search() == [run_id]
    bob.refused("runs/update", 403, "PERMISSION_DENIED", run_id=run_id, status="FAILED")
    bob.refused("runs/log-batch", 403, "PERMISSION_DENIED", run_id=run_id)
    eve.refused("runs/create", 403, "PERMISSION_DENIED")
    nobody.refused("runs/search", 401, "UNAUTHENTICATED", experiment_ids=["0"])
    users.sees_all = False
    assert bob.search() == []
    assert bob.client.get(f"{ROOT}/runs/get?run_id={run_id}").status_code == 404
    assert bob.client.get(f"/api/2.0/mlflow-artifacts/artifacts?path=0/{run_id}/artifacts").status_code == 404
    bob.refused("runs/log-batch", 404, "RESOURCE_DOES_NOT_EXIST", run_id=run_id)
    assert doors("root").search() == [run_id]


def test_inputs_are_recorded_and_found(ann: Door) -> None:
    run_id = ann.begin()
    dataset = {"name": "digits", "digest": "abc", "source_type": "local", "source": "{}", "schema": "[]"}
    context = [{"key": "mlflow.data.context", "value": "training"}]
    for _ in range(2):
        ann.post("runs/log-inputs", run_id=run_id, datasets=[{"dataset": dataset, "tags": context}])
    inputs = ann.get("runs/get", run_id=run_id)["run"]["inputs"]["dataset_inputs"]
    assert inputs == [{"dataset": dataset, "tags": context}]
    assert ann.search("datasets.name = 'digits' and dataset.context = 'training'") == [run_id]
    assert ann.search("datasets.digest = 'other'") == []


def test_artifacts_stay_in_their_folder(
    ann: Door, doors: Callable[[str], Door], service: StoreService
) -> None:
    run_id = ann.begin()
    base = f"/api/2.0/mlflow-artifacts/artifacts/0/{run_id}/artifacts"
    assert ann.client.put(f"{base}/model/weights.bin", content=b"\0" * 5000).status_code == 200
    assert ann.client.get(f"{base}/model/weights.bin").content == b"\0" * 5000
    assert ann.get("artifacts/list", run_id=run_id, path="model")["files"] == [
        {"path": "model/weights.bin", "is_dir": False, "file_size": 5000}
    ]
    listed = ann.client.get("/api/2.0/mlflow-artifacts/artifacts", params={"path": f"0/{run_id}/artifacts"})
    assert listed.json() == {"files": [{"path": "model", "is_dir": True}]}
    for wrong in (
        "/%2e%2e/x",
        "/a/%2e%2e/%2e%2e/%2e%2e/weft.db",
        "/model",
        "/model/weights.bin/x",
        "/a%00b",
        "/a%5cb",
    ):
        assert ann.client.put(base + wrong, content=b"x").status_code in (400, 404), wrong
    assert ann.client.get(f"/api/2.0/mlflow-artifacts/artifacts/0/{run_id}/%2e%2e/weft.db").status_code == 404
    folder = service.folder / "jobs" / run_id / "artifacts"
    (folder / "link").symlink_to(service.folder)
    assert ann.client.get(f"{base}/link/weft.db").status_code == 404
    assert doors("bob").client.put(f"{base}/b", content=b"x").status_code == 403
    assert ann.client.delete(f"{base}/model").status_code == 200
    assert ann.get("artifacts/list", run_id=run_id)["files"] == []
    assert sorted(path.name for path in folder.iterdir()) == ["link"]


def test_other_paths_and_words_are_refused_in_mlflows_way(ann: Door) -> None:
    assert ann.client.get("/version").text == "3.0.0"
    assert "ENDPOINT_NOT_FOUND" in ann.client.get(f"{ROOT}/registered-models/list").text
    assert ann.client.get("/api/3.0/mlflow/traces/x").status_code == 404
    answer = ann.client.post(f"{ROOT}/runs/log-batch", content=b"{")
    assert (answer.status_code, answer.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    for run_id in ("abc", "99999", "-1", "9" * 40):
        assert ann.client.get(f"{ROOT}/runs/get", params={"run_id": run_id}).status_code == 404


def test_many_clients_at_once_lose_nothing(
    ann: Door, doors: Callable[[str], Door], service: StoreService
) -> None:
    run_id = ann.begin()

    def log(first: int) -> None:
        for start in range(first, first + 5):
            ann.log(run_id, *(("loss", float(start), start * 100 + index) for index in range(100)))

    threads = [threading.Thread(target=log, args=(10 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = service.database.ask(lambda c: history(c, int(run_id), "loss"))
    assert len(set(found.steps.tolist())) == len(found) == 2000
    assert service.database.ask(lambda c: c.scalar(sa.text("select count(*) from metric_batch"))) == 20
