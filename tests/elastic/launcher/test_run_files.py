"""The files that a launcher keeps, and the outcome that it writes at the end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.control import (
    LauncherLock,
    RunControl,
    is_attended,
    read_control,
    read_secret,
    settings_from_json,
    settings_to_json,
)
from weft.elastic.launcher.ending import outcome_of
from weft.elastic.launcher.run_files import RunFiles
from weft.elastic.launcher.scale import present_workers
from weft.errors import UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.control.rundir import RunDir
from weft.topology.hostlist import parse_hosts

CONTROL = RunControl(hosts=parse_hosts("a:2"), run="run")


def begun(folder: Path, warnings: list[str]) -> RunFiles:
    files = RunFiles(RunDir(folder), warn=warnings.append)
    files.begin("secret")
    files.keep_control(CONTROL)
    return files


def test_a_launcher_that_lives_is_known_by_its_lock(tmp_path: Path) -> None:
    files = begun(tmp_path, [])
    assert is_attended(tmp_path, CONTROL)
    with pytest.raises(UsageError, match="whose launcher is alive"):
        LauncherLock(tmp_path)
    files.close()
    assert not is_attended(tmp_path, CONTROL)
    lock = LauncherLock(tmp_path)
    assert is_attended(tmp_path, CONTROL)
    lock.close()
    lock.close()  # of no effect


def test_the_secret_is_for_its_user_alone(tmp_path: Path) -> None:
    begun(tmp_path, []).close()
    file = tmp_path / "elastic" / "secret"
    assert file.stat().st_mode & 0o777 == 0o600
    assert read_secret(tmp_path) == "secret"
    file.chmod(0o640)
    with pytest.raises(UsageError, match="must be readable by its own user alone"):
        read_secret(tmp_path)
    file.unlink()
    with pytest.raises(UsageError, match="must be there to adopt a run, got No such file"):
        read_secret(tmp_path)


def test_settings_come_back_but_for_the_values_of_variables(tmp_path: Path) -> None:
    config = LaunchConfig(
        command=Command("command", "true", ("x",)), hosts=parse_hosts("a:2,b"), env=(("A", "hidden"),)
    )
    elastic = ElasticConfig(least=2, most=3, checkpoint=tmp_path, hostfile=tmp_path / "hosts")
    settings = settings_to_json(config), settings_to_json(elastic)
    control = RunControl(hosts=config.hosts, config=settings[0], elastic=settings[1])
    files = RunFiles(RunDir(tmp_path), warn=print)
    (tmp_path / "elastic").mkdir()
    files.keep_control(control)
    assert "hidden" not in (tmp_path / "elastic" / "control.json").read_text()
    again, elastic_again = settings_from_json(read_control(tmp_path))
    assert elastic_again == elastic
    assert (again.command, again.hosts, again.cwd) == (config.command, config.hosts, config.cwd)
    assert again.env == (("A", ""),)


def test_what_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    warnings: list[str] = []
    files = begun(tmp_path, warnings)
    files.tell_workers({"a": 2})
    assert present_workers(tmp_path) == {"a": 2}
    (tmp_path / "elastic").rename(tmp_path / "moved")
    for count in (1, 2):
        files.tell_workers({"a": count})
    files.keep_control(CONTROL)
    assert len(warnings) == 1
    assert "cannot be written: No such file" in warnings[0]
    files.close()


def test_the_output_that_is_there_is_counted(tmp_path: Path) -> None:
    files = RunFiles(RunDir(tmp_path), warn=print)
    (tmp_path / "rank-0.log").write_text("four")
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "rank-0.jsonl").write_text("[]")
    assert files.received([0, 1], here=False) == {0: (4, 2), 1: (0, 0)}
    assert files.received([0], here=True) == {0: (4, 0)}


@pytest.mark.parametrize(
    ("over", "code", "signalled", "expected"),
    [
        ("finished", 0, None, (0, None, None, False)),
        ("paused", 75, None, (75, None, None, True)),
        ("a/0.0 failed", 3, None, (3, "a/0.0 failed", None, False)),
        ("", 0, None, (1, "no agent is left", None, False)),
        ("stopped on request", 1, signal.SIGTERM, (143, None, "SIGTERM", False)),
        ("paused", 75, signal.SIGINT, (130, None, "SIGINT", False)),
    ],
)
def test_the_outcome_says_how_a_run_ended(
    over: str, code: int, signalled: int | None, expected: tuple[int, str | None, str | None, bool]
) -> None:
    outcome = outcome_of(over, code, interrupted=signalled, seconds=1.0, run_dir="run")
    told = json.loads(json.dumps(outcome.to_json()))
    reason = told["failure"] and told["failure"]["reason"]
    assert (told["code"], reason, told["interrupted_by"], told["paused"]) == expected


def test_a_worker_that_failed_after_the_last_step_fails_the_run() -> None:
    outcome = outcome_of("finished", 0, failures=["a/0.0 failed"], seconds=1.0, run_dir="run")
    assert outcome.code == 1
    assert outcome.failure is not None
    assert outcome.failure.reason == "a/0.0 failed"
