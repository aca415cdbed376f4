"""The pods that have come, as the first one knows them: each tells where it listens, and when it has to go.

Names need not be looked up but for that of the first pod, which the others call until it answers. A pod that replaces
another one has its name and tells its own address.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from weft.errors import ConnectError, UsageError
from weft.files import write_whole
from weft.launch.engines.pods.lines import keep_alive, listen_at, receive_line, send_line
from weft.launch.engines.pods.place import PodPlace, place_from
from weft.secret import admit

TELL_EVERY_S = 10.0  # which pods have not come yet
ADMIT_TIMEOUT_S = 5.0


@dataclass
class PodMember:
    """One pod that has come."""

    index: int
    address: str
    port: int
    connection: socket.socket = field(repr=False)
    leaves: bool = False  # it was told to go


class PodMembers:
    """The pods of a run. Their calls are answered in threads; `hostfile` lists those that are to take part."""

    def __init__(self, place: PodPlace) -> None:
        self.place = place
        self._members: dict[int, PodMember] = {}
        self._leaves = False  # this pod itself
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
        """Wait until so many pods are there, this one included, or the time is over; say who is missing."""
        with self._changed:
            began = told_at = time.monotonic()
            while len(self._members) + 1 < count and time.monotonic() - began < timeout_s:
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

    def end(self, code: int) -> None:
        """Tell all pods that the run is over."""
        with self._changed:
            for member in self._members.values():
                with contextlib.suppress(OSError):
                    send_line(member.connection, {"over": code})

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
        member: PodMember | None = None
        with connection, contextlib.suppress(OSError, ConnectError):
            connection.settimeout(ADMIT_TIMEOUT_S)
            admit(connection, self.place.secret)
            hello = receive_line(connection)
            if hello is None:
                return
            member = PodMember(int(hello["index"]), str(hello["address"]), int(hello["port"]), connection)
            connection.settimeout(None)
            keep_alive(connection)
            with self._changed:
                self._members[member.index] = member
                self._write()
                self._changed.notify_all()
            while (message := receive_line(connection)) is not None:
                if message.get("leave"):
                    with self._changed:
                        member.leaves = True
                        self._write()

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


@cache
def members() -> PodMembers:
    """Return the pods of the run that this process launches; the first call opens the port at which they call."""
    return PodMembers(place_from(os.environ))
