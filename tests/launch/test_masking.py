"""Secrets in what is printed and kept: masked by name, by where they came from, and in URLs."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from tests.launch.sites import sites

from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.control.rundir import RunDir
from weft.launch.masking import MASK, looks_secret, masked
from weft.launch.plan import LaunchPlan, make_plan
from weft.launch.plan_text import render_plan

SECRET = "hunter2-hunter2"


def plan_of(env: tuple[tuple[str, str], ...] = (), carried: dict[str, str] | None = None) -> LaunchPlan:
    config = LaunchConfig(command=Command("command", "true"), env=env)
    return make_plan(config, sites(1), engine="local", port=29400, python="python", carried=carried)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "DB_PASSWORD",
        "PGPASSWORD", "MY_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "api_key", "GITHUB_PAT", "OPENAI_APIKEY",
        "WEFT_RUN_SECRET", "SSH_PASSPHRASE",
    ],
)  # fmt: skip
def test_names_that_look_secret(name: str) -> None:
    assert looks_secret(name)
    assert masked([(name, SECRET)]) == {name: MASK}


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "TOKENIZERS_PARALLELISM",
        "OMP_NUM_THREADS",
        "NCCL_SOCKET_IFNAME",
        "MONKEY",
        "KEYBOARD",
        "WEFT_MODE",
        "TZ",
    ],
)
def test_names_that_do_not(name: str) -> None:
    assert not looks_secret(name)
    assert masked([(name, "value")]) == {name: "value"}


def test_an_empty_value_tells_that_it_is_empty() -> None:
    assert masked([("HF_TOKEN", "")]) == {"HF_TOKEN": ""}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("https://me:hunter2@example.org/simple", "https://***@example.org/simple"),
        ("postgresql://me@db/x", "postgresql://***@db/x"),
        ("https://a:b@one,https://c:d@two", "https://***@one,https://***@two"),
        ("https://example.org/a@b", "https://example.org/a@b"),
    ],
)
def test_logins_in_urls(value: str, shown: str) -> None:
    assert masked([("PIP_INDEX_URL", value)]) == {"PIP_INDEX_URL": shown}


def test_no_secret_is_printed_or_kept_and_workers_get_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(
        env=(("NAME", SECRET), ("DB_PASSWORD", SECRET), ("WEFT_MODE", "ring")),
        carried={"HF_TOKEN": SECRET, "TZ": "UTC"},
    )
    assert [dict(plan.env)[name] for name in ("NAME", "DB_PASSWORD", "HF_TOKEN")] == [SECRET] * 3
    monkeypatch.chdir(tmp_path)
    folder = RunDir.create(None, plan, datetime(2026, 1, 1)).path
    for shown in (render_plan(plan, []), json.dumps(plan.to_json()), (folder / "plan.json").read_text()):
        assert SECRET not in shown
        assert "HF_TOKEN" in shown
        assert "UTC" in shown
        assert "ring" in shown  # settings of our own are no secrets


@pytest.mark.parametrize("chosen", [None, Path("mine"), Path("a/b")])
def test_a_run_directory_is_for_its_user_alone(
    chosen: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunDir.create(chosen, plan_of(), datetime(2026, 1, 1)).path
    assert folder.stat().st_mode & 0o777 == 0o700
