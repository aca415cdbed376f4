"""`weft.launch.engines.adopt` started as mpirun or srun would start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from testing.cluster.waiting import wait_until

from weft.context import tasks_per_node
from weft.errors import UsageError
from weft.launch.control.outcome import memory_verdict
from weft.launch.engines.adopt import rank_of, worker_environment
from weft.launch.engines.marks import Ended, end_mark
from weft.launch.engines.orders import ROOM_BYTES, VARIABLE, Orders, WorkerOrders

OPENMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "1"}
SLEEPER = """
import os, signal, subprocess, sys, time
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print(os.getpid(), child.pid, flush=True)
while True:  # a signal that comes just before a sleep is heard after it
    time.sleep(0.05)
"""
Start = Callable[..., subprocess.Popen[str]]


def orders(folder: Path, **more: Any) -> Orders:
    workers = tuple(WorkerOrders(env={"RANK": str(rank), "MINE": f"it's {rank}"}) for rank in range(2))
    return Orders(
        **{"cwd": str(folder), "env": {"OURS": "all = 1"}, "grace_s": 60.0, "workers": workers, **more}
    )


@pytest.fixture
def adopt(tmp_path: Path) -> Iterator[Start]:
    """Starts it with a command, orders and variables; ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str, env: dict[str, str] = OPENMPI, **more: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "weft.launch.engines.adopt", "--", *argv],
            env={**os.environ, **env, VARIABLE: orders(tmp_path, **more).seal()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The worker and its child, once they are there."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return [psutil.Process(int(pid)) for pid in line.split()]


def gone(processes: list[psutil.Process]) -> bool:
    return not any(map(alive, processes))


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("env", [OPENMPI, MPICH, SLURM], ids=["openmpi", "mpich", "slurm"])
def test_a_worker_gets_its_rank_its_variables_and_its_folder(
    adopt: Start, tmp_path: Path, env: dict[str, str]
) -> None:
    script = f"import os; print(*map(os.environ.get, ['RANK', 'MINE', 'OURS', {VARIABLE!r}]), os.getcwd())"
    out, err = adopt(sys.executable, "-c", script, env={**env, "RANK": "7"}).communicate(timeout=60)
    assert out == f"1 it's 1 all = 1 None {tmp_path}\n"
    assert err == end_mark(Ended(0))


@pytest.mark.parametrize(
    ("script", "code", "ended"),
    [
        ("import sys; sys.stderr.write('bye'); sys.exit(7)", 7, Ended(7)),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9, Ended(-9)),
    ],
)
def test_it_ends_as_the_worker_ends(adopt: Start, script: str, code: int, ended: Ended) -> None:
    process = adopt(sys.executable, "-c", script)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.endswith(end_mark(ended))


def test_the_worker_is_put_on_its_cores(adopt: Start) -> None:
    core = min(os.sched_getaffinity(0))
    workers = (WorkerOrders(env={}), WorkerOrders(env={}, cpus=(core,)))
    script = "import os; print(os.sched_getaffinity(0))"
    assert adopt(sys.executable, "-c", script, workers=workers).communicate(timeout=60)[0] == f"{{{core}}}\n"


def test_a_program_that_is_not_there(adopt: Start) -> None:
    process = adopt("/no/such/program")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 127
    assert "weft: " in err
    assert "/no/such/program" in err


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGUSR2, signal.SIGTERM),
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGUSR1, signal.SIGINT),
    ],
)
def test_asked_to_end_it_passes_that_on_and_leaves_nothing(
    adopt: Start, sent: signal.Signals, got: signal.Signals
) -> None:
    process = adopt(sys.executable, "-c", SLEEPER, "meek")
    both = family(process)
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0  # the starter must not end the others for it
    assert err.endswith(end_mark(Ended(-got, asked=True)))
    assert gone(both)


def test_who_does_not_listen_is_ended_by_force(adopt: Start) -> None:
    process = adopt(sys.executable, "-c", SLEEPER, "stubborn", grace_s=0.3)
    both = family(process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert err == end_mark(Ended(-9, asked=True))
    assert gone(both)


def test_nothing_is_left_when_it_is_killed_itself(adopt: Start) -> None:
    process = adopt(sys.executable, "-c", SLEEPER, "stubborn")
    both = family(process)
    process.kill()
    wait_until(lambda: gone(both), "the worker and its child are gone")


def test_a_signal_to_all_its_processes_reaches_the_worker_once(adopt: Start) -> None:
    script = (
        "import signal, sys, time\nheard = []\nsignal.signal(15, lambda *_: heard.append(15))\nprint(flush=True)\n"
        "while not heard: time.sleep(0.01)\ntime.sleep(0.3)\nprint(heard)"
    )
    process = adopt(sys.executable, "-c", script, reached=True)
    assert process.stdout is not None
    process.stdout.readline()
    # As srun does: everyone below it gets the signal that is meant for us.
    for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
        each.send_signal(signal.SIGUSR2)
    assert process.communicate(timeout=60)[0] == "[15]\n"


def test_a_rank_must_come_from_the_starter_and_its_world_must_be_the_planned_one() -> None:
    assert rank_of({**OPENMPI, "RANK": "0", "WORLD_SIZE": "1"}, 2) == 1
    with pytest.raises(UsageError, match="all 3 workers of the plan, got 2"):
        rank_of(OPENMPI, 3)
    with pytest.raises(UsageError, match="must be started by mpirun or srun"):
        rank_of({"RANK": "0", "WORLD_SIZE": "2"}, 2)


def test_a_worker_does_not_inherit_the_rank_of_a_launcher_around_it(tmp_path: Path) -> None:
    environ = {"LOCAL_RANK": "5", "HOME": "/root", VARIABLE: "x"}
    assert worker_environment(environ, orders(tmp_path), 0) == {
        "HOME": "/root",
        "OURS": "all = 1",
        "RANK": "0",
        "MINE": "it's 0",
    }


def test_orders_survive_their_journey_and_a_large_world_fits(tmp_path: Path) -> None:
    odd = orders(tmp_path, env={"A": "line\nbreak; $x 'y' \"z\" ü = \udcff"})
    assert Orders.unseal(odd.seal()) == odd
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WEFT_HOST", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME")
    workers = tuple(WorkerOrders(env=dict.fromkeys(names, f"{rank}")) for rank in range(1000))
    sealed = orders(tmp_path, workers=workers).seal()
    assert len(sealed) < ROOM_BYTES / 4


def test_slurm_counts_are_spelled_out() -> None:
    assert tasks_per_node("2(x3),1") == [2, 2, 2, 1]


def test_a_worker_that_holds_too_much_memory_is_ended_with_a_sentence(adopt: Start) -> None:
    hog = "import time; block = bytearray(400_000_000); time.sleep(300)"
    process = adopt(sys.executable, "-c", hog, memory_bytes=300_000_000)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 137
    assert memory_verdict(told).startswith("out of memory: rank 1 used ")
    assert end_mark(Ended(-signal.SIGKILL)) in told


def test_a_worker_within_its_memory_is_left_alone(adopt: Start) -> None:
    process = adopt(sys.executable, "-c", "import time; time.sleep(2.5)", memory_bytes=300_000_000)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, memory_verdict(told)) == (0, "")
