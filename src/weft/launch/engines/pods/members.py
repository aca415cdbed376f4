"""The pods that have come, as the first one knows them: each tells where it listens, and when it has to go.

Names need not be looked up but for that of the first pod, which the others call until it answers. A pod that replaces
another one has its name and tells its own address.

The first pod of an elastic run may be lost as well. What its replacement has to know is therefore kept by some of the
others (`KeptRun`), which tell it when they call. Until the new first pod has decided to go on with that run, or to
begin anew, pods with workers of it are left alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from weft.errors import ConnectError, UsageError
from weft.files import write_whole
from weft.launch.engines.pods.lines import keep_alive, listen_at, receive_line, send_line
from weft.launch.engines.pods.place import PodPlace, place_from
from weft.secret import admit

TELL_EVERY_S = 10.0  # which pods have not come yet
ADMIT_TIMEOUT_S = 5.0
KEEPERS = 16  # pods that keep what a new first pod has to know
FIND_S = 10.0  # for a pod that keeps a run to call, once one with workers of it has
ANEW_S = 15.0  # for pods to end the workers of a run that is not gone on with


@dataclass(frozen=True, kw_only=True)
class KeptRun:
    """An elastic run as its first pod wrote it down: what another first pod needs to go on with it."""

    serial: int  # the newest has the highest
    run: str
    control: str  # the content of its control file
    secret: str = field(repr=False)


@dataclass
class PodMember:
    """One pod that has come."""

    index: int
    address: str
    port: int
    connection: socket.socket = field(repr=False)
    busy: bool = False  # it has workers of an earlier first pod's run
    leaves: bool = False  # it was told to go
    keeps: int = 0  # the serial number of what it keeps


class PodMembers:
    """The pods of a run. Their calls are answered in threads; `hostfile` lists those that are to take part."""

    def __init__(self, place: PodPlace) -> None:
        self.place = place
        self._members: dict[int, PodMember] = {}
        self._leaves = False  # this pod itself
        self._found: KeptRun | None = None  # an earlier first pod's run
        self._kept: KeptRun | None = None  # this one's
        self._anew = False  # no earlier run is gone on with
        self._changed = threading.Condition()
        self._folder = tempfile.TemporaryDirectory(prefix="weft-pods-")
        self.hostfile = Path(self._folder.name, "hosts")
        self.secret_file = Path(self._folder.name, "secret")  # for the programs that call other pods
        self.secret_file.touch(0o600)
        self.secret_file.write_text(place.secret)
        try:
            self._listener = listen_at(place.address, place.port, backlog=1024)
        except OSError as error:
            raise UsageError(
                f"the port of the pods must be free, got {place.port} on {place.address or 'this pod'}: "
                f"{error.strerror}; set `port` to another"
            ) from None
        self._write()
        threading.Thread(target=self._answer, name="weft-members", daemon=True).start()

    def wait(self, count: int, say: Callable[[str], None], timeout_s: float = float("inf")) -> None:
        """Wait until the given number of pods is there, this one included, or the time is over; say who is missing.

        A run that goes on without its first pod is not kept waiting.
        """
        with self._changed:
            began = told_at = time.monotonic()
            while len(self._members) + 1 < count and time.monotonic() - began < timeout_s:
                if self._found is not None:
                    return
                self._changed.wait(min(0.5, timeout_s))
                if time.monotonic() - told_at > TELL_EVERY_S:
                    told_at = time.monotonic()
                    say(f"weft: waits for {self._missing(count)}")

    def _missing(self, count: int) -> str:
        missing = [self.place.host(index) for index in range(1, count) if index not in self._members]
        return ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")

    def address_of(self, name: str) -> tuple[str, int]:
        """Return where a pod listens; raise `ConnectError` for one that has not come."""
        with self._changed:
            for member in self._members.values():
                if self.place.host(member.index) == name:
                    return member.address, member.port
        raise ConnectError(f"{name}: the pod must have come, got nothing from it yet")

    def leave(self) -> None:
        """Have the workers of this pod leave the run."""
        with self._changed:
            self._leaves = True
            self._write()

    def write_hosts(self) -> None:
        """Write the file of hosts again, for a reader that knows only of changes."""
        with self._changed:
            self._write()

    @property
    def others_stay(self) -> bool:
        """Return whether another pod has come that was not told to go."""
        with self._changed:
            return any(not member.leaves for member in self._members.values())

    def end(self, code: int) -> None:
        """Tell all pods that the run is over."""
        with self._changed:
            for member in self._members.values():
                with contextlib.suppress(OSError):
                    send_line(member.connection, {"over": code})

    # -- a run whose first pod was lost -----------------------------------------------------------

    def find_run(self) -> KeptRun | None:
        """Return the run of an earlier first pod, if there is one; wait for it while a pod has workers of it."""
        with self._changed:
            deadline = time.monotonic() + FIND_S
            while self._found is None and any(member.busy for member in self._members.values()):
                if time.monotonic() > deadline:
                    break
                self._changed.wait(0.5)
            return self._found

    def begin_anew(self) -> None:
        """Have all pods end what they have of an earlier run, and wait for that."""
        with self._changed:
            self._anew, self._found = True, None
            for member in self._members.values():
                if member.busy:
                    _try_to_send(member, {"anew": True})
            deadline = time.monotonic() + ANEW_S
            while any(member.busy for member in self._members.values()) and time.monotonic() < deadline:
                self._changed.wait(0.5)

    def keep(self, run: str, control: str, secret: str) -> None:
        """Have some pods keep what another first pod would have to know of the run."""
        with self._changed:
            serial = max((kept.serial for kept in (self._kept, self._found) if kept is not None), default=0)
            self._kept = KeptRun(serial=serial + 1, run=run, control=control, secret=secret)
            self._spread()

    def _spread(self) -> None:
        """Send the newest to the first few pods that stay; the others hear which run it is."""
        if self._kept is None:
            return
        staying = [member for _, member in sorted(self._members.items()) if not member.leaves]
        for place, member in enumerate(staying):
            if member.keeps != self._kept.serial:
                news = {"keep": asdict(self._kept)} if place < KEEPERS else {"run": self._kept.run}
                if place < KEEPERS or not member.keeps:
                    _try_to_send(member, news)
                member.keeps = self._kept.serial

    # -- calls ------------------------------------------------------------------------------------

    def _answer(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: socket.socket) -> None:
        """Take in what one pod says, until it is gone."""
        with connection, contextlib.suppress(OSError, ConnectError):
            connection.settimeout(ADMIT_TIMEOUT_S)
            admit(connection, self.place.secret)
            hello = receive_line(connection)
            if hello is None:
                return
            connection.settimeout(None)
            keep_alive(connection)
            member = PodMember(
                int(hello["index"]),
                str(hello["address"]),
                int(hello["port"]),
                connection,
                busy=bool(hello.get("busy")),
            )
            if self._is_stale(hello):  # it takes part once it has ended what it has
                send_line(connection, {"anew": True})
            else:
                self._take(member, hello)
            while (message := receive_line(connection)) is not None:
                self._on_message(member, message)

    def _is_stale(self, hello: dict[str, Any]) -> bool:
        """Return whether a pod has workers of a run that this one has decided not to go on with."""
        with self._changed:
            own = self._kept.run if self._kept is not None else ""
            return self._anew and bool(hello.get("busy")) and hello.get("run") != own

    def _take(self, member: PodMember, hello: dict[str, Any]) -> None:
        with self._changed:
            if self._anew or self._kept is not None:
                member.busy = False  # its workers are those of this run
            elif (kept := hello.get("kept")) is not None:
                found = KeptRun(**kept)
                if self._found is None or found.serial > self._found.serial:
                    self._found = found
            self._members[member.index] = member
            self._write()
            self._spread()
            self._changed.notify_all()

    def _on_message(self, member: PodMember, message: dict[str, Any]) -> None:
        with self._changed:
            if message.get("ready"):
                member.busy = False
                self._members[member.index] = member
            member.leaves = member.leaves or bool(message.get("leave"))
            self._write()
            self._spread()
            self._changed.notify_all()

    def _write(self) -> None:
        """Write down which pods are to take part."""
        names = [] if self._leaves else [self.place.name]
        names += [
            self.place.host(index) for index, member in sorted(self._members.items()) if not member.leaves
        ]
        write_whole(self.hostfile, "".join(f"{name}\n" for name in names))

    @property
    def names(self) -> tuple[str, ...]:
        """The pods that are to take part now."""
        return tuple(self.hostfile.read_text().split())


def _try_to_send(member: PodMember, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        send_line(member.connection, message)


@cache
def members() -> PodMembers:
    """Return the pods of the run that this process launches; the first call opens the port at which they call."""
    return PodMembers(place_from(os.environ))
