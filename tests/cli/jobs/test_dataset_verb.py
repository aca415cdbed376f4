"""`weft dataset` against a real service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testing.jobs.web import ServiceThread, WebService
from tests.cli.jobs.conftest import Weft


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebService]:
    with ServiceThread(tmp_path_factory.mktemp("data"), {}) as service:
        yield service


@pytest.fixture
def say(alone: Weft, web: WebService, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Calls `weft dataset`, which must succeed; returns what it printed."""
    monkeypatch.setenv("WEFT_URL", web.url)
    monkeypatch.setenv("WEFT_TOKEN", web.running.token)

    def call(*args: str) -> str:
        code, out, err = alone("dataset", *args)
        assert code == 0, err
        return out

    return call


def test_data_is_registered_shown_and_forgotten(say: Callable[..., str], alone: Weft, folder: Path) -> None:
    assert "weft dataset add" in say("list")
    (folder / "digits").mkdir()
    (folder / "digits" / "x.csv").write_text("1,2,3\n")
    assert say("add", "digits", "digits").startswith("digits@1: 1 file, 6 B, digest ")
    (folder / "digits" / "y.csv").write_text("4\n")
    made = json.loads(say("add", "digits", str(folder / "digits"), "--note", "more", "--json"))
    assert [one["version"] for one in made["versions"]] == [2, 1]
    assert made["versions"][0]["source"] == str(folder / "digits")
    listed = say("list").splitlines()
    assert listed[1].split()[:3] == ["digits", "2", "2"]
    shown = say("show", "digits")
    assert "more" in shown
    assert len(shown.splitlines()) == 3
    detail = say("show", "digits@1")
    assert "x.csv" in detail
    assert "y.csv" not in detail
    assert say("rm", "digits@1", "--yes") == "removed digits@1\n"
    assert json.loads(say("rm", "digits", "--yes", "--json")) == {"removed": "digits"}
    code, _, err = alone("dataset", "show", "digits")
    assert (code, "a data set must be known" in err) == (2, True)
    code, _, err = alone("dataset", "add", "digits", "nothing-here")
    assert (code, "data must be a file or a folder" in err) == (2, True)
