"""The workers of one host, as its agent keeps them: started in their slots, heard, ended, and replaced.

What they say and how they end is told to whoever keeps the household; what follows from that for the run is not decided
here.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Protocol

from weft.elastic.agent.journal import Journal
from weft.elastic.agent.launcher_link import Spoken
from weft.elastic.agent.process import GONE, LEAVING, MEMBER, Slot, Ward
from weft.elastic.membership.policy import WorkerReport
from weft.elastic.timing import Timing
from weft.launch.agent import processes
from weft.launch.agent.protocol import Message, bytes_to_text
from weft.launch.control.outcome import describe_code

CHUNK_BYTES = 1 << 16
TRIES = 3  # a slot whose workers fail so often without committing a step is given up
RESTART_S = (0.0, 1.0, 2.0, 5.0)  # before a worker is started again where several have ended in a row


class Keeper(Protocol):
    """Who is told what the workers do."""

    def said(self, ward: Ward, news: Message) -> None:
        """A worker said something."""
        ...

    def ended(self, ward: Ward, code: int, state: str) -> None:
        """A worker has ended, from this state; nothing of it is left."""
        ...


class Household:
    """All workers of one host."""

    def __init__(self, spec: Message, keeper: Keeper, journal: Journal, launcher: Spoken) -> None:
        self._spec, self._keeper, self._journal, self._launcher = spec, keeper, journal, launcher
        self._slots = [Slot(**slot) for slot in spec["slots"]]
        self._wards: dict[int, Ward] = {}  # by process id
        self._incarnations: defaultdict[int, int] = defaultdict(int)
        self._ends: defaultdict[int, int] = defaultdict(int)  # in a row, by slot
        self._failures: defaultdict[int, int] = defaultdict(int)
        self._given_up: dict[int, tuple[str, int]] = {}  # why, and the exit code that follows from it
        self._starting_at: dict[int, float] = {}

    def __iter__(self) -> Iterator[Ward]:
        return iter(list(self._wards.values()))

    @property
    def empty(self) -> bool:
        """Whether nobody is there, and nobody will come."""
        return not self._wards and not self._starting_at

    @property
    def possible(self) -> int:
        """How many workers can be there."""
        return len(self._slots) - len(self._given_up)

    @property
    def trouble(self) -> tuple[str, int]:
        """Why some slots were given up, and the exit code of a run that fails for it."""
        return next(iter(self._given_up.values()), ("", 0))

    def reports(self) -> tuple[WorkerReport, ...]:
        return tuple(ward.report() for ward in self if ward.alive)

    def micros(self) -> dict[str, list[float]]:
        """How many micro-batches each has computed, and in how many seconds."""
        progress = {ward.name: ward.progress() for ward in self if ward.alive}
        return {name: [each.micros, each.busy_s] for name, each in progress.items()}

    def open(self) -> None:
        """Start all workers."""
        processes.become_subreaper()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)
        for slot in self._slots:
            self._start(slot)

    def close(self) -> None:
        """Whatever is left of them is ended."""
        processes.kill_descendants(os.getpid())

    def kill(self, *, but: str = "") -> None:
        """End all at once, but those in this state."""
        for ward in self:
            if ward.state != but:
                ward.kill()

    def rename(self, ward: Ward) -> None:
        """It goes on as somebody new."""
        ward.name = self._new_name(ward.slot)

    def committed(self, ward: Ward) -> None:
        """Its slot is fine."""
        self._ends[ward.slot.number] = self._failures[ward.slot.number] = 0

    def give_up(self, ward: Ward, why: str) -> None:
        """Nobody shall follow it in its slot."""
        self._given_up[ward.slot.number] = why, 1

    def restart(self, *, wanted: bool) -> None:
        """Start those whose time has come, if any are wanted."""
        now = time.monotonic()
        for number, due in list(self._starting_at.items()):
            if not wanted or number in self._given_up:
                del self._starting_at[number]
            elif now >= due:
                del self._starting_at[number]
                self._start(next(slot for slot in self._slots if slot.number == number))

    def stuck(self, timing: Timing) -> Iterator[tuple[Ward, float]]:
        """Members that make no progress, and for how many seconds."""
        for ward in self:
            ward.flush()
            if ward.alive and not ward.evicted and ward.state in (MEMBER, LEAVING):
                idle_s = ward.stuck_for(timing)
                if idle_s is not None:
                    yield ward, idle_s

    def follow(self, ward: Ward, code: int, *, in_vain: bool) -> None:
        """Start another worker in its place, unless that is in vain: it failed, and nobody has got anywhere yet."""
        slot = ward.slot.number
        if code == 0:
            self._given_up[slot] = f"{ward.name} ended before the run did", 1
        elif code > 0:
            self._failures[slot] += 1
            if in_vain or self._failures[slot] >= TRIES:
                self._given_up[slot] = why(ward, code), code
        self.replace(ward)

    def replace(self, ward: Ward) -> bool:
        """Start another worker in its place; not where its slot is given up, or another is there already."""
        slot = ward.slot.number
        if ward.followed or slot in self._given_up:
            return False
        ward.followed = True
        self._ends[slot] += 1
        pause = RESTART_S[min(self._ends[slot] - 1, len(RESTART_S) - 1)]
        self._starting_at[slot] = time.monotonic() + pause
        return True

    def _new_name(self, slot: Slot) -> str:
        number = self._incarnations[slot.number]
        self._incarnations[slot.number] += 1
        # A host that comes back has an agent with another name, whose workers must not be taken for the old ones.
        return f"{self._spec['host']}/{slot.number}.{self._spec['life']}{number}"

    def _start(self, slot: Slot) -> None:
        ward = Ward(
            self._new_name(slot), slot, self._spec["argv"], env=self._spec["env"], cwd=self._spec["cwd"]
        )
        self._wards[ward.pid] = ward
        self._journal.event("started", worker=ward.name, pid=ward.pid)
        ward.tell(
            {
                "do": "welcome",
                "name": ward.name,
                "secret": self._spec["secret"],
                "most": self._spec["most"],
            }
        )
        loop = asyncio.get_running_loop()
        loop.add_reader(ward.link.fileno(), self._hear_worker, ward)
        for pipe, stream in ((ward.process.stdout, "out"), (ward.process.stderr, "err")):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            loop.add_reader(pipe.fileno(), self._forward, ward, pipe, stream)

    def _forward(self, ward: Ward, pipe: Any, stream: str) -> None:
        try:
            data = os.read(pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            text = bytes_to_text(data)
            ward.wrote(stream, text)
            self._journal.output(ward.slot.number, data)
            self._launcher.say(
                {"event": "output", "rank": ward.slot.rank, "stream": stream, "text": text}, may_drop=True
            )
            return
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        pipe.close()

    def _hear_worker(self, ward: Ward) -> None:
        messages = ward.hear()
        if messages is None:
            asyncio.get_running_loop().remove_reader(ward.link.fileno())
            return
        for message in messages:
            self._keeper.said(ward, message)

    def _reap(self) -> None:
        for pid, code in processes.reap():
            ward = self._wards.pop(pid, None)
            if ward is not None:
                self._bury(ward, code)

    def _bury(self, ward: Ward, code: int) -> None:
        self._hear_last_words(ward)
        ward.code = ward.process.returncode = code
        state, ward.state = ward.state, GONE
        processes.signal_group(ward.pid, signal.SIGKILL)  # what it started and left behind
        ward.close(asyncio.get_running_loop().remove_reader)
        self._launcher.say({"event": "exit", "rank": ward.slot.rank, "worker": ward.name, "code": code})
        self._keeper.ended(ward, code, state)

    def _hear_last_words(self, ward: Ward) -> None:
        """What it had written before it ended."""
        self._hear_worker(ward)
        for pipe, stream in ((ward.process.stdout, "out"), (ward.process.stderr, "err")):
            while pipe is not None and not pipe.closed:
                before = pipe.fileno()
                self._forward(ward, pipe, stream)
                if not pipe.closed and not _readable(before):
                    asyncio.get_running_loop().remove_reader(before)
                    pipe.close()


def why(ward: Ward, code: int) -> str:
    """Why it failed: the last thing it complained of."""
    lines = ward.tail.strip().splitlines()
    return f"{ward.name} failed ({describe_code(code)})" + (f": {lines[-1].strip()}" if lines else "")


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])
