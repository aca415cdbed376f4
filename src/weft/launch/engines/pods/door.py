"""A pod other than the first: it tells the first one where it is, and lets it start agents here.

The pod stays as long as the run does. It is told the end by the first pod, and ends after it: the exit code of that
pod is the one of the run.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from weft.errors import ConnectError, UsageError
from weft.launch.control.outcome import Outcome
from weft.launch.engines.pods.lines import (
    CONNECT_TIMEOUT_S,
    keep_alive,
    listen_at,
    reach,
    receive_line,
    send_line,
)
from weft.launch.engines.pods.place import PodPlace
from weft.secret import admit

CALL_EVERY_S = 0.2  # until the first pod answers
LEADER_GONE_S = 30.0  # for the first pod to end once it has said that the run is over
POLITE_S = 5.0  # between asking what still runs here to end, and ending it
SIGTERM_CODE = 128 + signal.SIGTERM


@dataclass
class PodDoor:
    """One pod's side of the run. `elastic`: the workers here go on without the first pod, and under another one."""

    place: PodPlace
    elastic: bool
    _agents: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _link: socket.socket | None = None
    _leaving: threading.Event = field(default_factory=threading.Event)
    _run: str = ""  # the one that the agents here are of
    _kept: dict[str, Any] | None = None  # what another first pod has to know of it

    def serve(self) -> int:
        """Stay until the run is over; return the exit code of this pod."""
        try:
            listener = listen_at(self.place.address, self.place.port, backlog=64)
        except OSError as error:
            raise UsageError(
                f"the port of the pods must be free, got {self.place.port}: {error.strerror}; set `port` to another"
            ) from None
        with listener:
            threading.Thread(target=self._answer, args=(listener,), daemon=True).start()
            code = self._attend()
        self._end_agents()
        return code

    def leave(self) -> None:
        """Leave the run: this pod has been told to go."""
        self._leaving.set()
        link = self._link
        if link is not None:
            with contextlib.suppress(OSError):
                send_line(link, {"leave": True})
                if not self.elastic:
                    link.shutdown(socket.SHUT_RDWR)

    # -- the first pod ----------------------------------------------------------------------------

    def _attend(self) -> int:
        """Keep the first pod informed; return how this pod is to end."""
        attended = False
        while not self._leaving.is_set():
            link = self._call_leader()
            if link is None:
                break
            attended = True
            over = self._hear(link)
            if over is not None:
                self._await_end(link)
                return 0 if over == 0 else 1
            if not self.elastic and not self._leaving.is_set():
                print(f"weft: {self.place.host(0)} is lost, and the run with it", file=sys.stderr)
                return 1
        if attended and self.elastic:
            self._await_agents()
        # Not 0, even where all went well: a Job counts a deleted pod that succeeds as done, and makes no other one.
        return SIGTERM_CODE

    def _call_leader(self) -> socket.socket | None:
        """Call the first pod until it answers; None if this pod has to go before."""
        own = socket.gethostname()
        while not self._leaving.is_set():
            try:
                link = reach(self.place.leader, self.place.port, self.place.secret)
                address = self.place.address or link.getsockname()[0]
                hello = {"index": self.place.index, "address": address, "port": self.place.port, "host": own}
                send_line(link, {**hello, **self._what_is_here()})
            except (OSError, ConnectError):
                self._leaving.wait(CALL_EVERY_S)
                continue
            link.settimeout(None)
            keep_alive(link)
            self._link = link
            if self._leaving.is_set():
                self.leave()
            return link
        return None

    def _what_is_here(self) -> dict[str, Any]:
        """Return what a new first pod has to know: whether a run goes on here, and which."""
        busy = any(agent.poll() is None for agent in self._agents)
        if not (self._run or busy):
            return {}
        return {"run": self._run, "busy": busy, **({} if self._kept is None else {"kept": self._kept})}

    def _hear(self, link: socket.socket) -> int | None:
        """Return the exit code of the run when the first pod tells it; None when the first pod is gone."""
        with contextlib.suppress(OSError, ConnectError):
            while (message := receive_line(link)) is not None:
                if "over" in message:
                    return int(message["over"])
                if "keep" in message:
                    self._kept, self._run = message["keep"], message["keep"]["run"]
                elif "run" in message:
                    self._kept, self._run = None, message["run"]
                elif "anew" in message:  # from what was saved, so nothing may go on here
                    self._end_agents()
                    self._kept, self._run = None, ""
                    send_line(link, {"ready": True})
        return None

    def _await_end(self, link: socket.socket) -> None:
        """Wait for the first pod to be gone, so that its exit code is the first that the cluster sees."""
        link.settimeout(LEADER_GONE_S)
        with contextlib.suppress(OSError):
            while link.recv(1024):
                pass

    # -- agents -----------------------------------------------------------------------------------

    def _answer(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._start, args=(connection,), daemon=True).start()

    def _start(self, connection: socket.socket) -> None:
        """Start a command for the first pod, and wait for its end; its standard streams are the connection."""
        with connection, contextlib.suppress(OSError, ConnectError):
            connection.settimeout(CONNECT_TIMEOUT_S)
            admit(connection, self.place.secret)
            order = receive_line(connection)
            if order is None:
                return
            connection.settimeout(None)
            keep_alive(connection)
            argv, stream = [str(word) for word in order["argv"]], connection.fileno()
            agent = subprocess.Popen(argv, stdin=stream, stdout=stream, start_new_session=True)
            with self._lock:
                self._agents = [other for other in self._agents if other.poll() is None] + [agent]
            connection.close()  # it stays open where the agent has it
            agent.wait()

    def _await_agents(self) -> None:
        while any(agent.poll() is None for agent in self._agents):
            time.sleep(0.05)

    def _end_agents(self) -> None:
        with self._lock:
            left = [agent for agent in self._agents if agent.poll() is None]
        for agent in left:
            agent.terminate()
        deadline = time.monotonic() + POLITE_S
        for agent in left:
            try:
                agent.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                agent.kill()


def serve_door(place: PodPlace, *, elastic: bool) -> Outcome:
    """Be a pod other than the first until the run is over."""
    began = time.monotonic()
    door = PodDoor(place, elastic)
    for number in (signal.SIGTERM, signal.SIGINT):
        # In a thread: the handler may have interrupted whoever holds the connection.
        signal.signal(number, lambda *_: threading.Thread(target=door.leave, daemon=True).start())
    code = door.serve()
    return Outcome(code=code, codes={}, seconds=time.monotonic() - began)
