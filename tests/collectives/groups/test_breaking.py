"""When things break: every survivor is told once, in time, who it was and what they were doing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from testing.cluster.cluster import VirtualCluster
from tests.collectives.conftest import PATH, WORKERS, Bench
from torch._C._distributed_c10d import HashStore

from weft.collectives.groups.blame import Suspicion, judge
from weft.collectives.members import GroupMember
from weft.collectives.modes.peers import DimensionPeers
from weft.collectives.modes.shared_memory.arena import Arena, create
from weft.collectives.modes.shared_memory.files import PREFIX, new_name, sweep
from weft.collectives.modes.shared_memory.shm import SharedMemory
from weft.errors import PeerError

TOLD = re.compile(r"\[(\d)\] told (\w+) after ([\d.]+) s: (.*) \| then (\w+)")


def told(output: str) -> dict[int, tuple[str, float, str]]:
    """By rank: the error, after how many seconds, and its message."""
    found = {int(rank): (kind, float(took), message) for rank, kind, took, message, _ in TOLD.findall(output)}
    assert all(then in ("CollectiveError", "PeerError") for *_, then in TOLD.findall(output)), output
    return found


# Far from the group's timeout of 30 s, and far enough from the fraction of a second it takes on a quiet machine.
SOON_S = 20
GRACE_S = "20"  # for survivors to speak before they are ended; who is stopped takes all of it


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
    timeout_s, grace_s = ("2", "6") if how == "stopped" else ("30", GRACE_S)
    options = ("--mode", "shm", "--grace", grace_s)
    done = bench.runs("breaking.py", 3, how, str(victim), timeout_s, operation, options=options)
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


@pytest.mark.parametrize("what", ["cut", "kill", "stop"])
def test_survivors_of_a_lost_host(bench: Bench, cluster: VirtualCluster, what: str) -> None:
    process = bench.starts_on(
        cluster,
        "h1:2,h2:1,h3:1",
        "breaking.py",
        "stopped" if what == "stop" else "wait",
        "3",
        "3",
        "all_reduce",
        options=("--grace", "9", "--lost-after", "30"),
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    assert all(" up " in line for line in lines), "".join(lines) + process.communicate()[1]
    if what != "stop":
        getattr(cluster, what)("h3")
    output, errors = process.communicate(timeout=120)
    found = told(output)
    assert found.keys() >= {0, 1, 2}, output + errors
    for rank in (0, 1, 2):
        kind, took, message = found[rank]
        assert kind == "PeerError"
        assert re.match(r"rank 3 on h3 .* during all_reduce\(float32\[1000, 1000\], SUM\)", message), message
        assert took <= SOON_S


# -- who does not come ----------------------------------------------------------------------------------------------


def heard(output: str) -> dict[int, tuple[str, float, str]]:
    said = re.findall(r"\[(\d)\] told (\w+) after ([\d.]+) s: (.*)", output)
    return {int(rank): (kind, float(took), message) for rank, kind, took, message in said}


@pytest.mark.parametrize("absent", [1, 2])  # the first and the second of the new group
def test_who_does_not_come_to_a_new_group_is_named(bench: Bench, absent: int) -> None:
    done = bench.runs("absent.py", 3, "new_group", "3", str(absent), options=("--grace", "2"))
    kind, took, message = heard(done.stdout)[3 - absent]
    assert kind == "CollectiveError"
    assert re.match(rf"all ranks .* within 3 s, got no sign of rank {absent} on \S+; see ", message), message
    assert took <= SOON_S


def test_who_died_before_a_new_group_is_not_waited_for(bench: Bench) -> None:
    done = bench.runs("absent.py", 3, "killed", "300", "2", options=("--grace", "8"))
    kind, took, message = heard(done.stdout)[1]
    assert kind == "PeerError"
    assert re.fullmatch(r"rank 2 on \S+ died before the group was made", message), message
    assert took <= SOON_S


def test_who_does_not_come_to_the_world_is_named(bench: Bench) -> None:
    done = bench.runs("absent.py", 3, "init", "3", "2", options=("--grace", "3"))
    kind, _, message = heard(done.stdout)[1]  # rank 0 waits in torch's own store
    assert kind == "CollectiveError"
    assert "rank 2" in message


# -- what is left behind --------------------------------------------------------------------------------------------


def arenas(pids: Sequence[int]) -> list[Path]:
    return [path for pid in pids for path in Path("/dev/shm").glob(f"{PREFIX}{pid}-*")]


def pids_of(process: subprocess.Popen[str], count: int) -> list[int]:
    """Of so many workers, once they are up."""
    assert process.stdout is not None
    return [int(process.stdout.readline().split()[-1]) for _ in range(count)]


def kill_together(process: subprocess.Popen[str], pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=120)


def test_nothing_is_left_of_ranks_that_are_all_killed(bench: Bench) -> None:
    script = str(WORKERS / "breaking.py")
    process = bench.shell.start(
        "run", "-n", "3", "--mode", "shm", script, "wait", "9", "30", "all_reduce", PYTHONPATH=PATH
    )
    pids = pids_of(process, 3)
    kill_together(process, pids)
    assert arenas(pids) == []


@pytest.mark.long
def test_a_file_that_still_had_its_name_is_swept_by_the_next_run(bench: Bench) -> None:
    process = bench.shell.start(
        "run", "-n", "2", "--mode", "shm", str(WORKERS / "halted.py"), "halt", PYTHONPATH=PATH
    )
    maker = pids_of(process, 1)
    assert len(arenas(maker)) == 1
    kill_together(process, maker)
    bench.passes("again.py", 2, WEFT_MODE="shm")
    assert arenas(maker) == []


@pytest.mark.parametrize(("how", "victim"), [("maker-dies", 0), ("peer-dies", 1)])
def test_a_death_while_memory_is_shared_out(bench: Bench, tmp_path: Path, how: str, victim: int) -> None:
    done = bench.runs("halted.py", 3, how, str(tmp_path), options=("--mode", "shm", "--grace", "25"))
    found = heard(done.stdout)
    assert found.keys() == {0, 1, 2} - {victim}, done.stdout + done.stderr
    for kind, took, message in found.values():
        # The maker has the store too: who has not yet heard of the others loses it without knowing whose it was.
        lost = how == "maker-dies" and kind == "CollectiveError" and "a store to meet in, got" in message
        assert lost or (kind == "PeerError" and re.match(rf"rank {victim} on \S+ died", message)), message
        assert message.endswith("| left []")
        assert took <= SOON_S


@pytest.mark.parametrize("victim", [2, 0])  # 0 holds the store
def test_survivors_make_a_new_world_and_leave_nothing_behind(
    bench: Bench, tmp_path: Path, victim: int
) -> None:
    options = ("--mode", "shm", "--grace", "20")
    done = bench.runs("survivors.py", 3, str(victim), str(tmp_path), options=options)
    assert done.stdout.count(f"told rank {victim} on ") == 2, done.stdout + done.stderr
    # Who has the new world's store has torch's thread for it, and its pipe.
    left = re.findall(r"went on, left (.*)", done.stdout)
    assert sorted(left) in (["{}", "{}"], ["{'pipe': 2}", "{}"]), done.stdout


def test_survivors_on_several_hosts_make_a_new_world(
    bench: Bench, shared_cluster: VirtualCluster, tmp_path: Path
) -> None:
    process = bench.starts_on(
        shared_cluster, "h1:2,h2:1", "survivors.py", "2", str(tmp_path), options=("--grace", "20")
    )
    output, errors = process.communicate(timeout=120)
    assert len(re.findall(r"told rank 2 on h2 .* during all_reduce", output)) == 2, output + errors
    assert re.findall(r"went on, left (.*)", output) == ["{}", "{}"], output


@pytest.mark.parametrize("debug", ["1", "0"])
def test_ranks_that_disagree(bench: Bench, debug: str) -> None:
    bench.passes("disagreeing.py", 3, WEFT_DEBUG=debug, WEFT_MODE="shm")


def test_a_file_is_swept_once_its_maker_is_dead(tmp_path: Path) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "from weft.collectives.modes.shared_memory.files import new_name; print(new_name())"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    ours = new_name()
    ours_before = re.sub(r"-\d+-", "-1-", ours, count=1)  # made by another process that had our number
    elsewhere = re.sub(r"-\d+-(\w+)$", r"-1-\1", gone)  # whose number we do not know: it counts otherwise
    for name in (gone, ours, ours_before, elsewhere, "weft-arena-999999999-x", "weft-arena-1-x"):
        (tmp_path / name).touch()
    assert sweep(tmp_path) == 3
    assert {path.name for path in tmp_path.iterdir()} == {ours, elsewhere, "weft-arena-1-x"}


def test_who_died_before_the_memory_was_shared_is_seen_to_be_dead(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    file = create("two", 2, 1 << 16, home=tmp_path)
    shared = Arena(file, index=0, pids=[os.getpid(), gone.pid], slab_bytes=1 << 16)
    with pytest.raises(PeerError, match="peer 1 died"):
        shared.await_peer(1, 1, 1.0, lambda peer, what: f"peer {peer} {what}")


def test_a_maker_that_dies_while_memory_is_shared_leaves_no_file() -> None:
    """The other peer opens the file, waits in vain for its maker, and removes the file."""
    making = (
        "import time\nfrom weft.collectives.modes.shared_memory.arena import create\n"
        "from weft.collectives.modes.shared_memory.files import new_name\n"
        "name = new_name()\ncreate(name, 2, 1 << 16)\nprint(name, flush=True)\ntime.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", making], stdout=subprocess.PIPE, text=True) as maker:
        assert maker.stdout is not None
        name = maker.stdout.readline().strip()
        store = HashStore()
        store.set("arena/inside", f"{name} {1 << 16}")
        members = [replace(MEMBERS[0], pid=maker.pid), replace(MEMBERS[1], pid=os.getpid())]
        threading.Timer(0.2, maker.kill).start()
        with pytest.raises(PeerError, match="peer 0 died"):
            SharedMemory.connect(
                DimensionPeers(
                    name="inside",
                    store=store,
                    members=tuple(members),
                    index=1,
                    timeout_s=60.0,
                    describe=lambda peer, what: f"peer {peer} {what}",
                    lives=lambda peer: True,
                )
            )
    assert not Path("/dev/shm", name).exists()


MEMBERS = [GroupMember(rank=rank, host=f"m{rank}", name=f"h{rank}", pid=1, address="") for rank in range(4)]


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
