"""A service that the commands of a test talk to, and a folder in which they are typed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testing.jobs.fake_service import TOKEN, FakeService

from weft import cli

Weft = Callable[..., tuple[int, str, str]]


@pytest.fixture
def service() -> Iterator[FakeService]:
    made = FakeService()
    made.start()
    yield made
    made.end()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script and a specification, with no login and no service of this machine."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "train.py").write_text("print('trained')\n")
    (tmp_path / "here" / "job.yaml").write_text("run: train.py --epochs 3\nworkers: 2:8\nenv: {A: 1}\n")
    monkeypatch.chdir(tmp_path / "here")
    for name in ("WEFT_URL", "WEFT_TOKEN", "WEFT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "here"


@pytest.fixture
def alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> Weft:
    """Calls `weft` where no service is known; returns exit code, output and errors."""

    def call(*args: str) -> tuple[int, str, str]:
        code = cli.call(args)
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


@pytest.fixture
def weft(alone: Weft, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> Weft:
    """Calls `weft` of somebody who has logged in."""
    monkeypatch.setenv("WEFT_URL", service.url)
    monkeypatch.setenv("WEFT_TOKEN", TOKEN)
    return alone
