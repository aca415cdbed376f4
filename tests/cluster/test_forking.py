"""Programs that are forks of a server: what they import is learned, and they end as an interpreter does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
from testing.cluster.cluster import VirtualCluster
from testing.forking.hosts import HostForks
from testing.forking.learned import TIMES, Learned, learnable
from testing.forking.server import ForkServer

ENDS = """
import atexit, threading, time

class Made:
    def __del__(self):
        print("destroyed")

made = Made()
made.itself = made
atexit.register(print, "at exit")
threading.Timer(0.05, print, ("a thread",)).start()
print("the program")
raise SystemExit(3)
"""


def test_a_module_is_due_when_enough_forks_have_imported_it(tmp_path: Path) -> None:
    server, fork = Learned(tmp_path), Learned(tmp_path)
    fork.tell(["calendar", "antigravity"])
    assert server.due() == []
    for _ in range(TIMES - 1):
        fork.tell(["antigravity", "tests.no_such"])
    assert server.due() == ["antigravity"]
    assert server.due() == ["antigravity"]  # until it is imported
    assert Learned(tmp_path / "gone").due() == []


def test_only_what_forks_may_inherit_is_learned() -> None:
    modules = ["torch.optim", "tests.one", "weft.keras", "weft.text", "unknown", "json"]
    assert learnable(modules) == ["torch.optim", "weft.text", "json"]
    # A module of ours may have imported the library with threads: none of them is learned.
    assert learnable([*modules, "onnxruntime"]) == ["torch.optim", "json"]


def test_a_fork_ends_as_an_interpreter_does(forks: ForkServer, tmp_path: Path) -> None:
    for python in (forks.python, sys.executable):
        done = subprocess.run(
            [python, "-c", ENDS],
            cwd=tmp_path,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (3, "")
        assert done.stdout.split("\n") == ["the program", "a thread", "at exit", "destroyed", ""]


def test_servers_on_hosts_are_waited_for_before_the_hosts_end(
    new_cluster: Callable[..., VirtualCluster], forks: ForkServer
) -> None:
    cluster = new_cluster(1)
    with HostForks(cluster, forks):
        (server,) = map(psutil.Process, cluster.servers)
        assert server.is_running()
    assert not server.is_running()  # nor a zombie, for which its host would wait
