"""MLflow's own client against the door, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.doors.conftest import StoreService, Users

from weft.jobs.doors.mlflow.routes import mlflow_routes
from weft.jobs.store.jobs import find_job
from weft.jobs.store.metrics import summaries

pytestmark = [pytest.mark.clients, pytest.mark.long]

SCRIPT = """
import json, math, pathlib, sys, warnings
warnings.filterwarnings("ignore")
import mlflow
from mlflow import MlflowClient

mlflow.set_experiment("vision")
with mlflow.start_run(run_name="first", tags={"team": "blue"}) as run:
    mlflow.log_params({"lr": 0.1, "model": "cnn"})
    for step in range(5):
        mlflow.log_metrics({"loss": 1.0 / (step + 1), "acc": step / 5}, step=step)
    mlflow.log_metric("odd", float("nan"))
    mlflow.set_tag("note", "hello")
    pathlib.Path("weights.txt").write_text("w" * 100)
    mlflow.log_artifact("weights.txt", artifact_path="model")
    mlflow.log_dict({"a": 1}, "config.json")
    mlflow.log_text("words", "notes/a.txt")
try:
    with mlflow.start_run(run_name="second"):
        mlflow.log_metric("loss", 3.0)
        raise RuntimeError("boom")
except RuntimeError:
    pass
client = MlflowClient()
again = client.get_run(run.info.run_id)
history = client.get_metric_history(run.info.run_id, "loss")
files = sorted(file.path for file in client.list_artifacts(run.info.run_id))
local = client.download_artifacts(run.info.run_id, "model/weights.txt", ".")
found = mlflow.search_runs(filter_string="metrics.loss < 1 and params.model = 'cnn'", output_format="list")
failed = mlflow.search_runs(filter_string="attributes.status = 'FAILED'", output_format="list")
ordered = mlflow.search_runs(order_by=["metrics.loss DESC"], output_format="list")
try:
    client.log_param(run.info.run_id, "lr", "9")
    refused = ""
except mlflow.MlflowException as error:
    refused = error.error_code
with mlflow.start_run(run_id=run.info.run_id):
    mlflow.log_metric("late", 1.0)
client.delete_tag(run.info.run_id, "note")
print(json.dumps({
    "run_id": run.info.run_id,
    "status": again.info.status,
    "params": again.data.params,
    "tags": {k: v for k, v in again.data.tags.items() if not k.startswith("mlflow.")},
    "loss": again.data.metrics["loss"],
    "nan": math.isnan(again.data.metrics["odd"]),
    "history": [[point.step, point.value] for point in history],
    "files": files,
    "weights": pathlib.Path(local).read_text(),
    "found": [one.info.run_name for one in found],
    "failed": [one.info.run_name for one in failed],
    "ordered": [one.info.run_name for one in ordered],
    "refused": refused,
    "experiments": sorted(one.name for one in mlflow.search_experiments()),
}))
"""


def run_client(address: str, folder: Path, script: str, **variables: str) -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    env = kept | {"MLFLOW_TRACKING_URI": address, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", **variables}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_fluent_client_works_unchanged(
    service: StoreService, users: Users, serve: Callable[[list[Any]], str], tmp_path: Path
) -> None:
    address = serve(mlflow_routes(service, users))
    (tmp_path / "client").mkdir()
    seen = run_client(address, tmp_path / "client", SCRIPT, MLFLOW_TRACKING_TOKEN="ann")
    run_id = seen.pop("run_id")
    assert seen == {
        "status": "FINISHED",
        "params": {"lr": "0.1", "model": "cnn"},
        "tags": {"team": "blue", "note": "hello"},
        "loss": 0.2,
        "nan": True,
        "history": [[0, 1.0], [1, 0.5], [2, 1.0 / 3], [3, 0.25], [4, 0.2]],
        "files": ["config.json", "model", "notes"],
        "weights": "w" * 100,
        "found": ["first"],
        "failed": ["second"],
        "ordered": ["second", "first"],
        "refused": "INVALID_PARAMETER_VALUE",
        "experiments": ["Default", "vision"],
    }
    found = service.database.ask(lambda c: find_job(c, int(run_id)))
    assert found is not None
    assert (found.kind, found.state, found.project, "note" in found.tags) == (
        "tracked",
        "completed",
        "vision",
        False,
    )
    metrics = {one.name: one.points for one in service.database.ask(lambda c: summaries(c, int(run_id)))}
    assert metrics == {"acc": 5, "late": 1, "loss": 5, "odd": 1}


IN_A_JOB = """
import json, mlflow
with mlflow.start_run() as run:
    mlflow.log_metric("loss", 0.5, step=3)
print(json.dumps(run.info.run_id))
"""


def test_a_script_in_a_job_logs_to_the_job(
    service: StoreService, users: Users, serve: Callable[[list[Any]], str], tmp_path: Path
) -> None:
    from tests.jobs.doors.test_mlflow_door import submit

    job_id = submit(service, name="train")
    address = serve(mlflow_routes(service, users))
    variables = {"MLFLOW_TRACKING_TOKEN": f"job-{job_id}", "MLFLOW_RUN_ID": str(job_id)}
    assert run_client(address, tmp_path, IN_A_JOB, **variables) == str(job_id)
    found = service.database.ask(lambda c: find_job(c, job_id))
    assert found is not None
    assert (found.state, found.name) == ("queued", "train")
    assert [one.last for one in service.database.ask(lambda c: summaries(c, job_id))] == [0.5]


def test_a_password_is_as_good_as_a_token(
    service: StoreService, users: Users, serve: Callable[[list[Any]], str], tmp_path: Path
) -> None:
    address = serve(mlflow_routes(service, users))
    variables = {"MLFLOW_TRACKING_USERNAME": "bob", "MLFLOW_TRACKING_PASSWORD": "bob"}
    run_id = run_client(address, tmp_path, IN_A_JOB, **variables)
    found = service.database.ask(lambda c: find_job(c, int(run_id)))
    assert found is not None
    assert found.user_name == "bob"


REGISTRY = """
import json, mlflow
from mlflow.exceptions import MlflowException
client = mlflow.MlflowClient()
with mlflow.start_run() as run:
    mlflow.log_text("weights", "model/weights.txt")
client.create_registered_model("digits", tags={"team": "blue"}, description="of digits")
first = client.create_model_version("digits", f"{run.info.artifact_uri}/model", run.info.run_id)
second = client.create_model_version("digits", f"{run.info.artifact_uri}/model", run.info.run_id)
client.set_registered_model_alias("digits", "champion", first.version)
client.set_model_version_tag("digits", second.version, "checked", "yes")
client.transition_model_version_stage("digits", second.version, "Production", archive_existing_versions=True)
client.update_registered_model("digits", "of handwritten digits")
seen = {
    "versions": [first.version, second.version],
    "champion": client.get_model_version_by_alias("digits", "champion").version,
    "staged": [one.version for one in client.get_latest_versions("digits", ["Production"])],
    "description": client.get_registered_model("digits").description,
    "found": [one.name for one in client.search_registered_models("name LIKE 'dig%'")],
    "of_run": sorted(one.version for one in client.search_model_versions(f"run_id = '{run.info.run_id}'")),
    "tagged": [one.version for one in client.search_model_versions("tags.checked = 'yes'")],
    "weights": open(mlflow.artifacts.download_artifacts("models:/digits@champion") + "/weights.txt").read(),
}
client.delete_registered_model_alias("digits", "champion")
client.delete_model_version("digits", first.version)
client.rename_registered_model("digits", "figures")
try:
    client.get_registered_model("digits")
except MlflowException as error:
    seen["gone"] = error.error_code
client.delete_registered_model("figures")
seen["left"] = [one.name for one in client.search_registered_models()]
print(json.dumps(seen))
"""


SEARCHES = """
import json, mlflow
client = mlflow.MlflowClient()
for name in ("cats and dogs", "digits"):
    client.create_registered_model(name, tags={"team": "blue"} if name == "digits" else {})
for _ in range(3):
    client.create_model_version("digits", "/somewhere")
names = lambda wanted, **more: [one.name for one in client.search_registered_models(wanted, **more)]
versions = lambda wanted, **more: [int(one.version) for one in client.search_model_versions(wanted, **more)]
print(json.dumps({
    "and_in_quotes": names("name = 'cats and dogs' AND name LIKE '%dogs'"),
    "tag_is_another": names("tags.team != 'red'"),
    "order": names(None, order_by=["creation_timestamp DESC", "name ASC"]),
    "no_prompts": names("tags.`mlflow.prompt.is_prompt` = 'false'"),
    "newer": versions("name = 'digits' AND version_number > 1"),
    "quoted_number": versions("version_number = '3'"),
    "oldest": versions(None, order_by=["version_number ASC"], max_results=1),
    "page": versions("name = 'digits'", max_results=2),
}))
"""


def test_registered_models_are_searched_as_mlflow_searches_them(
    service: StoreService, users: Users, serve: Callable[[list[Any]], str], tmp_path: Path
) -> None:
    seen = run_client(serve(mlflow_routes(service, users)), tmp_path, SEARCHES, MLFLOW_TRACKING_TOKEN="ann")
    assert seen == {
        "and_in_quotes": ["cats and dogs"],
        "tag_is_another": ["digits"],
        "order": ["digits", "cats and dogs"],
        "no_prompts": ["cats and dogs", "digits"],
        "newer": [3, 2],
        "quoted_number": [3],
        "oldest": [1],
        "page": [3, 2],
    }


def test_models_are_registered_staged_and_found(
    service: StoreService, users: Users, serve: Callable[[list[Any]], str], tmp_path: Path
) -> None:
    address = serve(mlflow_routes(service, users))
    seen = run_client(address, tmp_path, REGISTRY, MLFLOW_TRACKING_TOKEN="ann")
    assert seen == {
        "versions": ["1", "2"],
        "champion": "1",
        "staged": ["2"],
        "description": "of handwritten digits",
        "found": ["digits"],
        "of_run": ["1", "2"],
        "tagged": ["2"],
        "weights": "weights",
        "gone": "RESOURCE_DOES_NOT_EXIST",
        "left": [],
    }
