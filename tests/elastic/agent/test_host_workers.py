"""The workers of a host, with real processes: they are started, heard, ended and replaced."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from weft.elastic.agent.actions import GiveUpSlot, KillWorker, MarkCommit, SetState, StartAnother
from weft.elastic.agent.reactions import WorkerFacts
from weft.elastic.agent.workers import HostWorkers
from weft.elastic.membership.reports import WorkerState
from weft.launch.agent.protocol import Message

# A worker that repeats its first message on its link, complains, and waits.
SCRIPT = """
import json, os, socket, sys
link = socket.socket(fileno=int(os.environ["WEFT_ELASTIC"].partition(",")[0]))
welcome = json.loads(link.makefile().readline())
print("first\\nlast words", file=sys.stderr, flush=True)
link.sendall(json.dumps({"say": "hello", "name": welcome["name"]}).encode() + b"\\n")
link.recv(1 << 16)
"""


class Journal:
    def event(self, name: str, **facts: Any) -> None: ...
    def output(self, slot: int, data: bytes) -> None: ...


class Launcher:
    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message, *, may_drop: bool = False) -> None:
        self.sent.append(message)


class Host:
    """The workers of a host with one slot, and what was told of them."""

    def __init__(self) -> None:
        spec = {
            "slots": [{"number": 0, "rank": 3, "env": {}}],
            "argv": [sys.executable, "-c", SCRIPT],
            "env": {},
            "cwd": "/",
            "host": "a",
            "life": "",
            "secret": "secret",
            "most": 1,
        }
        self.messages: list[tuple[WorkerFacts, Message]] = []
        self.ends: list[tuple[WorkerFacts, int]] = []
        self.on_end: Callable[[WorkerFacts], None] = lambda worker: None
        journal: Any = Journal()
        self.launcher = Launcher()
        launcher: Any = self.launcher
        self.workers = HostWorkers(
            spec,
            journal,
            launcher,
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


def run(test: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
    """Run a test in a process of its own: an agent ends, and reaps, every process below its own."""
    child = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(_whole(test)))
    child.start()
    child.join()
    assert child.exitcode == 0


async def _whole(test: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
    host = Host()
    try:
        await asyncio.wait_for(test(host), 30)
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)
        host.workers.close()


def test_a_worker_is_heard_killed_and_replaced_under_a_new_name() -> None:
    async def test(host: Host) -> None:
        host.workers.open()
        worker = await host.hears(1)
        assert (worker.name, worker.state, worker.replaceable) == ("a/0.0", WorkerState.STARTING, True)
        host.workers.carry_out(SetState(worker.pid, WorkerState.MEMBER))
        host.on_end = lambda ended: host.workers.carry_out(StartAnother(ended.pid))
        host.workers.carry_out(KillWorker(worker.pid))
        ended, code = await host.ends_with(1)
        assert (ended.state, ended.last_error, code) == (WorkerState.MEMBER, "last words", -signal.SIGKILL)
        assert host.launcher.sent[-1] == {"event": "exit", "rank": 3, "worker": "a/0.0", "code": -9}
        assert not host.workers.empty
        host.workers.start_due(wanted=True)
        assert (await host.hears(2)).name == "a/0.1"
        host.workers.kill()
        await host.ends_with(2)

    run(test)


def test_a_worker_is_replaced_once_and_a_slot_that_is_given_up_stays_empty() -> None:
    async def test(host: Host) -> None:
        host.workers.open()
        worker = await host.hears(1)
        host.workers.carry_out(StartAnother(worker.pid, after_failure=True))
        (followed,) = host.workers.facts()
        assert (followed.replaceable, followed.slot_failures) == (False, 1)
        host.workers.carry_out(MarkCommit(worker.pid, 1))
        assert host.workers.facts()[0].slot_failures == 0
        assert (host.workers.possible, host.workers.trouble) == (1, ("", 0))
        host.workers.carry_out(GiveUpSlot(worker.pid, "too slow", 1))
        assert (host.workers.possible, host.workers.trouble) == (0, ("too slow", 1))
        host.workers.start_due(wanted=True)
        host.workers.kill()
        await host.ends_with(1)
        assert host.workers.empty

    run(test)
