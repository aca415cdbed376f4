"""`weft webhook`, `weft models` and `weft deployment` against a real service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import sqlalchemy as sa
from testing.jobs.web import ServiceThread, WebService
from testing.serving.small_models import times
from tests.cli.jobs.conftest import Weft

from weft.jobs.store.jobs import move_job
from weft.jobs.store.tables import job


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebService]:
    with ServiceThread(tmp_path_factory.mktemp("data"), {}) as service:
        yield service


@pytest.fixture
def say(alone: Weft, web: WebService, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Calls `weft`, which must succeed; returns what it printed."""
    monkeypatch.setenv("WEFT_URL", web.url)
    monkeypatch.setenv("WEFT_TOKEN", web.running.token)

    def call(*args: str) -> str:
        code, out, err = alone(*args)
        assert code == 0, err
        return out

    return call


def test_webhooks_are_added_paused_and_removed(say: Callable[..., str], alone: Weft) -> None:
    assert "weft webhook add" in say("webhook", "list")
    made = json.loads(say("webhook", "add", "https://example.org/hook", "--on", "failed,advice", "--json"))
    number = str(made["webhook"]["id"])
    assert len(made["key"]) > 20
    assert made["webhook"]["events"] == ["failed", "advice"]
    assert "paused" in say("webhook", "pause", number)
    assert json.loads(say("webhook", "resume", number, "--json"))[0]["active"] is True
    assert "https://example.org/hook" in say("webhook", "list")
    assert "no messages yet" in say("webhook", "show", number)
    assert say("webhook", "rm", number, "--yes") == f"removed webhook {number}\n"
    assert alone("webhook", "show", number)[0] == 2
    code, _, err = alone("webhook", "add", "ftp://example.org")
    assert (code, "an http or https address" in err) == (2, True)


def test_a_job_leaves_a_model_that_is_tagged_and_deployed(
    say: Callable[..., str], alone: Weft, web: WebService
) -> None:
    number = json.loads(say("submit", "--json", "--hold", "train.py"))[0]["id"]
    web.write(
        lambda c: c.execute(sa.update(job).where(job.c.id == number).values(attempt=1, state="running"))
    )
    web.write(partial(move_job, job_id=number, after="completed"))
    outputs = web.running.state.jobs.log_folder(number, 1) / "outputs"
    outputs.mkdir(parents=True, exist_ok=True)
    times(outputs / "model.onnx", 2.0)
    assert "weft models add" in say("models", "list")
    assert say("models", "add", str(number), "doubler", "--alias", "candidate") == "doubler@1\n"
    times(outputs / "model.onnx", 3.0)
    assert say("models", "add", str(number), "doubler") == "doubler@2\n"
    assert say("models", "tag", "doubler@2", "newest") == "doubler@newest is doubler@2\n"
    assert [one["version"] for one in json.loads(say("models", "show", "doubler", "--json"))["versions"]] == [
        2,
        1,
    ]
    assert f"{number} (" in say("models", "show", "doubler@1")
    assert say("models", "untag", "doubler", "newest") == "removed doubler@newest\n"

    assert "weft deployment deploy" in say("deployment", "list")
    assert "doubler@1" in say("deployment", "deploy", "live", "doubler@candidate")
    assert json.loads(say("deployment", "deploy", "live", "doubler@2", "--json"))[0]["previous"] == [1]
    assert "doubler@1" in say("deployment", "rollback", "live")
    assert "versions before" in say("deployment", "show", "live")
    assert "stopped" in say("deployment", "undeploy", "live")
    assert say("deployment", "rm", "live", "--yes") == "removed live\n"
    assert say("models", "rm", "doubler@2", "--yes") == "removed doubler@2\n"
    code, _, err = alone("deployment", "show", "live")
    assert (code, "a deployment must be there" in err) == (2, True)
