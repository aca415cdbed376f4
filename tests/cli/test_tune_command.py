"""`weft tune`, `weft studies` and `weft study`, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.cli import call
from weft.cli.tuning import remote
from weft.cli.tuning.found import service_number
from weft.cli.tuning.remote import told
from weft.cli.tuning.table import LiveTable
from weft.errors import UsageError
from weft.tune.study.config import convert_config
from weft.tune.study.core import StudyCore
from weft.tune.study.home import studies_folder
from weft.tune.study.journal import FILE

TRAIN = """
import json, sys
x, kind = float(sys.argv[1]), sys.argv[2]
for step in (1, 2, 3):
    print(json.dumps({"step": step, "loss": x * x + (kind == "a") + 1 / step}))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WEFT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return "train.py"


def tune(*words: str) -> int:
    space = ("--space", "x=float:-2:2", "--space", "k=a,b", "--minimize", "loss", "--search", "random")
    return call(["tune", "--local", *space, *words, "train.py", "{x}", "{k}"])


def said(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_a_study_from_its_command_to_its_export(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune("--trials", "4", "--name", "first", "--json") == 0
    made = json.loads(said(capsys)[0])
    assert made["study"]["state"] == "completed"
    assert [len(trial["curve"]) for trial in made["trials"]] == [3] * 4
    assert call(["studies", "--local", "--json"]) == 0
    assert [one["name"] for one in json.loads(said(capsys)[0])] == ["first"]
    assert call(["studies", "--local"]) == 0
    assert "first" in said(capsys)[0]
    assert call(["study", "show", "first"]) == 0
    assert said(capsys)[0].startswith("study first is completed")
    assert call(["study", "best", "first", "-o", "best.yaml"]) == 0
    assert Path("best.yaml").read_text().startswith("x: ")
    assert call(["study", "extend", "first", "--trials", "6"]) == 0
    assert call(["study", "add", "first", "x=0.0,k=b"]) == 0
    assert call(["study", "resume", "first"]) == 0
    assert "in trial 4: x=0 k=b" in said(capsys)[0]
    assert call(["study", "clone", "first", "second", "--set", "space.x=float:-1:1", "--warm"]) == 0
    assert call(["study", "show", "second", "--json"]) == 0
    found = json.loads(said(capsys)[0])
    assert found["study"]["state"] == "paused"
    assert {trial["source"] for trial in found["trials"]} == {"first"}
    for name in ("a.csv", "a.json", "a.parquet"):
        assert call(["study", "export", "first", "-o", name]) == 0
    assert len(Path("a.csv").read_text().splitlines()) == 7
    assert call(["study", "stop", "second", "--json"]) == 0
    assert json.loads(said(capsys)[0])["state"] == "stopped"
    assert call(["study", "remove", "second", "--yes"]) == 0
    assert call(["study", "show", "second"]) == 2
    assert "a study must exist, got second" in said(capsys)[1]


def test_one_trial_is_stopped_promoted_and_its_model_kept(
    script: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--trials", "9", "--name", "halved", "--schedule", "asha", "--resource", "epochs:1:9")
    assert tune(*words, "--json") == 0
    found = json.loads(said(capsys)[0])
    assert call(["study", "promote", "halved", "99"]) == 2
    assert "a trial must exist, got 99 where there are 0 to 8" in said(capsys)[1]
    over = next(t["number"] for t in found["trials"] if t["state"] in ("completed", "stopped"))
    assert call(["study", "promote", "halved", str(over)]) == 2
    assert f"trial {over} must be paused or waiting to be promoted" in said(capsys)[1]
    assert call(["study", "stop", "halved", "--trial", str(over)]) == 2
    assert call(["study", "add", "halved", "x=0.0,k=b"]) == 0
    assert call(["study", "pause", "halved", "--trial", "9"]) == 0
    assert call(["study", "promote", "halved", "9", "--until", "3"]) == 0
    assert call(["study", "stop", "halved", "--trial", "9"]) == 0
    assert call(["study", "show", "halved", "--json"]) == 0
    added = next(t for t in json.loads(said(capsys)[0])["trials"] if t["number"] == 9)
    assert (added["state"], added["held"], added["until"]) == ("stopped", False, 3)
    assert call(["study", "model", "halved", "net", "--store", str(tmp_path / "store")]) == 2
    assert "must have saved one ONNX file to have a model" in said(capsys)[1]


def test_a_study_file_that_was_edited_is_refused(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "run: train.py {x} b\nspace: {x: 'float:-2:2'}\nminimize: loss\nsearch: random\nbudget: {trials: 2}\n"
    )
    Path("study.yaml").write_text(text)
    assert call(["tune", "--local", "study.yaml"]) == 0
    Path("study.yaml").write_text(text.replace("trials: 2", "trials: 3"))  # more trials are no other study
    assert call(["tune", "--local", "study.yaml"]) == 0
    assert "3 trials" in said(capsys)[0]
    Path("study.yaml").write_text(text.replace("-2:2", "-2:9"))
    assert call(["tune", "--local", "study.yaml"]) == 2
    assert "must keep the settings it began with, got another space" in said(capsys)[1]


@pytest.mark.parametrize(
    ("words", "must"),
    [
        (["tune"], "must have a study.yaml or a command"),
        (["tune", "train.py"], "at least one parameter"),
        (["tune", "--space", "x=1,2", "train.py", "{x}"], "minimize or maximize a metric"),
        (["tune", "--space", "x=1,2", "--minimize", "l", "train.py"], "must pass every parameter on, got no {x}"),
        (["tune", "--space", "x=1,2", "--minimize", "l", "train.py", "{x}"], "must have a budget"),
        (["tune", "--space", "x=log:0:1", "--minimize", "l", "train.py", "{x}"], "0 < LOW < HIGH"),
        (["tune", "--space", "x", "--minimize", "l", "train.py"], "--space must be of the form NAME=DOMAIN"),
        (["tune", "none.yaml"], "No such file"),
        (["tune", "--schedule", "asah", "--resource", "e:1:9", "--trials", "1", "--space", "x=1,2",
          "--minimize", "l", "t.py", "{x}"], "did you mean asha?"),
        (["tune", "--resource", "e", "t.py"], "--resource must be NAME:MAX or NAME:MIN:MAX"),
        (["study", "show", "nothing"], "weft tune makes one"),
        (["study", "extend", "nothing"], "a study must exist"),
    ],
)  # fmt: skip
def test_bad_command_lines_get_a_sentence(
    script: str, capsys: pytest.CaptureFixture[str], words: list[str], must: str
) -> None:
    assert call(words) == 2
    error = said(capsys)[1]
    assert must in error
    assert "Traceback" not in error


def test_a_script_that_is_not_there_makes_no_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEFT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert tune("--trials", "4") == 2
    assert "got train.py, which is not there" in said(capsys)[1]
    assert call(["studies", "--local", "--json"]) == 0
    assert json.loads(said(capsys)[0]) == []


def test_what_is_said_of_a_request() -> None:
    assert told("stop", "1", "study 1 (a)") == "study 1 (a): stop was asked for"
    assert told("trials/3/promote", "1", "study 1 (a)") == "study 1 (a): promote of trial 3 was asked for"
    assert told("trials", "1", "study 1 (a)").startswith("study 1 (a): a trial was added")
    assert told("clone", "1", "study 2 (b)") == "study 2 (b) is begun as a clone of study 1"


def test_a_dry_run_prints_the_first_points(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune("--trials", "3", "--dry-run", "--json", "--point", "x=1.5,k=a") == 0
    plan: Any = json.loads(said(capsys)[0])
    assert plan["trials"][0]["params"] == {"x": 1.5, "k": "a"}
    assert plan["commands"][0] == ["train.py", "1.5", "a"]
    assert not Path("home").exists()


def test_ends_are_told_once_and_again_of_trials_that_went_on(capsys: pytest.CaptureFixture[str]) -> None:
    config = convert_config(
        {"space": {"x": "float:0:1"}, "minimize": "loss", "search": "random", "parallel": 2}
    )
    core = StudyCore.begin(config)
    core.actions(2)
    core.completed(0, [1.0])
    table = LiveTable(core.state)
    table()
    assert said(capsys)[1] == ""
    core.stop_all()
    table()
    assert "trial 1 is stopped" in said(capsys)[1]
    core.move("running")
    table()
    core.actions(2)
    core.completed(2, [1.0])
    core.completed(1, [1.0])
    table()
    table()
    assert [line.split()[2] for line in said(capsys)[1].splitlines()] == ["2", "1"]


def test_a_name_is_a_study_of_this_machine_and_else_the_newest_of_the_service(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = [
        SimpleNamespace(name="far", id=9),
        SimpleNamespace(name="far", id=4),
        SimpleNamespace(name="near", id=2),
    ]
    monkeypatch.setattr(remote, "service_studies", lambda url: views)
    monkeypatch.setattr(remote, "runs_in_service", lambda wanted, url: True)
    (studies_folder() / "near").mkdir(parents=True)
    (studies_folder() / "near" / FILE).write_text("{}\n")
    assert service_number("7", None) == "7"
    assert service_number("near", None) is None
    assert service_number("near", "http://there") == "2"
    assert service_number("far", None) == "9"
    with pytest.raises(UsageError, match="here or in the service, got nobody"):
        service_number("nobody", None)
