"""Studies over HTTP: begun, listed, shown, asked for something; nothing starts, as the only host is drained."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from testing.cluster.waiting import wait_until
from testing.jobs.web import WebService

from weft.cli.tuning.remote import submit_study
from weft.errors import UsageError
from weft.jobs.client.client import JobsClient
from weft.jobs.spec.read import SpecError
from weft.jobs.studies.store import append_events
from weft.tune.study.config import StudyError, convert_config
from weft.tune.study.events import AnyEvent, TrialCurve, TrialReported
from weft.tune.study.state import SearchState

CONFIG: dict[str, Any] = {
    "name": "digits",
    "space": {"lr": "log:1e-5:1e-1", "o": ["adam", "sgd"]},
    "minimize": "loss",
    "run": "train.py --lr {lr} --o {o}",
    "search": "random",
    "budget": {"trials": 2},
    "parallel": 2,
}


def begin(client: httpx.Client, **more: Any) -> int:
    answer = client.post("/studies", json={"config": {**CONFIG, **more}})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["study"]["id"])


def trials(client: httpx.Client, number: int, **query: Any) -> dict[str, Any]:
    return dict(client.get(f"/studies/{number}/trials", params=query).json())


def test_a_study_is_begun_shown_and_stopped(web: WebService) -> None:
    ann = web.user("ann-tunes")
    number = begin(ann)
    wait_until(lambda: len(trials(ann, number)["trials"]) == 2, "its first trials", 60)
    wait_until(lambda: all(t["job_id"] for t in trials(ann, number)["trials"]), "jobs of trials", 60)
    job = ann.get(f"/jobs/{trials(ann, number)['trials'][0]['job_id']}").json()
    assert job["tags"]["study"] == str(number)
    assert job["state"] == "queued"
    detail = ann.get(f"/studies/{number}").json()
    assert detail["study"]["counts"] == {"running": 2}
    assert detail["config"]["space"] == CONFIG["space"]
    assert detail["mine"]
    since = trials(ann, number)["events"]
    assert trials(ann, number, since=since)["trials"] == []
    events = ann.get(f"/studies/{number}/events").json()
    assert [one["is"] for one in events["events"]][:3] == ["begun", "added", "started"]
    assert ann.get(f"/studies/{number}/export").text.startswith("number,state,step,values.loss,params.lr")
    assert number in [one["id"] for one in ann.get("/studies").json()["studies"]]
    assert ann.delete(f"/studies/{number}").status_code == 409
    assert ann.post(f"/studies/{number}/resume").status_code == 409
    answer = ann.post(f"/studies/{number}/trials", json={"params": {"lr": 1.0, "o": "adam"}})
    assert (answer.status_code, "lr must be in" in answer.text) == (422, True)
    assert (
        ann.post(f"/studies/{number}/trials", json={"params": {"lr": 0.01, "o": "adam"}}).status_code == 202
    )
    wait_until(lambda: len(trials(ann, number)["trials"]) == 3, "the added trial", 60)
    assert ann.patch(f"/studies/{number}", json={"budget": {"trials": 9}}).status_code == 202
    one = f"/studies/{number}/trials/0"
    refused = ann.post(f"{one}/promote", json={})
    assert (refused.status_code, "trial 0 must be paused or waiting" in refused.text) == (422, True), (
        refused.text
    )
    assert ann.post(f"{one}/pause").status_code == 202
    wait_until(lambda: trials(ann, number)["trials"][0]["held"], "the trial that is held", 60)
    assert ann.post(f"{one}/promote", json={"until": None}).status_code == 202
    wait_until(lambda: not trials(ann, number)["trials"][0]["held"], "its promotion", 60)
    assert ann.post(f"{one}/stop").status_code == 202
    wait_until(lambda: trials(ann, number)["trials"][0]["state"] == "stopped", "its end", 60)
    assert "must not be over" in ann.post(f"{one}/stop").text
    assert "got 99 where there are" in ann.post(f"/studies/{number}/trials/99/stop").text
    assert ann.get(f"/studies/{number}/interactions").json() == {"interactions": []}
    kept = ann.post(f"/studies/{number}/model", json={"model": "net"})
    assert (kept.status_code, "must have a best trial" in kept.text) == (409, True), kept.text
    bob = web.user("bob-tunes")
    assert bob.post(f"/studies/{number}/stop").status_code == 403
    assert ann.post(f"/studies/{number}/stop").status_code == 202
    wait_until(lambda: ann.get(f"/studies/{number}").json()["study"]["state"] == "stopped", "its end", 60)
    wait_until(
        lambda: all(
            ann.get(f"/jobs/{t['job_id']}").json()["state"] == "stopped"
            for t in trials(ann, number)["trials"]
            if t["job_id"]
        ),
        "the ends of its jobs",
        60,
    )
    copied = bob.post(
        f"/studies/{number}/clone", json={"changes": {"name": "copy", "space": {"lr": "log:1e-4:1"}}}
    )
    assert copied.status_code == 201, copied.text
    bob.post(f"/studies/{copied.json()['study']['id']}/stop")
    assert ann.delete(f"/studies/{number}").status_code == 204
    assert ann.get(f"/studies/{number}").status_code == 404


def test_bad_studies_are_refused_in_a_sentence(web: WebService) -> None:
    ann = web.user("ann-errs")
    for body, must in (
        ({}, "must have config or yaml"),
        ({"config": {**CONFIG, "space": {}}}, "at least one parameter"),
        ({"config": {**CONFIG, "minimize": []}}, "minimize or maximize a metric"),
        ({"config": {**CONFIG, "schedule": "asah", "resource": {"max": 9}}}, "did you mean asha?"),
        ({"config": {**CONFIG, "run": "train.py"}}, "must pass every parameter on"),
        ({"config": {**CONFIG, "job": {"workers": "a"}}}, "workers must"),
        ({"yaml": "a: ["}, "must be YAML"),
        ({"config": {**CONFIG, "wrong": 1}}, "its fields must be among"),
    ):
        answer = ann.post("/studies", json=body)
        assert answer.status_code == 422, answer.text
        assert must in answer.json()["error"]["text"], answer.text
    dry = ann.post("/studies", json={"config": CONFIG, "dry_run": True}).json()
    assert dry["study"] is None
    assert len(dry["trials"]) == 2
    assert "tpe" in ann.get("/algorithms").json()["searches"]
    assert ann.get("/studies/999999").status_code == 404


def test_the_client_begins_a_study_with_its_code_and_follows_its_state(
    web: WebService, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('hello')")
    with JobsClient(web.url, web.running.token) as client:
        with pytest.raises(SpecError, match="which is not there"):
            client.studies.begin({**CONFIG, "run": "other.py {lr} {o}"}, tmp_path)
        number = client.studies.begin(CONFIG, tmp_path).id
        assert number is not None
        state, seen = SearchState(), 0
        for _ in client.events([f"study:{number}"]):
            seen = client.studies.update(number, state, seen)
            if len(state.trials) == 2:
                break
        assert client.studies.show(number).config["space"] == CONFIG["space"]
        assert [one.number for one in client.studies.trials(number, curves=True)] == [0, 1]
        client.studies.act(number, "stop")
        wait_until(lambda: client.studies.show(number).study.state == "stopped", "its end", 60)


def test_the_same_command_goes_on_with_a_study_that_is_not_over(
    web: WebService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEFT_TOKEN", web.running.token)
    (tmp_path / "train.py").write_text("print('hello')")

    def tune(warm_start: str | None = None, **more: Any) -> int:
        config = convert_config({**CONFIG, "name": "again", **more})
        assert (
            submit_study(config, tmp_path, web.url, warm_start=warm_start, as_json=True, follows=False) == 0
        )
        return int(json.loads(capsys.readouterr().out)["id"])

    with JobsClient(web.url, web.running.token) as client:
        first = tune()
        assert tune() == first
        assert tune(budget={"trials": 3}) == first
        wait_until(lambda: client.studies.show(first).config["budget"]["trials"] == 3, "the new budget", 60)
        with pytest.raises(StudyError, match="must keep the settings it began with, got another space"):
            tune(budget={"trials": 3}, space={"lr": "log:1e-4:1e-1", "o": ["adam", "sgd"]})
        client.studies.act(first, "pause")
        wait_until(lambda: client.studies.show(first).study.state == "paused", "its pause", 60)
        assert tune(budget={"trials": 3}) == first
        wait_until(lambda: client.studies.show(first).study.state == "running", "that it runs", 60)
        client.studies.act(first, "stop")
        wait_until(lambda: client.studies.show(first).study.state == "stopped", "its end", 60)
        second = tune(budget={"trials": 3})  # the last one is over, and nothing more is asked of it
        assert second > first
        third = tune(str(second), budget={"trials": 3})
        with pytest.raises(UsageError, match="here or in the service, got nobody"):
            tune("nobody")
        for number in (second, third):
            client.studies.act(number, "stop")
            wait_until(lambda n=number: client.studies.show(n).study.state == "stopped", "its end", 60)  # type: ignore[misc]


def test_events_without_reports_go_on_after_those_that_were_left_out(web: WebService) -> None:
    ann = web.user("ann-looks")
    number = begin(ann, name="looked-at")
    wait_until(lambda: len(trials(ann, number)["trials"]) == 2, "its first trials", 60)
    assert ann.post(f"/studies/{number}/stop").status_code == 202
    wait_until(lambda: ann.get(f"/studies/{number}").json()["study"]["state"] == "stopped", "its end", 60)
    before = ann.get(f"/studies/{number}/events").json()
    told: list[AnyEvent] = [
        TrialReported(trial=0, step=1, values={"loss": 0.5}),
        TrialCurve(trial=0, steps=(2, 3), values=(0.4, 0.3)),
    ]
    asyncio.run_coroutine_threadsafe(
        web.database.write(lambda c: append_events(c, number, before["next"], told)), web.loop
    ).result(60)
    all_ = ann.get(f"/studies/{number}/events").json()
    assert [one["is"] for one in all_["events"][-2:]] == ["reported", "curve"]
    assert ann.get(f"/studies/{number}/events", params={"reports": False}).json() == {
        "events": before["events"],
        "next": all_["next"],
    }
