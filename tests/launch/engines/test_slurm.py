"""The slurm engine: its lines and scripts, and real runs on a real Slurm."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from testing.cluster.slurm import Slurm
from testing.cluster.waiting import PATIENCE_S, wait_until
from testing.shell import WEFT, Shell
from tests.launch.engines.test_ssh import SLEEPER, STUBBORN
from tests.launch.sites import sites

from weft.cli.training.run import command as run_command
from weft.cli.training.run import make_config
from weft.errors import UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.engines.batch import batch_script, hosts_wanted, run_line
from weft.launch.engines.slurm import Allocation, needs_hostfile, srun_line
from weft.launch.plan import LaunchPlan, make_plan
from weft.topology.hostlist import HostEntry, parse_hosts
from weft.topology.rankfile import parse_rankfile

JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "h[1-3]",
    "SLURM_JOB_CPUS_PER_NODE": "4(x3)",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
    "SLURM_NTASKS": "5",
}
ADOPT = "python3 -P -m weft.launch.engines.adopt -- ./train"


def plan_for(hosts: int = 2, **options: Any) -> LaunchPlan:
    config = LaunchConfig(command=Command("command", "./train"), **options)
    return make_plan(config, sites(hosts), engine="slurm", port=29500, python="python3")


def allocation(hosts: int = 2, cpus: int = 4) -> Allocation:
    return Allocation(tuple(f"h{n + 1}" for n in range(hosts)), None, (cpus,) * hosts)


def test_the_allocation_is_read_from_the_environment() -> None:
    found = Allocation.from_env(JOB)
    assert found == Allocation(("h1", "h2", "h3"), (2, 2, 1), (4, 4, 4))
    unasked = {name: value for name, value in JOB.items() if name != "SLURM_NTASKS"}
    assert Allocation.from_env(unasked).tasks is None
    assert found.narrowed(()) == ("h1", "h2", "h3")
    assert found.narrowed(("h2",)) == ("h2",)
    with pytest.raises(UsageError, match="must belong to the allocation, got h9"):
        found.narrowed(("h9", "h1"))


def test_outside_an_allocation_it_says_what_to_do(shell: Shell) -> None:
    with pytest.raises(UsageError, match="salloc"):
        Allocation.from_env({})
    done = shell.weft("run", "--engine", "slurm", shell.script(""))
    assert done.returncode == 2
    assert "--sbatch FILE" in done.stderr


@pytest.mark.parametrize(("order", "dealt"), [("host", "block"), ("round-robin", "cyclic")])
def test_the_line_of_an_even_step(order: str, dealt: str) -> None:
    plan = plan_for(per_host=2, rank_order=order)
    assert not needs_hostfile(plan, allocation())
    assert shlex.join(srun_line(plan, allocation(), None)) == (
        "srun --overlap --cpu-bind=none --export=ALL --job-name=train --nodes=2 --ntasks=4 --nodelist=h1,h2 "
        f"--ntasks-per-node=2 --distribution={dealt} --label --kill-on-bad-exit=1 {ADOPT}"
    )


def test_more_workers_than_processors_share_them() -> None:
    assert "--overcommit" in srun_line(plan_for(per_host=9), allocation(), None)


def test_ranks_that_slurm_would_deal_otherwise_are_listed() -> None:
    uneven = plan_for(workers=3, allow_uneven=True)
    assert needs_hostfile(uneven, allocation())
    line = srun_line(uneven, allocation(), "HOSTFILE")
    assert "--distribution=arbitrary" in line
    assert not [word for word in line if word.startswith("--ntasks-per-node")]
    even = plan_for(per_host=1)
    turned = replace(even, hosts=even.hosts[::-1])
    assert needs_hostfile(turned, allocation())
    ranks = parse_rankfile("rank 0=h2 slot=0:0\nrank 1=h1 slot=0:0\n")
    assert needs_hostfile(plan_for(rankfile=ranks), allocation())


def test_what_slurm_granted_counts_unless_asked_otherwise() -> None:
    granted = [replace(site, workers=3) for site in sites(2)]

    def world(**options: Any) -> int:
        config = LaunchConfig(command=Command("command", "true"), **options)
        return make_plan(config, granted, engine="slurm", port=1, python="python3").world_size

    assert world() == 6
    assert world(workers=4) == 4
    assert world(hosts=parse_hosts("h1:1,h2:1")) == 2


def request(folder: Path, **options: Any) -> LaunchConfig:
    return LaunchConfig(
        **{"command": Command("command", "./train", ("--name", "it's $x")), "cwd": folder, **options}
    )


def test_the_batch_script(tmp_path: Path) -> None:
    text = batch_script(request(tmp_path, per_host=4, hosts_per_rack=3, env=(("A", "b c"),)))
    assert text.splitlines()[:7] == [
        "#!/bin/bash",
        "#SBATCH --job-name=train",
        "#SBATCH --nodes=3",
        "#SBATCH --ntasks-per-node=4",
        f"#SBATCH --chdir={tmp_path}",
        "#SBATCH --output=train-%j.out",
        "#SBATCH --signal=B:TERM@60",
    ]
    last = shlex.split(text.splitlines()[-1])
    assert last[:5] == ["exec", WEFT, "run", "--engine", "slurm"]
    assert last[-4:] == ["--", "./train", "--name", "it's $x"]
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({"hosts": parse_hosts("a:2,b:2")}, ["nodes=2", "nodelist=a,b", "ntasks-per-node=2"]),
        ({"workers": 6}, ["nodes=1", "ntasks=6"]),
        ({"per_host": "gpu"}, ["nodes=1"]),
        ({"accelerators": 4, "racks": 2, "hosts_per_rack": 2}, ["nodes=4", "ntasks-per-node=4"]),
    ],
)
def test_what_is_asked_of_slurm(tmp_path: Path, options: dict[str, Any], lines: list[str]) -> None:
    text = batch_script(request(tmp_path, **options))
    asked = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert asked[1 : 1 + len(lines)] == lines
    assert asked[1 + len(lines)].startswith("chdir=")


def test_the_line_in_the_script_asks_for_the_same(tmp_path: Path) -> None:
    asked = request(
        tmp_path, workers=4, mode="ring", tcp=True, rank_order="round-robin", allow_uneven=True, max_restarts=2,
        port=1234, interface="eth1", pin=False, grace_s=9.5, lost_after_s=7.0, python="/opt/python3",
        run_dir=Path("runs/1"), verbose=True, env=(("A", "1"), ("B", "x=y z")), engine="slurm",
    )  # fmt: skip
    words = run_line(asked)
    context = run_command.make_context("run", words[2:])
    options = {k: v for k, v in context.params.items() if k not in ("dry_run", "as_json", "sbatch")}
    assert replace(make_config(True, **options), cwd=tmp_path) == asked


def test_a_rank_file_makes_no_batch_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be given no rank file"):
        batch_script(request(tmp_path, rankfile=parse_rankfile("rank 0=h1 slot=0:0\n")))
    assert hosts_wanted(request(tmp_path, hosts=(HostEntry("a"),))) == 1


def test_the_script_is_written_or_printed(shell: Shell) -> None:
    script = shell.script("")
    printed = shell.weft("run", "--sbatch", "-", "--per-host", "2", script, "--lr", "1")
    assert printed.stdout.splitlines()[-1].endswith("weft run --engine slurm --per-host 2 train.py --lr 1")
    written = shell.weft("run", "--sbatch", "job.sh", "--per-host", "2", script, "--lr", "1")
    assert (shell.folder / "job.sh").read_text() == printed.stdout
    assert "sbatch job.sh" in written.stderr
    refused = shell.weft("run", "--sbatch", "no/such/folder", script)
    assert refused.returncode == 2


# On a real Slurm.

WHO = """
import json, os
names = ["RANK", "LOCAL_RANK", "WEFT_HOST", "SLURM_PROCID", "MASTER_ADDR"]
print(json.dumps([os.environ[name] for name in names] + [os.uname().nodename]))
"""


@pytest.fixture
def in_job(slurm: Slurm, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `weft` on a script in an allocation."""

    def run(text: str, salloc: str, *args: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "train.py").write_text(text)
        argv = ["salloc", "--quiet", *salloc.split(), WEFT, "run", *args, "train.py"]
        return slurm.run(argv, cwd=tmp_path, check=False)

    return run


InJob = Callable[..., subprocess.CompletedProcess[str]]


def left(slurm: Slurm) -> list[str]:
    """What still runs on the nodes."""
    return [" ".join(line) for node in slurm.nodes for _, line in slurm.cluster.processes(node)]


def said(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line[4:]) for line in sorted(done.stdout.splitlines())]


@pytest.mark.smoke
def test_the_tasks_of_the_allocation_become_workers(in_job: InJob, slurm: Slurm) -> None:
    address = slurm.cluster.host("h1").address
    assert said(in_job(WHO, "-N2 --ntasks-per-node=2 -w h1,h2")) == [
        [str(rank), str(rank % 2), f"h{rank // 2 + 1}", str(rank), address, f"h{rank // 2 + 1}"]
        for rank in range(4)
    ]


@pytest.mark.parametrize(
    ("args", "hosts"),
    [
        (("-n", "4", "--rank-order", "round-robin"), ["h1", "h2", "h1", "h2"]),
        (("-n", "3", "--allow-uneven"), ["h1", "h1", "h2"]),
        (("-n", "3", "--allow-uneven", "--rank-order", "round-robin"), ["h1", "h2", "h1"]),
        (("--per-host", "5"), ["h1"] * 5 + ["h2"] * 5),  # more than processors
    ],
)
def test_ranks_are_where_the_plan_has_them(in_job: InJob, args: tuple[str, ...], hosts: list[str]) -> None:
    lines = said(in_job(WHO, "-N2 -w h1,h2", *args))
    assert [line[5] for line in lines] == [line[2] for line in lines] == hosts
    assert all(line[0] == line[3] for line in lines)


def test_an_exception_on_rank_3_is_named_with_its_host(in_job: InJob, slurm: Slurm) -> None:
    text = (
        "import os, time\nif os.environ['RANK'] == '3':\n    raise ValueError('bad batch')\ntime.sleep(300)\n"
    )
    done = in_job(text, "-N4 --ntasks-per-node=2")
    assert done.returncode == 1
    assert "weft: failed: rank 3 on h2: ValueError: bad batch" in done.stderr
    assert "+ srun " in done.stderr
    wait_until(lambda: left(slurm) == [], "all nodes are empty")


def test_a_rank_that_exits_7_gives_7(in_job: InJob) -> None:
    text = "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit(7)\ntime.sleep(300)\n"
    assert in_job(text, "-N2").returncode == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("text", [SLEEPER, STUBBORN + SLEEPER], ids=["meek", "stubborn"])
def test_nothing_is_left_when_the_launcher_is_signalled(
    slurm: Slurm, tmp_path: Path, number: signal.Signals, text: str
) -> None:
    (tmp_path / "train.py").write_text(text)
    start = f"echo $$; exec {WEFT} run --grace 1 train.py"
    with slurm.popen(
        ["salloc", "--quiet", "-N4", "--ntasks-per-node=2", "sh", "-c", start], cwd=tmp_path
    ) as job:
        assert job.stdout is not None
        pid = job.stdout.readline().strip()
        assert all(" up " in job.stdout.readline() for _ in range(8))
        slurm.run(["kill", f"-{number}", pid])
        job.communicate(timeout=PATIENCE_S)
    wait_until(lambda: left(slurm) == [], "all nodes are empty")


def test_the_batch_script_runs(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WHO)
    asked = ["--hosts-per-rack", "2", "--per-host", "2"]
    slurm.run([WEFT, "run", "--sbatch", "job.sh", *asked, "train.py"], cwd=tmp_path)
    job = slurm.run(["sbatch", "--parsable", "job.sh"], cwd=tmp_path).stdout.strip()
    output = tmp_path / f"train-{job}.out"
    state = ["squeue", "--noheader", f"--jobs={job}", "--format=%T"]
    wait_until(lambda: slurm.run(state).stdout.strip() in ("", "COMPLETED"), "the job has ended")
    lines = [json.loads(line[4:]) for line in output.read_text().splitlines() if line[:1] == "["]
    assert sorted(line[0] for line in lines) == ["0", "1", "2", "3"], output.read_text()
    assert len({line[5] for line in lines}) == 2
