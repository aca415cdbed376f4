"""One worker, as its agent watches over it: the process, its link, its progress, what it prints."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.elastic.membership.policy import WorkerReport
from weft.elastic.timing import Timing
from weft.elastic.worker.beat import WAITING, Page, Progress
from weft.elastic.worker.link import DESCRIPTOR
from weft.launch.agent import processes

STARTING, READY, MEMBER, LEAVING, FINISHED, GONE = (
    "starting", "ready", "member", "leaving", "finished", "gone",
)  # fmt: skip
CHUNK_BYTES = 1 << 16
TAIL_CHARACTERS = 16_000
# To make a group, or to find that it cannot be made: connecting to one that has died takes half of it, and a busy
# machine the rest. Who is ended too soon takes with it what it alone may have.
ANSWER_S = 10.0
LENIENT_S = 300.0  # for what may take long the first time

# Losing a peer is nothing special here; torch's store would print pages about it.
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}


@dataclass(frozen=True)
class Slot:
    """A place for a worker on this host."""

    number: int
    rank: int  # under which its output is shown
    env: Mapping[str, str]
    cpus: Sequence[int] = ()
    numa: Sequence[int] = ()


class Ward:
    """One worker process."""

    def __init__(
        self, name: str, slot: Slot, argv: Sequence[str], *, env: Mapping[str, str], cwd: str
    ) -> None:
        self.name, self.slot = name, slot
        self._page = Page()
        self.link, theirs = socket.socketpair()
        self.link.setblocking(False)
        os.set_inheritable(theirs.fileno(), True)
        try:
            self.process = processes.spawn(
                argv,
                env={
                    **QUIET,
                    **os.environ,
                    **env,
                    **slot.env,
                    DESCRIPTOR: f"{theirs.fileno()},{self._page.descriptor}",
                },
                cwd=cwd,
                cpus=slot.cpus,
                numa=slot.numa,
                keep=(theirs.fileno(), self._page.descriptor),
            )
        finally:
            theirs.close()
        self.code: int | None = None
        self.tail = ""
        self.ports = (0, 0)
        self.evicted = ""  # why we ended it
        self.followed = False  # another is started in its place, even while it is there
        self.stepped = -1  # the last view in which it committed a step
        self._state, self._since = STARTING, time.monotonic()
        self._broken, self._broken_at = -1, 0.0
        self._unheard = b""
        self._unsent = b""
        self._step_s = 0.0
        self._stopped_at: float | None = None
        self._asked_at: float | None = None  # told of an urgent view, and no word since
        self._last = (0, self._since)  # steps, and when there were so many

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def state(self) -> str:
        return self._state

    @state.setter
    def state(self, state: str) -> None:
        if state != self._state:
            self._state, self._since = state, time.monotonic()
            self._last = self._last[0], self._since

    @property
    def alive(self) -> bool:
        return self.code is None

    @property
    def leaving_s(self) -> float:
        """For how long it has been about to leave."""
        return time.monotonic() - self._since if self._state == LEAVING else 0.0

    def breaks(self, view: int) -> None:
        """It told us that it has no group in this view."""
        self._broken, self._broken_at = view, time.monotonic()

    def report(self) -> WorkerReport:
        now = time.monotonic()
        return WorkerReport(
            worker=self.name,
            slot=self.slot.number,
            state=self._state,
            store_port=self.ports[0],
            heal_port=self.ports[1],
            since=round(now - self._since, 3),
            broken=self._broken,
            broken_for=round(now - self._broken_at, 3),
            stepped=self.stepped,
            waiting_s=round(self._waits_too_long_for(now), 3),
        )

    def _waits_too_long_for(self, now: float) -> float:
        """For how long it has waited for the others, less what that takes where steps are long; -1: it does not."""
        waits_s = self._page.read().waits_for(now)
        return max(-1.0, waits_s - 3 * self._step_s if self._step_s else waits_s - LENIENT_S)

    # -- progress ---------------------------------------------------------------------------------

    def progress(self) -> Progress:
        return self._page.read()

    def stuck_for(self, timing: Timing) -> float | None:
        """Seconds without progress, if they are too many."""
        now = time.monotonic()
        progress = self._page.read()
        steps, since = self._last
        if progress.steps > steps:
            took = (now - since) / (progress.steps - steps)  # the first time with the making of the group
            self._step_s = took if not self._step_s else 0.8 * self._step_s + 0.2 * took
            self._last = progress.steps, now
        if idle_s := self._does_not_answer(now, timing, waits=progress.phase == WAITING):
            return idle_s
        limit = timing.stuck_s(self._step_s)
        if progress.lenient:
            limit = max(limit, LENIENT_S)
        idle_s = progress.stuck_for(now)
        return idle_s if idle_s > limit else None

    def _does_not_answer(self, now: float, timing: Timing, *, waits: bool) -> float | None:
        """Seconds for which it has been stopped, or has not answered to an urgent view; if they are too many.

        One that waits for the others makes no progress of its own, so that is all there is to see.
        """
        stopped = processes.is_stopped(self.pid)
        self._stopped_at = (self._stopped_at or now) if stopped else None
        if self._stopped_at is not None and now - self._stopped_at > timing.detect_within:
            return now - self._stopped_at
        if waits and self._asked_at is not None and now - self._asked_at > timing.detect_within + ANSWER_S:
            return now - self._asked_at
        return None

    # -- talking ----------------------------------------------------------------------------------

    def tell(self, message: dict[str, Any]) -> None:
        """Say something; what a stopped worker does not take is kept for it."""
        if message.get("urgent"):
            self._asked_at = self._asked_at or time.monotonic()
        self._unsent += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionError):
            while self._unsent:
                self._unsent = self._unsent[self.link.send(self._unsent) :]

    def hear(self) -> list[dict[str, Any]] | None:
        """What it has said since; None if it will say no more."""
        try:
            data = self.link.recv(CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self._asked_at = None
        *lines, self._unheard = (self._unheard + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def wrote(self, stream: str, text: str) -> None:
        if stream == "err":
            self.tail = (self.tail + text)[-TAIL_CHARACTERS:]

    # -- the end ----------------------------------------------------------------------------------

    def ask_to_leave(self) -> None:
        self.state = LEAVING
        self.tell({"do": "drain"})

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.alive:
            processes.signal_group(self.pid, number)
            if number == signal.SIGKILL:
                return
            processes.signal_group(self.pid, signal.SIGCONT)  # one that is stopped hears nothing else

    def close(self, when_gone: Callable[[int], object]) -> None:
        """The process has ended: let go of its link and its page."""
        when_gone(self.link.fileno())
        self.link.close()
        self._page.close()
