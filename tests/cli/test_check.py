"""What `weft check` makes of its arguments, and of what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from weft.cli import group
from weft.errors import HostListError, UsageError
from weft.launch import preflight
from weft.launch.config import LaunchConfig
from weft.launch.preflight.facts import CheckFinding
from weft.launch.preflight.report import PreflightReport


class Asked:
    """Stands in for the preflight: notes what was asked and gives a report that is made up."""

    def __init__(self) -> None:
        self.config: LaunchConfig | None = None
        self.measure = ""
        self.findings: tuple[CheckFinding, ...] = (CheckFinding(name="ssh", hosts=("a",), got="answers"),)

    def __call__(self, config: LaunchConfig, *, measure: str, progress: Any) -> PreflightReport:
        self.config, self.measure = config, measure
        return PreflightReport(hosts=config.host_names, findings=self.findings)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    fake = Asked()
    monkeypatch.setattr(preflight, "check", fake)
    return fake


def weft(*args: str) -> Result:
    return CliRunner().invoke(group, ["check", *args])


def test_options_reach_the_request(asked: Asked) -> None:
    options = ["--interface", "eth1", "--port", "29400", "--python", "/env/bin/python", "--allow-uneven"]
    assert weft("-H", "a,b", *options).exit_code == 0
    assert asked.config is not None
    assert asked.config.host_names == ("a", "b")
    assert (asked.config.interface, asked.config.port, asked.config.python) == (
        "eth1",
        29400,
        "/env/bin/python",
    )
    assert asked.config.allow_uneven
    assert asked.measure == "always"


def test_links_may_be_left_out(asked: Asked) -> None:
    assert weft("-H", "a,b", "--no-links").exit_code == 0
    assert asked.measure == "never"


def test_a_hostfile(asked: Asked, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=2\nb slots=2\n")
    assert weft("--hostfile", str(tmp_path / "hosts")).exit_code == 0
    assert asked.config is not None
    assert asked.config.host_names == ("a", "b")


def test_a_failure_is_exit_code_2(asked: Asked) -> None:
    asked.findings += (CheckFinding(name="torch", hosts=("b",), status="fail", got="9.9.9", fix="mend it"),)
    done = weft("-H", "a,b")
    assert done.exit_code == 2
    assert "✗ torch  b  9.9.9" in done.output
    assert "✗ torch b: mend it" in done.output


def test_a_warning_is_exit_code_0(asked: Asked) -> None:
    asked.findings += (CheckFinding(name="clock", hosts=("b",), status="warn", got="off", fix="mend it"),)
    done = weft("-H", "a,b")
    assert done.exit_code == 0
    assert "! clock  b  off" in done.output


def test_findings_as_data(asked: Asked) -> None:
    data = json.loads(weft("-H", "a,b", "--json").output)
    assert data["ok"] is True
    assert data["findings"] == [{"name": "ssh", "hosts": ["a"], "status": "ok", "got": "answers", "fix": ""}]


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ([], UsageError, "weft check must be given hosts, got none"),
        (["-H", "a", "--hostfile", __file__], HostListError, "hosts must be named once"),
        (
            ["-H", "a,b", "--port", "0"],
            UsageError,
            "--port must be a whole number between 1 and 65535, got '0'",
        ),
    ],
)
def test_bad_requests(args: list[str], error: type[Exception], message: str) -> None:
    done = weft(*args)
    assert isinstance(done.exception, error)
    assert message in str(done.exception)
