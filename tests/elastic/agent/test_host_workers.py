"""The workers of a host, with real processes: they are started, heard, ended and replaced."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from weft.collectives.modes.shared_memory.files import HOME, PREFIX
from weft.elastic.agent.actions import (
    GiveUpSlot,
    KillWorker,
    MarkCommit,
    MarkRetired,
    SetState,
    StartAnother,
)
from weft.elastic.agent.launcher_messages import AgentSpec, ElasticEvent, WorkerExit, WorkerSlot
from weft.elastic.agent.reactions import WorkerFacts
from weft.elastic.agent.workers import HostWorkers
from weft.elastic.membership.reports import WorkerState
from weft.elastic.membership.view import View
from weft.elastic.worker.messages import FromWorker, GroupBroken, WorkerHello
from weft.launch.agent.protocol import WorkerOutput

# A worker that repeats its first message on its link, complains, and waits.
SCRIPT = """
import json, os, socket, sys
link = socket.socket(fileno=int(os.environ["WEFT_ELASTIC"].partition(",")[0]))
welcome = json.loads(link.makefile().readline())
print("first\\nlast words", file=sys.stderr, flush=True)
link.sendall(json.dumps({"say": "hello", "store_port": len(welcome["name"]), "heal_port": 2}).encode() + b"\\n")
link.recv(1 << 16)
"""


class Journal:
    """A journal that keeps the output of workers."""

    def __init__(self) -> None:
        self.kept: defaultdict[int, bytes] = defaultdict(bytes)

    def event(self, name: str, **facts: Any) -> None: ...

    def output(self, slot: int, data: bytes) -> None:
        self.kept[slot] += data

    def read_points(self, slot: int, start: int, most: int) -> bytes:
        return b""

    def output_since(self, slot: int, start: int, most: int) -> tuple[list[bytes], int]:
        data = self.kept[slot][start:]
        return [data] if data else [], 0


class Launcher:
    """A launcher that takes all messages, or drops output."""

    def __init__(self) -> None:
        self.sent: list[ElasticEvent | WorkerOutput] = []
        self.full = False
        self.has_room = True

    def send(self, message: ElasticEvent | WorkerOutput, *, may_drop: bool = False) -> bool:
        if not (self.full and may_drop):
            self.sent.append(message)
        return not (self.full and may_drop)

    def output(self) -> str:
        return "".join(message.text for message in self.sent if isinstance(message, WorkerOutput))


class Host:
    """The workers of a host with one slot, and what was told of them."""

    def __init__(self, script: str = SCRIPT) -> None:
        spec = AgentSpec(
            slots=(WorkerSlot(0, rank=3, env={}),),
            argv=(sys.executable, "-c", script),
            env={},
            cwd="/",
            run="run",
            run_dir="/",
            host="a",
            agent="a",
            address="127.0.0.1",
            witness=False,
            life="",
            secret="secret",
            least=1,
            most=1,
            expected=1,
            detect_within_s=2.0,
            start_within_s=30.0,
            alone_s=60.0,
            grace_s=5.0,
            slow="report",
            view=View(0, (), ("a",)),
            roster={},
        )
        self.messages: list[tuple[WorkerFacts, FromWorker]] = []
        self.ends: list[tuple[WorkerFacts, int]] = []
        self.on_end: Callable[[WorkerFacts], None] = lambda worker: None
        self.journal = Journal()
        journal: Any = self.journal
        self.launcher = Launcher()
        launcher: Any = self.launcher
        self.workers = HostWorkers(
            spec,
            journal,
            launcher,
            left_out={},
            on_message=lambda worker, message: self.messages.append((worker, message)),
            on_end=self._ended,
        )

    def _ended(self, worker: WorkerFacts, code: int) -> None:
        self.ends.append((worker, code))
        self.on_end(worker)

    async def hears(self, count: int) -> WorkerFacts:
        await until(lambda: len(self.messages) >= count)
        return self.messages[-1][0]

    async def ends_with(self, count: int) -> tuple[WorkerFacts, int]:
        await until(lambda: len(self.ends) >= count and not self.workers.facts())
        return self.ends[-1]


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def run(test: Callable[[Host], Coroutine[Any, Any, None]], script: str = SCRIPT) -> None:
    """Run a test in a process of its own: an agent ends, and reaps, every process below its own."""
    child = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(_whole(test, script)))
    child.start()
    child.join()
    assert child.exitcode == 0


async def _whole(test: Callable[[Host], Coroutine[Any, Any, None]], script: str) -> None:
    host = Host(script)
    try:
        await asyncio.wait_for(test(host), 30)
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)
        host.workers.close()


def test_a_worker_is_heard_killed_and_replaced_under_a_new_name() -> None:
    async def test(host: Host) -> None:
        host.workers.open()
        worker = await host.hears(1)
        assert host.messages == [(worker, WorkerHello(store_port=len("a/0.0"), heal_port=2))]
        assert (worker.name, worker.state, worker.replaceable) == ("a/0.0", WorkerState.STARTING, True)
        host.workers.carry_out(SetState(worker.pid, WorkerState.MEMBER))
        host.on_end = lambda ended: host.workers.carry_out(StartAnother(ended.pid))
        host.workers.carry_out(KillWorker(worker.pid))
        ended, code = await host.ends_with(1)
        assert (ended.state, ended.last_error, code) == (WorkerState.MEMBER, "last words", -signal.SIGKILL)
        assert host.launcher.sent[-1] == WorkerExit(3, "a/0.0", -signal.SIGKILL)
        assert not host.workers.empty
        host.workers.start_due(wanted=True)
        assert (await host.hears(2)).name == "a/0.1"
        host.workers.kill()
        await host.ends_with(2)

    run(test)


# A worker that is killed after it has made memory to share, and before all peers have opened it.
SHARER = """
import os, signal
from weft.collectives.modes.shared_memory.arena import create
from weft.collectives.modes.shared_memory.files import new_name
create(new_name(), 2, 1 << 16)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_shared_memory_of_a_worker_that_was_killed_while_it_was_shared_is_removed() -> None:
    async def test(host: Host) -> None:
        host.workers.open()
        worker, code = await host.ends_with(1)
        assert code == -signal.SIGKILL
        assert not list(HOME.glob(f"{PREFIX}{worker.pid}-*"))

    run(test, SHARER)


# A worker that says more than one read takes, and ends at once.
TALKER = """
import json, os, socket
link = socket.socket(fileno=int(os.environ["WEFT_ELASTIC"].partition(",")[0]))
link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
for number in range(200):
    link.sendall(json.dumps({"say": "broken", "view": number, "why": 2000 * "x"}).encode() + b"\\n")
os._exit(0)
"""


def test_all_that_a_worker_said_before_its_end_is_heard() -> None:
    async def test(host: Host) -> None:
        host.workers.open()
        # The agent hears nothing until the worker has ended.
        (worker,) = host.workers.facts()
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        await host.ends_with(1)
        assert [m.view for _, m in host.messages if isinstance(m, GroupBroken)] == list(range(200))

    run(test, TALKER)


def test_a_worker_is_replaced_once_and_a_slot_that_is_given_up_stays_empty() -> None:
    async def test(host: Host) -> None:
        host.workers.open()
        worker = await host.hears(1)
        host.workers.carry_out(StartAnother(worker.pid, after_failure=True))
        (followed,) = host.workers.facts()
        assert (followed.replaceable, followed.slot_failures) == (False, 1)
        host.workers.carry_out(MarkCommit(worker.pid, 1, 1))
        assert host.workers.facts()[0].slot_failures == 0
        assert (host.workers.possible, host.workers.trouble) == (1, ("", 0))
        host.workers.carry_out(GiveUpSlot(worker.pid, "too slow", 1))
        assert (host.workers.possible, host.workers.trouble) == (0, ("too slow", 1))
        host.workers.start_due(wanted=True)
        host.workers.kill()
        await host.ends_with(1)
        assert host.workers.empty

    run(test)


def test_slots_come_and_go_and_a_worker_that_stays_is_bound_anew() -> None:
    async def test(host: Host) -> None:
        (slot,) = host.workers.slots
        cpus = tuple(sorted(os.sched_getaffinity(0)))
        host.workers.open()
        first = await host.hears(1)
        bound = replace(slot, cpus=cpus[:1])
        assert host.workers.take_slots([slot]) is None
        assert host.workers.take_slots([bound, WorkerSlot(1, rank=5, env={})]) == ()
        assert os.sched_getaffinity(first.pid) == set(cpus[:1])
        second = await host.hears(2)
        assert (second.name, host.workers.possible) == ("a/1.0", 2)
        (gone,) = host.workers.take_slots([bound]) or ()
        assert gone.pid == second.pid
        host.workers.carry_out(MarkRetired(gone.pid))
        assert host.workers.take_slots([bound, WorkerSlot(1, rank=5, env={})]) == ()
        third = await host.hears(3)
        assert third.name == "a/1.1"
        assert [worker.replaceable for worker in host.workers.facts()] == [True, False, True]
        host.workers.kill()
        await host.ends_with(3)

    run(test)


def test_a_launcher_that_is_connected_again_gets_the_output_that_it_lacks() -> None:
    async def test(host: Host) -> None:
        host.launcher.full = True  # the first line is never sent
        host.workers.open()
        worker = await host.hears(1)
        await until(lambda: host.journal.kept[0])
        host.launcher.full = False
        missed = len(host.journal.kept[0])
        host.workers.hold_output()
        host.journal.kept[0] += b"printed while nobody listened\n"
        assert host.launcher.output() == ""
        host.workers.catch_up({3: (0, 0)})
        assert host.launcher.output() == "printed while nobody listened\n"
        host.workers.catch_up({3: (len("printed"), 0)})
        assert host.launcher.output().endswith("nobody listened\n while nobody listened\n")
        assert missed == len("first\nlast words\n")
        host.workers.carry_out(KillWorker(worker.pid))
        await host.ends_with(1)

    run(test)
