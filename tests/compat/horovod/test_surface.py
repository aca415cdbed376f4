"""The surface of `horovod.torch`, on one, two and three ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.compat.horovod.conftest import WORKERS, HorovodRuns


@pytest.mark.parametrize("ranks", [2, 3])
def test_scripts_find_what_they_rely_on(horovod_runs: HorovodRuns, ranks: int) -> None:
    script = str(WORKERS / "surface.py")
    told = horovod_runs.passes("run", "-n", str(ranks), script, str(horovod_runs.folder))
    assert told.count("checks passed") == ranks


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_each_world_has_more_of_it(horovod_runs: HorovodRuns, ranks: int) -> None:
    script = str(WORKERS / "more_surface.py")
    told = horovod_runs.passes("run", "-n", str(ranks), script, str(horovod_runs.folder))
    assert told.count("more checks passed") == ranks


def test_a_script_without_a_launcher_is_a_world_of_one(horovod_runs: HorovodRuns) -> None:
    done = horovod_runs.python(str(WORKERS / "surface.py"), str(horovod_runs.folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 of 1" in done.stdout


SUM = """
import horovod.torch as hvd, torch
hvd.init()
assert (hvd.size(), hvd.local_size()) == (2, 2), hvd.size()
assert hvd.local_rank() == hvd.rank()
print("sum", int(hvd.allreduce(torch.tensor(hvd.rank() + 1), op=hvd.Sum)), flush=True)
"""


def test_a_script_runs_under_srun(horovod_runs: HorovodRuns) -> None:
    """Slurm's variables are all that srun gives its tasks."""
    horovod_runs.shell.script(SUM, "sum.py")
    step = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NODEID": "0",
    }
    tasks = [
        subprocess.Popen(
            [horovod_runs.interpreter, "sum.py"],
            env=horovod_runs.environment(SLURM_PROCID=str(task), SLURM_LOCALID=str(task), **step),
            cwd=horovod_runs.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for task in range(2)
    ]
    told = [task.communicate(timeout=200)[0] for task in tasks]
    assert all("sum 3" in text for text in told), told


FORKING = """
import os, sys
import horovod.torch as hvd, torch
hvd.init()
child = os.fork()
if child == 0:  # a loader of data, say, that ends as any process does
    assert (hvd.rank(), hvd.is_initialized()) == (int(os.environ["RANK"]), False)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("sum", int(hvd.allreduce(torch.tensor(hvd.rank() + 1), op=hvd.Sum)), flush=True)
"""
ALONE_IN_A_FORK = """
import os, sys
import horovod.torch as hvd, torch
hvd.init()
child = os.fork()
hvd.init()
assert int(hvd.allreduce(torch.tensor(3), op=hvd.Sum)) == 3
hvd.shutdown()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print("both are done", flush=True)
"""


def test_a_fork_leaves_the_world_of_its_parent_alone(horovod_runs: HorovodRuns) -> None:
    horovod_runs.shell.script(FORKING, "forking.py")
    told = horovod_runs.passes("run", "-n", "2", "forking.py")
    assert told.count("sum 3") == 2


def test_a_fork_may_have_a_world_of_its_own(horovod_runs: HorovodRuns) -> None:
    horovod_runs.shell.script(ALONE_IN_A_FORK, "alone.py")
    done = horovod_runs.python("alone.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "both are done" in done.stdout


@pytest.mark.mpi
def test_a_script_runs_under_plain_mpirun(horovod_runs: HorovodRuns) -> None:
    horovod_runs.shell.script(SUM, "sum.py")
    allowed = {
        f"{name}_ALLOW_RUN_AS_ROOT{more}": "1" for name in ("OMPI", "PRTE") for more in ("", "_CONFIRM")
    }
    done = subprocess.run(
        ["mpirun", "--oversubscribe", "-n", "2", sys.executable, "sum.py"],
        env=horovod_runs.environment(**allowed, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}"),
        cwd=horovod_runs.folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.count("sum 3") == 2, done.stdout + done.stderr
