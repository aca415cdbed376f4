"""WMLA's searches: descriptions as studies, scripts with config.json and val_dict_list.json, and the REST."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testing.cluster.waiting import wait_until
from tests.jobs.doors.conftest import Users, client_of, life_of
from tests.jobs.doors.test_wmla_door import ROOT, tar_of

from weft.jobs.doors.wmla import trial
from weft.jobs.doors.wmla.arguments import ArgumentsError, parse_arguments
from weft.jobs.doors.wmla.hypersearch import parse_request, to_study
from weft.jobs.doors.wmla.search_routes import search_routes
from weft.jobs.service.service import JobService
from weft.tune.study.config import StudyConfig, check_config

ARGS = "--exec-start PyTorch --model-main main.py --model-dir net --epochs 3"
LR = {"name": "lr", "type": "Range", "dataType": "DOUBLE", "minDbVal": -3, "maxDbVal": 0, "power": 10}


def described(algorithm: str = "Random", *, parameters: Any = (LR,), **more: Any) -> dict[str, Any]:
    algo = {"algorithm": algorithm, "objectiveMetric": "loss", "objective": "minimize", "maxJobNum": 4}
    found: dict[str, Any] = {"modelSpec": {"sigName": "s", "args": ARGS}, "algoDef": algo | more}
    return found | ({"hyperParams": list(parameters)} if parameters else {})


def study_of(data: dict[str, Any]) -> StudyConfig:
    given = parse_request(json.dumps(data).encode())
    return to_study(given, parse_arguments(given.model.args), main="net/main.py", name="one")


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        (LR, "log:0.001:1.0"),
        (
            {"name": "n", "type": "range", "dataType": "int", "minIntVal": "1", "maxIntVal": 9, "step": "2"},
            "int:1:9:2",
        ),
        (
            {"name": "d", "type": "Range", "dataType": "double", "minDbVal": 0, "maxDbVal": 0.5},
            "float:0.0:0.5",
        ),
        (
            {"name": "w", "type": "Range", "dataType": "int", "minIntVal": 4, "maxIntVal": 6, "power": 2},
            [16, 32, 64],
        ),
        (
            {"name": "o", "type": "Discrete", "dataType": "str", "discreateStrVal": ["sgd", "adam"]},
            ["sgd", "adam"],
        ),
        ({"name": "b", "type": "Discrete", "dataType": "int", "discreteIntVal": [8, "16"]}, [8, 16]),
    ],
)
def test_a_parameter_becomes_a_domain(parameter: dict[str, Any], expected: Any) -> None:
    config = study_of(described(parameters=[parameter]))
    assert config.space == {parameter["name"]: expected}
    check_config(config)


def test_algorithms_become_searches_and_schedules() -> None:
    random = study_of(
        described(maxRunTime=90, maxParalleJobNum="2", algoParams=[{"name": "RandomSeed", "value": "7"}])
    )
    assert (random.search, random.seed, random.parallel) == ("random", 7, 2)
    assert (random.budget.trials, random.budget.time_s) == (4, 5400)
    assert random.run == ("-m", trial.__name__, "lr={lr}", "net/main.py", "--epochs", "3")
    tpe = study_of(described("tpe", maxJobNum=-1, algoParams=[{"name": "WarmUp", "value": 5}]))
    assert tpe.search == {"name": "tpe", "startup": 5, "candidates": 24}
    assert tpe.budget.trials == 1_000_000
    assert study_of(described("Bayesian")).search == {"name": "gp", "startup": 10, "noiseless": True}
    given = [{"name": "ResourceName", "value": "epochs"}, {"name": "ResourceValue", "value": "27"}]
    band = study_of(described("Hyperband", algoParams=given, objective="maximize"))
    assert band.resource is not None
    assert (band.resource.name, band.resource.max, band.maximize) == ("epochs", 27, "loss")
    assert isinstance(band.run, tuple)
    assert "epochs={epochs}" in band.run


def test_experiments_are_tried_as_they_are() -> None:
    points = [
        {"id": k, "hyperParams": [{"name": "lr", "dataType": "double", "fixedVal": value}]}
        for k, value in enumerate(["0.1", 0.2])
    ]
    config = study_of(
        described("ExperimentGridSearch", parameters=(), maxJobNum=-1) | {"experiments": points}
    )
    assert config.points == ({"lr": 0.1}, {"lr": 0.2})
    assert (config.search, config.budget.trials) == ("list", 2)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (described("Annealing"), "one of Random"),
        (described(objective="less"), "minimize"),
        (described(parameters=()), "hyperParams alone"),
        (described("ExperimentGridSearch"), "experiments alone"),
        (described("Hyperband"), "ResourceName"),
        (described(parameters=[LR, LR]), "once"),
        (described(parameters=[LR | {"power": 1}]), "power above 1"),
        (described(parameters=[LR | {"maxDbVal": "x"}]), "a number"),
        (described(parameters=[LR | {"maxDbVal": None}]), "the ends"),
        (described(parameters=[LR | {"dataType": "str"}]), "Discrete"),
        (described(parameters=[LR | {"name": "a b"}]), "name"),
        ({"hyperParams": []}, "modelSpec"),
    ],
)
def test_bad_descriptions_are_refused_with_a_reason(data: dict[str, Any], reason: str) -> None:
    with pytest.raises(ArgumentsError, match=reason):
        study_of(data)


def test_points_of_a_script_are_read_with_their_steps(tmp_path: Path) -> None:
    path = tmp_path / "val_dict_list.json"
    assert trial.new_points(path, 0) == []
    path.write_text("[{")
    assert trial.new_points(path, 0) == []
    path.write_text(json.dumps([{"steps": 2, "loss": 1}, {"loss": 0.5, "note": "x"}, 3]))
    assert trial.new_points(path, 0) == [(2, {"loss": 1.0}), (2, {"loss": 0.5})]
    assert trial.new_points(path, 1) == [(2, {"loss": 0.5})]


def test_config_json_has_typed_parameters_and_the_resource() -> None:
    given, command = trial.split_words(["lr=0.1", "epochs=9", "main.py", "a=b"])
    assert command == ["main.py", "a=b"]
    environ = {"WEFT_PARAMS": '{"lr": 0.1}', "WEFT_UNTIL": "9"}
    assert trial.script_parameters(given, environ) == {"lr": 0.1, "epochs": 9}


SCRIPT = b"""
import json, os, sys
lr = json.load(open("config.json"))["lr"]
old = os.path.join(os.environ["DLI_RESULT_FS"], os.environ["USER"], "batchworkdir", os.environ["DLI_EXECID"])
out = [{"steps": step, "loss": lr / step} for step in (1, 2)]
json.dump(out, open(os.path.join(old, "val_dict_list.json"), "w"))
"""


def test_a_search_from_its_description_to_its_best_experiment(
    jobs: JobService, users: Users, serve: Callable[..., str]
) -> None:
    address = serve(search_routes(ROOT, jobs, users), life_of(jobs))
    data = described("ExperimentGridSearch", parameters=()) | {
        "hpoName": "cnn",
        "experiments": [
            {"id": k, "hyperParams": [{"name": "lr", "dataType": "double", "fixedVal": value}]}
            for k, value in enumerate([0.4, 0.2])
        ],
    }
    send = {"data": {"data": json.dumps(data)}, "files": {"file": tar_of({"net/main.py": SCRIPT})}}
    with client_of(address, "ann") as client:
        made = client.post(f"{ROOT}/hypersearch", **send)  # type: ignore[arg-type]
        assert (made.status_code, made.json()) == (200, "cnn"), made.text
        assert client.post(f"{ROOT}/hypersearch", **send).status_code == 409  # type: ignore[arg-type]

        def state() -> dict[str, Any]:
            found: dict[str, Any] = client.get(f"{ROOT}/hypersearch/cnn").json()
            return found

        wait_until(lambda: state()["state"] not in ("SUBMITTED", "RUNNING"), "the end", 120)
        found = state()
        assert (found["state"], found["progress"], found["creator"]) == ("FINISHED", 100, "ann"), found
        assert found["best"]["metricVal"] == pytest.approx(0.1)
        assert found["best"]["hyperParams"][0] == {
            "name": "lr", "dataType": "double", "fixedVal": "0.2", "userDefined": False,
        }  # fmt: skip
        loss = next(one for one in found["experiments"][0]["metrics"] if one["name"] == "loss")
        assert (loss["min"], loss["max"], loss["latest"]) == pytest.approx((0.2, 0.4, 0.2))
        assert [one["hpoName"] for one in client.get(f"{ROOT}/hypersearch").json()] == ["cnn"]
        assert client.put(f"{ROOT}/hypersearch/cnn").status_code == 409
        with client_of(address, "bob") as bob:
            assert bob.delete(f"{ROOT}/hypersearch/cnn").status_code == 403
        assert len(client.get(f"{ROOT}/hypersearch/algorithm").json()) == 5
        assert client.delete(f"{ROOT}/hypersearch").json() == ["cnn"]
        assert client.get(f"{ROOT}/hypersearch/cnn").status_code == 404


PLUGIN = b"""
from plugins.core.base_plugin_opt import BasePluginOptimizer
class PluginOptimizer(BasePluginOptimizer):
    def search(self, number_samples, last_exp_results):
        low = self.hyper_parameters[0]['minDbVal']
        return [{'lr': low + (len(last_exp_results) if last_exp_results else 0)}]
"""


def test_an_administrator_installs_an_algorithm_and_others_use_it(
    jobs: JobService, users: Users, serve: Callable[..., str]
) -> None:
    address = serve(search_routes(ROOT, jobs, users), life_of(jobs))
    install, every = f"{ROOT}/hypersearch/algorithm/install", f"{ROOT}/hypersearch/algorithm"
    form = {"data": {"data": "{'name': 'stairs', 'logLevel': 'INFO'}"}}
    with client_of(address, "ann") as ann, client_of(address, "root") as root:
        files = {"file": tar_of({"stairs/optimizer.py": PLUGIN})}
        assert ann.post(install, **form, files=files).status_code == 403  # type: ignore[arg-type]
        empty = root.post(install, **form, files={"file": tar_of({"a/b.py": b"x = 1"})})  # type: ignore[arg-type]
        assert "one file with class PluginOptimizer, got 0" in empty.text
        made = root.post(install, **form, files=files)  # type: ignore[arg-type]
        assert (made.status_code, made.json()) == (200, "stairs"), made.text
        assert root.post(install, **form, files=files).status_code == 409  # type: ignore[arg-type]
        assert [one["name"] for one in ann.get(every, params={"type": "PLUGIN"}).json()] == ["stairs"]
        assert ann.get(f"{every}/stairs").json()["type"] == "PLUGIN"
        data = described("stairs", maxJobNum=2) | {"hpoName": "plugged"}
        send = {"data": {"data": json.dumps(data)}, "files": {"file": tar_of({"net/main.py": SCRIPT})}}
        begun = ann.post(f"{ROOT}/hypersearch", **send)  # type: ignore[arg-type]
        assert begun.status_code == 200, begun.text

        def state() -> dict[str, Any]:
            found: dict[str, Any] = ann.get(f"{ROOT}/hypersearch/plugged").json()
            return found

        wait_until(lambda: state()["state"] not in ("SUBMITTED", "RUNNING"), "the end", 120)
        found = state()
        assert found["state"] == "FINISHED", found
        values = [float(one["hyperParams"][0]["fixedVal"]) for one in found["experiments"]]
        assert values == pytest.approx([0.001, 0.01])
        assert ann.delete(f"{every}/stairs").status_code == 403
        assert root.delete(f"{every}/stairs").json() == "stairs"
        assert root.delete(f"{every}/Tpe").status_code == 409
        assert ann.get(f"{every}/stairs").status_code == 404
