"""Searches of WMLA's models: what they take over from a model's job, and the REST from a model to a better one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from testing.cluster.waiting import wait_until
from testing.serving.small_models import times
from tests.jobs.doors.conftest import Users, client_of, life_of
from tests.jobs.doors.test_wmla_door import ROOT, tar_of
from tests.jobs.doors.test_wmla_search import LR, described, study_of

from weft.jobs.doors.uploads import add_archive
from weft.jobs.doors.wmla.arguments import ArgumentsError, parse_arguments, to_spec
from weft.jobs.doors.wmla.hypersearch import study_of_job
from weft.jobs.doors.wmla.model_routes import model_search_routes
from weft.jobs.doors.wmla.model_searches import (
    changes_of,
    job_like,
    model_of,
    parse_model_request,
    script_of,
)
from weft.jobs.doors.wmla.search_routes import search_routes
from weft.jobs.service.service import JobService
from weft.jobs.spec.model import JobSpec, QueueSpec
from weft.jobs.spec.read import resolve
from weft.jobs.store.data_tables import model_origin
from weft.jobs.store.jobs import submit_job
from weft.jobs.store.snapshots import add_snapshot
from weft.jobs.studies import store
from weft.tune.study.state import SearchState


@pytest.mark.parametrize(
    ("run", "script"),
    [
        (("train.py", "--lr", "0.1"), ("train.py", "--lr", "0.1")),
        ("python net/train.py --name 'a b'", ("net/train.py", "--name", "a b")),
        (
            to_spec(parse_arguments("--exec-start PyTorch --model-main a.py -e 3"), main="n/a.py").run,
            ("n/a.py", "-e", "3"),
        ),
        (study_of(described()).run, ("net/main.py", "--epochs", "3")),
    ],
)
def test_the_script_of_a_job_is_found(run: Any, script: tuple[str, ...]) -> None:
    assert script_of(JobSpec(run=run)) == script


@pytest.mark.parametrize("run", [("-m", "net.train"), ("/bin/true",), "bash go.sh", ("/tmp/train.py",)])
def test_a_job_without_a_script_of_its_code_is_refused(run: Any) -> None:
    with pytest.raises(ArgumentsError, match="runs a script of its code"):
        script_of(JobSpec(run=run))


def test_a_model_search_is_like_the_models_job() -> None:
    spec = JobSpec(
        run=("train.py", "-v"), workers="1:4", env={"A": "1", "WEFT_PARAMS": "{}"}, tags={"trial": "3"}
    )
    given = parse_model_request(
        json.dumps({k: v for k, v in described().items() if k != "modelSpec"}).encode()
    )
    config = study_of_job(given, job_like(spec, "net@3"), script=script_of(spec), name="one")
    assert config.run is not None
    assert config.run[2:] == ("lr={lr}", "train.py", "-v")
    assert (config.job["workers"], config.job["env"]) == ("1:4", {"A": "1"})
    assert config.job["tags"] == {"door": "wmla", "wmla-model": "net@3"}
    assert model_of(config) == "net"
    assert model_of(study_of(described())) == ""
    with pytest.raises(ArgumentsError, match="JSON"):
        parse_model_request(b"{")


def test_an_update_changes_bounds_alone() -> None:
    config = study_of(described())
    assert changes_of(b'{"maxJobNum": "9", "maxParalleJobNum": 3}', config) == {
        "budget": {"trials": 9},
        "parallel": 3,
    }
    assert changes_of(b'{"algoDef": {"maxRunTime": 90}}', config) == {"budget": {"trials": 4, "time": "90m"}}
    for text in (b"{}", b"[1]", b'{"algoDef": 3}', b'{"maxJobNum": "many"}', b"\xff"):
        with pytest.raises(ArgumentsError, match="must"):
            changes_of(text, config)


SCRIPT = b"""
import json, os, shutil, sys
lr = json.load(open("config.json"))["lr"]
out = os.environ["RESULT_DIR"]
shutil.copy(os.path.join(os.path.dirname(__file__), "start.onnx"), os.path.join(out, sys.argv[1]))
json.dump([{"steps": 1, "loss": lr}], open(os.path.join(out, "val_dict_list.json"), "w"))
"""


def put_model(jobs: JobService, model: bytes, user_id: int) -> None:
    """Put into the store a model `net` that came from a job of ann's, which is held."""
    snapshot = add_archive(jobs.blobs, io.BytesIO(tar_of({"net/main.py": SCRIPT, "net/start.onnx": model})))
    digest = jobs.database.submit(lambda c: add_snapshot(c, snapshot)).result()
    spec = JobSpec(run=("net/main.py", "best.onnx"), queue=QueueSpec(hold=True))
    job_id = jobs.database.submit(
        lambda c: submit_job(c, resolve(spec), user_id=user_id, user_name="ann", snapshot=digest)
    ).result()
    row = {"model": "net", "version": 1, "job_id": job_id, "path": "best.onnx", "sha256": "0" * 64,
           "lineage": "{}", "user_id": user_id, "created_ms": 0}  # fmt: skip
    jobs.database.submit(lambda c: c.execute(sa.insert(model_origin), row)).result()


def trials_of(jobs: JobService, name: str) -> int | None:
    """Return how many trials a study may have by now."""
    found = next(one for one in jobs.database.ask(store.list_studies) if one.name == name)
    events = jobs.database.ask(lambda c: store.events_of(c, found.id))
    return SearchState.of(events).config.budget.trials


def test_a_model_is_searched_and_the_best_trial_is_a_new_model(
    jobs: JobService, users: Users, serve: Callable[..., str], tmp_path: Path
) -> None:
    times(tmp_path / "start.onnx", 2.0)
    put_model(jobs, (tmp_path / "start.onnx").read_bytes(), user_id=1)
    routes = [*search_routes(ROOT, jobs, users), *model_search_routes(ROOT, jobs, users)]
    address = serve(routes, life_of(jobs))
    every = f"{ROOT}/models/net/hypersearch"
    data = described(maxJobNum=1, parameters=[LR]) | {"hpoName": "better"}
    del data["modelSpec"]
    with client_of(address, "ann") as client, client_of(address, "bob") as bob:
        assert client.post(f"{ROOT}/models/other/hypersearch", json=data).status_code == 404
        form = {"data": {"data": json.dumps(data)}, "files": {"file": b"x"}}
        assert "own code" in client.post(every, **form).text  # type: ignore[arg-type]
        made = client.post(every, json=data)
        assert (made.status_code, made.json()) == (200, "better"), made.text
        assert client.post(every, json=data).status_code == 409

        def state() -> dict[str, Any]:
            found: dict[str, Any] = client.get(f"{every}/better").json()
            return found

        wait_until(lambda: state()["state"] not in ("SUBMITTED", "RUNNING"), "the end", 120)
        assert (state()["state"], state()["best"]["state"]) == ("FINISHED", "FINISHED"), state()
        assert [one["hpoName"] for one in client.get(every).json()] == ["better"]
        assert client.get(f"{ROOT}/models/other/hypersearch").json() == []
        assert client.get(f"{ROOT}/models/other/hypersearch/better").status_code == 404
        assert bob.put(f"{every}/better/create/net-2").status_code == 403
        assert client.put(f"{every}/better/create/net-2", params={"path": "not.onnx"}).status_code == 400
        new = client.put(f"{every}/better/create/net-2")
        assert (new.status_code, new.json()) == (200, "net-2"), new.text
        assert jobs.data.models.find("net-2").version == 1
        assert client.put(f"{every}/better/create/net-2").status_code == 409
        # The new model came from a trial, and can be searched as well.
        longer = described(maxJobNum=500) | {"hpoName": "third"}
        del longer["modelSpec"]
        third = f"{ROOT}/models/net-2/hypersearch/third"
        again = client.post(f"{ROOT}/models/net-2/hypersearch", json=longer)
        assert (again.status_code, again.json()) == (200, "third"), again.text
        assert client.put(f"{third}/update", json={"maxJobNum": 600}).status_code == 200
        wait_until(lambda: trials_of(jobs, "third") == 600, "the new bound", 60)
        assert client.put(f"{third}/stop").status_code == 200
        assert bob.put(f"{every}/better/update", json={"maxJobNum": 2}).status_code == 403
        assert client.put(f"{every}/better/update", json={}).status_code == 400
        assert client.put(f"{every}/better/stop").status_code == 409
        assert client.delete(f"{every}/better").json() == "better"
        assert client.get(every).json() == []
