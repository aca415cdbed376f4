"""When things break: every survivor is told once, in time, who it was and what they were doing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.cluster.cluster import VirtualCluster
from tests.collectives.conftest import Bench

from weft.collectives.arena import sweep
from weft.collectives.blame import Suspicion, judge
from weft.collectives.members import Member

TOLD = re.compile(r"\[(\d)\] told (\w+) after ([\d.]+) s: (.*) \| then (\w+)")


def told(output: str) -> dict[int, tuple[str, float, str]]:
    """By rank: the error, after how many seconds, and its message."""
    found = {int(rank): (kind, float(took), message) for rank, kind, took, message, _ in TOLD.findall(output)}
    assert all(then in ("CollectiveError", "PeerError") for *_, then in TOLD.findall(output)), output
    return found


# Far from the group's timeout of 30 s, and far enough from the fraction of a second it takes on a quiet machine.
SOON_S = 12


@pytest.mark.parametrize(
    ("how", "victim", "operation"),
    [
        ("killed", 2, "all_reduce"),
        ("killed-halfway", 1, "all_reduce"),
        ("raises", 0, "all_reduce"),
        ("leaves", 1, "all_reduce"),
        ("stopped", 2, "all_reduce"),  # here the group's timeout is 2 s
        ("killed", 1, "backward"),
        ("killed", 1, "gather"),
        ("killed", 1, "recv"),
    ],
)
def test_survivors_on_one_host(bench: Bench, how: str, victim: int, operation: str) -> None:
    timeout_s = "2" if how == "stopped" else "30"
    done = bench.runs(
        "breaking.py", 3, how, str(victim), timeout_s, operation, options=("--mode", "shm", "--grace", "4")
    )
    found = told(done.stdout)
    # Who only sends to the root of a gather may be through before anyone is missed.
    waiting = {0} if operation == "gather" else {0, 1, 2} - {victim}
    assert found.keys() >= waiting, done.stdout + done.stderr
    for kind, took, message in found.values():
        assert kind == "PeerError"
        assert re.match(rf"rank {victim} on \S+ (died|gave up|did not come|was lost)", message), message
        assert re.search(r"during \w+\(\w+\[[\d, ]+\]", message), message
        assert took <= SOON_S
    assert not list(Path("/dev/shm").glob("weft-arena-*")) or sweep() == 0


@pytest.mark.parametrize("what", ["cut", "kill"])
def test_survivors_of_a_lost_host(bench: Bench, cluster: VirtualCluster, what: str) -> None:
    process = bench.starts_on(
        cluster,
        "h1:2,h2:1,h3:1",
        "breaking.py",
        "wait",
        "9",
        "3",
        "all_reduce",
        options=("--grace", "9", "--lost-after", "30"),
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    assert all(" up " in line for line in lines), "".join(lines) + process.communicate()[1]
    getattr(cluster, what)("h3")
    output, errors = process.communicate(timeout=40)
    found = told(output)
    assert found.keys() >= {0, 1, 2}, output + errors
    for rank in (0, 1, 2):
        kind, took, message = found[rank]
        assert kind == "PeerError"
        assert re.match(r"rank 3 on h3 .* during all_reduce\(float32\[1000, 1000\], SUM\)", message), message
        assert took <= SOON_S


@pytest.mark.parametrize("debug", ["1", "0"])
def test_ranks_that_disagree(bench: Bench, debug: str) -> None:
    bench.passes("disagreeing.py", 3, WEFT_DEBUG=debug, WEFT_MODE="shm")


def test_a_file_left_by_a_dead_process_is_swept(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / f"weft-arena-{gone.pid}-abc").touch()
    (tmp_path / "weft-arena-1-abc").touch()
    assert sweep(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["weft-arena-1-abc"]


MEMBERS = [Member(rank=rank, host=f"m{rank}", name=f"h{rank}", pid=1, address="") for rank in range(4)]


def test_suspicions_lead_to_the_one_who_is_silent() -> None:
    chain = {
        0: Suspicion("rank 1 on h1 closed its connection", 1),
        1: Suspicion("rank 2 on h2 closed its connection", 2),
        2: Suspicion("rank 3 on h3 let nothing through", 3),
    }
    assert judge(chain, 0, MEMBERS, "barrier()").message == "rank 3 on h3 let nothing through"


def test_who_has_seen_the_dead_is_believed() -> None:
    said = {
        0: Suspicion("rank 1 on h1 closed its connection", 1),
        2: Suspicion("rank 3 on h3 died", 3, sure=True),
    }
    assert judge(said, 0, MEMBERS, "barrier()").suspect == 3


def test_mutual_suspicion_ends() -> None:
    said = {0: Suspicion("rank 1 on h1 did not come", 1), 1: Suspicion("rank 0 on h0 did not come", 0)}
    assert judge(said, 0, MEMBERS[:2], "barrier()").suspect in (0, 1)


def test_the_silent_are_named_if_nobody_is_suspected() -> None:
    said = {rank: Suspicion("barrier() failed: timed out", None) for rank in (0, 1, 3)}
    assert judge(said, 0, MEMBERS, "barrier()").message.startswith("rank 2 on h2 gave no sign of life")
