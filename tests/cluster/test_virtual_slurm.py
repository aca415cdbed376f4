from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from testing.cluster.cluster import VirtualCluster
from testing.cluster.require import require
from testing.cluster.slurm import Slurm, missing
from testing.cluster.waiting import wait_until


def test_srun_spreads_tasks_over_nodes(slurm: Slurm) -> None:
    assert slurm.nodes == ["h1", "h2", "h3", "h4"]
    done = slurm.run(["srun", "-N2", "-n4", "--ntasks-per-node=2", "hostname"])
    assert Counter(done.stdout.split()) == {"h1": 2, "h2": 2}


def test_salloc_gives_an_allocation(slurm: Slurm) -> None:
    done = slurm.run(["salloc", "-N1", "-n2", "sh", "-c", "echo $SLURM_JOB_NODELIST $SLURM_NTASKS"])
    assert done.stdout.split() == ["h1", "2"]


def test_sbatch_waits_for_its_job(slurm: Slurm, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH -N3 -n3\nsrun hostname\nexit 3\n")
    done = slurm.run(["sbatch", "--wait", "-o", tmp_path / "out", script], check=False)
    assert done.returncode == 3
    assert sorted((tmp_path / "out").read_text().split()) == ["h1", "h2", "h3"]


def test_a_cancelled_job_leaves_no_process(slurm: Slurm) -> None:
    def sleepers() -> int:
        found = [line for node in slurm.nodes for _, line in slurm.cluster.processes(node)]
        return sum(line[0].endswith("sleep") and line[1:] == ["300"] for line in found if line)

    with slurm.popen(["srun", "-N2", "-n2", "--job-name=sleeper", "sleep", "300"]) as job:
        wait_until(lambda: sleepers() == 2 or job.poll() is not None, "two tasks", timeout_s=60)
        assert job.poll() is None
        slurm.run(["scancel", "--name=sleeper"])
        assert job.wait(60) != 0
    wait_until(lambda: sleepers() == 0, "the end of both tasks")


@pytest.mark.slurm
def test_a_node_can_lose_its_power(new_cluster: Callable[..., VirtualCluster]) -> None:
    require(missing())
    cluster = new_cluster(2)
    with Slurm(cluster) as slurm:
        cluster.kill("h2")
        assert slurm.run(["srun", "-N1", "-w", "h1", "hostname"]).stdout == "h1\n"
