"""Who a process is, whatever launched it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from testing.shell import Shell

from weft.context import World, meeting_point, world_from_env
from weft.errors import UsageError

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NODELIST": "node[03-05]",
    "SLURMD_NODENAME": "node04",
}


def mpi_is_not_asked() -> tuple[str, int]:
    raise AssertionError("asked MPI")


@pytest.mark.parametrize(
    ("launcher", "variables"), [("torchrun", TORCHRUN), ("openmpi", OPENMPI), ("mpich", MPICH)]
)
def test_each_launchers_variables_are_understood(launcher: str, variables: dict[str, str]) -> None:
    found = world_from_env(variables)
    assert (found.rank, found.size, found.local_rank, found.local_size) == (3, 4, 1, 2)
    assert (found.num_hosts, found.launcher) == (2, launcher)


def test_slurms_uneven_task_counts_are_understood() -> None:
    found = world_from_env(SLURM)
    assert (found.rank, found.size, found.local_rank, found.local_size) == (3, 5, 1, 2)
    assert (found.host, found.host_index, found.num_hosts) == ("node04", 1, 3)
    assert world_from_env({**SLURM, "SLURM_NODEID": "2", "SLURM_LOCALID": "0"}).local_size == 1


def test_torchruns_variables_come_first() -> None:
    assert world_from_env({**SLURM, **OPENMPI, **TORCHRUN}).launcher == "torchrun"
    assert (
        world_from_env({**TORCHRUN, "WEFT_RUN_ID": "x", "WEFT_HOST": "h2", "WEFT_NUM_HOSTS": "2"}).launcher
        == "weft"
    )


def test_a_batch_script_is_a_world_of_one() -> None:
    batch = {name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}
    assert world_from_env(batch).size == 1


def test_nothing_at_all_is_a_world_of_one() -> None:
    found = world_from_env({})
    assert (found.rank, found.size, found.launcher) == (0, 1, "none")


def test_stale_variables_are_refused() -> None:
    with pytest.raises(UsageError, match="got rank 4 of 4"):
        World(rank=4, size=4)


def test_where_workers_meet() -> None:
    assert meeting_point({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, mpi_is_not_asked) == ("a", 1)
    host, port = meeting_point(SLURM, mpi_is_not_asked)
    assert host == "node03"
    assert (host, port) == meeting_point({**SLURM, "SLURM_PROCID": "0"}, mpi_is_not_asked)
    assert meeting_point(OPENMPI, lambda: ("b", 2)) == ("b", 2)
    with pytest.raises(UsageError, match="weft run"):
        meeting_point(TORCHRUN, mpi_is_not_asked)


@pytest.mark.long
@pytest.mark.parametrize(
    ("launcher", "command"),
    [
        ("torchrun", ["torchrun", "--standalone", "--nproc-per-node", "2"]),
        ("openmpi", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable]),
    ],
)
def test_init_works_under_other_launchers(shell: Shell, launcher: str, command: list[str]) -> None:
    script = shell.script(
        "import torch, weft\nworld = weft.init()\nt = torch.ones(1)\ntorch.distributed.all_reduce(t)\n"
        "print(f'{world.launcher} {world.rank} {int(t)}\\n', end='', flush=True)\nweft.shutdown()\n"
    )
    bin_folder = sys.executable.rpartition("/")[0]
    done = subprocess.run(
        [f"{bin_folder}/{command[0]}", *command[1:], script],
        cwd=shell.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert sorted(done.stdout.splitlines()) == [f"{launcher} 0 2", f"{launcher} 1 2"], done.stderr
