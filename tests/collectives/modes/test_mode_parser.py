"""What `--mode`, `--wire` and DDL_OPTIONS may hold, and what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from weft.cli import group
from weft.collectives.choices import DDL_LETTERS, ModeChoice, parse_mode, parse_replace, parse_wire
from weft.collectives.ddl_options import DdlOptions, parse_ddl_options
from weft.collectives.settings import settings_from_env
from weft.errors import TopologyError, UsageError


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("p", ModeChoice(("explore",))),
        ("explore", ModeChoice(("explore",))),
        ("b:4x8x1x1", ModeChoice(("nccl",), (4, 8, 1, 1))),
        ("shm,ring", ModeChoice(("shm", "ring"))),
        (" shm , ring ", ModeChoice(("shm", "ring"))),
        ("shm,ring:2x4", ModeChoice(("shm", "ring"), (2, 4))),
        ("br:4x8", ModeChoice(("nccl", "ring"), (4, 8))),
        ("m", ModeChoice(("mpi",))),
        ("mpi", ModeChoice(("mpi",))),
        ("c,r", ModeChoice(("shm", "ring"))),
        ("r:16", ModeChoice(("ring",), (16,))),
    ],
)
def test_modes_are_read(text: str, choice: ModeChoice) -> None:
    assert parse_mode(text) == choice
    assert parse_mode(str(choice)) == choice


@pytest.mark.parametrize("letter", DDL_LETTERS)
def test_each_of_ddls_letters_is_a_mode(letter: str) -> None:
    assert parse_mode(f"{letter}:2x2x1x1").modes == (DDL_LETTERS[letter],)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "",
            "a mode must be one of shm, nccl, gloo, mpi, ring, explore or DDL's letters b n r m c p, got ''",
        ),
        ("carrier", "got 'carrier'"),
        ("shm,pigeon", "got 'pigeon' in 'shm,pigeon'"),
        ("shm,", "got '' in 'shm,'"),
        ("b:", "must be numbers from 1 on, joined by x, got ''"),
        ("b:4x", "got '4x'"),
        ("b:4x0", "got '4x0'"),
        ("b:4x-2", "got '4x-2'"),
        ("b:4x8x1x1x1", "at most 4 dimensions (accelerators, hosts, racks, aisles), got 5"),
        ("bnr:4x8", "at most one name for each dimension, got 3 for 2"),
        ("shm,ring,ring,ring,ring", "got 5 for 4"),
    ],
)
def test_other_modes_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_mode(text)
    assert complaint in str(caught.value)


def test_the_last_mode_serves_everything_further_out() -> None:
    choice = parse_mode("shm,ring")
    assert [choice.mode_of(dimension) for dimension in range(4)] == ["shm", "ring", "ring", "ring"]


def test_dimensions_that_do_not_hold_the_workers_show_the_arithmetic() -> None:
    parse_mode("b:4x8x1x1").check(32)
    parse_mode("b").check(7)
    arithmetic = "got 4 accelerators x 8 hosts x 1 rack x 1 aisle = 32 but there are 16 workers"
    with pytest.raises(TopologyError, match=arithmetic):
        parse_mode("b:4x8x1x1").check(16)


def test_wires_are_read() -> None:
    assert parse_wire("int8") == "int8"
    assert settings_from_env({}).wire == settings_from_env({"WEFT_WIRE": ""}).wire == "fp32"
    assert settings_from_env({"WEFT_WIRE": "bf16"}).wire == "bf16"
    with pytest.raises(UsageError, match="a wire must be one of fp32, bf16, fp16, int8, got 'fp8'"):
        parse_wire("fp8")


def test_ddl_options_are_read() -> None:
    text = "-mode b:4x8x1x1 -dump_iter 10 -dev_sync 1 --rebind_iter 100 -dbg_level 2"
    assert parse_ddl_options(text) == DdlOptions(
        mode=ModeChoice(("nccl",), (4, 8, 1, 1)), dump_iter=10, dev_sync=1, rebind_iter=100, dbg_level=2
    )
    assert parse_ddl_options("") == DdlOptions()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-speed 9", "an option must be one of -mode, -dump_iter, -dev_sync, -rebind_iter, -dbg_level, got '-speed'"),
        ("mode p", "got 'mode'"),
        ("-mode", "-mode must be followed by its value"),
        ("-mode z", "got 'z'"),
        ("-dev_sync 3", "-dev_sync must be between 0 and 2, got '3'"),
        ("-dump_iter often", "-dump_iter must be a number from 0 on, got 'often'"),
    ],
)  # fmt: skip
def test_other_ddl_options_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_ddl_options(text)
    assert complaint in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ("--mode pigeon", "got 'pigeon'"),
        ("--mode b:3x2x1x1", "3 accelerators x 2 hosts x 1 rack x 1 aisle = 6 but there are 2 workers"),
        ("--wire fp8", "got 'fp8'"),
        ("--replace mpi", "must be one of gloo, got 'mpi'"),
    ],
)
def test_the_launcher_refuses_before_anything_starts(folder: Path, typed: str, complaint: str) -> None:
    result = CliRunner().invoke(group, ["run", "-n", "2", *typed.split(), "train.py"])
    assert isinstance(result.exception, UsageError)
    assert complaint in str(result.exception)
    assert result.exception.exit_code == 2
    assert not (folder / "weft-runs").exists()


def test_the_launcher_passes_them_on(folder: Path) -> None:
    typed = "run -n 2 --mode b:2x1x1x1 --wire bf16 --replace gloo --dry-run --json train.py"
    plan = json.loads(CliRunner().invoke(group, typed.split()).stdout)
    assert (plan["env"]["WEFT_MODE"], plan["env"]["WEFT_WIRE"]) == ("b:2x1x1x1", "bf16")
    assert plan["env"]["WEFT_REPLACE"] == "gloo"


def test_backends_to_replace() -> None:
    assert parse_replace("") == parse_replace(" ") == frozenset()
    assert parse_replace(" Gloo ") == {"gloo"}
