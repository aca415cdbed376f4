"""What `weft run` makes of its arguments, and what it says of bad ones."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from weft.cli import group
from weft.cli.training.run import split_at_script
from weft.errors import WeftError

WITH_VALUE = {"-n", "--workers", "-H", "--env"}


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("-n 2 train.py -n 3", 2),
        ("-n2 train.py", 1),
        ("--workers=2 train.py", 1),
        ("--workers 2 train.py --workers 3", 2),
        ("-v train.py", 1),
        ("-vn 2 train.py", 2),
        ("-H a,b -- python x.py", 2),
        ("-m package.train", 1),
        ("--env A=1 --env B=-2 train.py", 4),
    ],
)
def test_everything_from_the_script_on_belongs_to_it(typed: str, ours: int) -> None:
    args = typed.split()
    assert split_at_script(args, WITH_VALUE) == (args[:ours], args[ours:])


def weft(*args: str) -> Result:
    return CliRunner().invoke(group, args)


def refused(*args: str) -> str:
    """What the command says when it refuses; exit code 2 and nothing started."""
    result = weft(*args)
    if isinstance(result.exception, WeftError):
        assert result.exception.exit_code == 2
        message = str(result.exception)
    else:
        assert result.exit_code == 2, result.output
        message = result.stderr
    assert not Path("weft-runs").exists()
    return message


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ("run -n 0 train.py", "must be a whole number between 1 and 65536, got '0'"),
        ("run missing.py", "the script must be a file, got 'missing.py'"),
        ("run -H a,a train.py", "each host must be named once, got a twice"),
        ("run -H a:0 train.py", "at least 1, got '0' in 'a:0'"),
        ("run --hostfile nowhere train.py", "got nowhere (No such file or directory)"),
        ("run -H a --hostfile train.py train.py", "got both -H and --hostfile"),
        ("run --rankfile nowhere train.py", "--rankfile must be a text file that can be read, got nowhere"),
        ("run --rankfile train.py train.py", "must have a line for each rank, got none"),
        ("run -n 2 --racks 3 train.py", "= 6 but 1 host x 2 workers = 2"),
        ("run --per-host lots train.py", "got 'lots'"),
        ("run --nnodes 2 train.py", "must equal the hosts that are named, got 2 for 1"),
        ("run --nnodes 1:4 train.py", "must equal the hosts that are named, got 1:4 for 1"),
        ("run --nnodes 4:1 train.py", "must be N or MIN:MAX with 1 <= MIN <= MAX, got 4:1"),
        ("run --elastic 3:2 train.py", "must be MIN:MAX with 1 <= MIN <= MAX <= 65536, got '3:2'"),
        ("run --elastic some train.py", "must be MIN:MAX with 1 <= MIN <= MAX <= 65536, got 'some'"),
        (
            "run --elastic 1:2 --detect-within 0.1 train.py",
            "a number of seconds between 0.4 and 3600, got '0.1'",
        ),
        ("run --elastic 1:2 --max-restarts 2 train.py", "got --max-restarts as well"),
        ("run --elastic 1:2 --sbatch x train.py", "got --sbatch"),
        ("run --elastic 1:2 --engine mpi train.py", "must come with the engine local or ssh, got mpi"),
        ("run --elastic 1:2 --discover false train.py", "must exit with 0, got 1"),
        ("run --checkpoint x train.py", "must come with --elastic"),
        ("scale nowhere", "RUN must be a run directory"),
        ("scale .", "must be an elastic run of ours"),
        ("ledger .", "must hold elastic/HOST.ledger.jsonl"),
        ("run --env =x train.py", "must look like K=V or K"),
        ("run --env WEFT_NOT_SET train.py", "must be set here to be carried"),
        ("run --engine ssh train.py", "must be given hosts, got none"),
        ("run --engine local -H elsewhere train.py", "this machine alone, got elsewhere"),
        ("run --engine pigeon train.py", "'pigeon' is not one of"),
        ("run", "Missing argument"),
        ("run --wrokers 2 train.py", "No such option"),
        ("topology --accelerators 0", "must be a whole number between 1 and 65536, got '0'"),
        ("rankfile -n 2 -o no/where", "--output must be a file that can be written, got no/where"),
    ],
)
def test_bad_input_is_refused_in_one_line(typed: str, complaint: str) -> None:
    assert complaint in refused(*typed.split())


def test_a_malformed_rank_file_is_refused_by_line(folder: Path) -> None:
    (folder / "ranks").write_text("rank 0=h1 slot=0:0\nrank one=h1 slot=0:1\n")
    assert "ranks:2: a line must look like" in refused("run", "--rankfile", "ranks", "train.py")


def test_torchrun_spells_with_hyphens_or_underscores() -> None:
    for typed in ("--nproc_per_node 2 --max_restarts 3", "--nproc-per-node=2 --max-restarts=3 --nnodes=1"):
        plan = json.loads(weft("run", *typed.split(), "--dry-run", "--json", "train.py", "--a_b").stdout)
        assert (plan["world_size"], plan["max_restarts"]) == (2, 3)
        assert plan["command"]["args"] == ["--a_b"]


def test_a_value_that_looks_like_an_option_is_left_as_it_is() -> None:
    args = ("run", "--mpiarg", "--mca_x", "--env", "WEFT_A_B=--c_d", "--dry-run", "--json", "train.py")
    assert json.loads(weft(*args).stdout)["env"]["WEFT_A_B"] == "--c_d"


def test_nnodes_may_come_with_a_rank_file(folder: Path) -> None:
    (folder / "ranks").write_text("rank 0=h1 slot=0:0\nrank 1=h2 slot=0:0\n")
    args = ("--nnodes", "2", "--rankfile", "ranks", "--skip-checks", "--dry-run", "train.py")
    assert weft("run", *args).exit_code == 0


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port must be free, got {port} which is in use" in refused(
            "run", "--port", str(port), "train.py"
        )


def test_dry_run_prints_the_plan_and_starts_nothing() -> None:
    result = weft("run", "-n", "2", "--dry-run", "train.py", "--lr", "1")
    assert result.exit_code == 0, result.exception
    assert "2 workers on 1 host" in result.stdout
    assert "train.py --lr 1" in result.stdout
    assert not Path("weft-runs").exists()


def test_dry_run_as_data() -> None:
    data = json.loads(weft("run", "-n", "2", "--dry-run", "--json", "--mode", "p", "train.py").stdout)
    assert data["world_size"] == 2
    assert data["env"]["WEFT_MODE"] == "p"
    assert [worker["rank"] for worker in data["hosts"][0]["workers"]] == [0, 1]
    assert data["commands"]


def test_a_plan_can_be_drawn_for_hosts_that_do_not_exist_yet() -> None:
    result = weft("run", "-H", "host1,host2", "--per-host", "4", "--dry-run", "--skip-checks", "train.py")
    assert result.exit_code == 0, result.exception
    assert "8 workers on 2 hosts, dimensions 4x2x1x1" in result.stdout


def test_topology_and_rank_file_as_data() -> None:
    data = json.loads(weft("topology", "--json").stdout)
    assert data["hosts"][0]["cores"]
    assert data["dimensions"]["text"].endswith("x1x1x1")
    ranks = json.loads(weft("rankfile", "-n", "2", "--json").stdout)
    assert [line["rank"] for line in ranks["lines"]] == [0, 1]


def test_a_written_rank_file_can_be_run(folder: Path) -> None:
    assert weft("rankfile", "-n", "2", "-H", "localhost", "-o", "ranks").exit_code == 0
    result = weft("run", "--rankfile", "ranks", "--dry-run", "--json", "train.py")
    assert json.loads(result.stdout)["world_size"] == 2
