"""Which hosts the run should have: as named at the start, in a watched hostfile, by a script, or by `weft scale`.

A list that cannot be read while the run is on, or that has become empty, changes nothing: the run keeps the hosts it
has, and says so once.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.elastic.config import ElasticConfig
from weft.errors import HostListError
from weft.topology.hostlist import HostEntry, parse_hosts, read_hostfile

DISCOVER_TIMEOUT_S = 10.0
DISCOVER_EVERY_S = 1.0
SCALE_FILE = "hosts"  # in RUN/elastic, written by `weft scale`


class HostsWanted:
    """The hosts that are wanted now."""

    def __init__(
        self, hosts: Sequence[HostEntry], elastic: ElasticConfig, *, warn: Callable[[str], None]
    ) -> None:
        self.hosts = tuple(hosts)
        self._elastic, self._warn = elastic, warn
        self._warned = ""
        self._seen = self._stamp(elastic.hostfile)
        self.scale_file: Path | None = None
        self._scaled: tuple[int, int] | None = None
        self._asking = Asking(elastic.discover) if elastic.discover is not None else None

    def look(self) -> bool:
        """See whether other hosts are wanted than before."""
        before = self.hosts
        try:
            self.hosts = self._read() or self.hosts
            self._warned = ""
        except HostListError as error:
            names = ", ".join(entry.name for entry in self.hosts)
            if str(error) != self._warned:
                self._warned = str(error)
                self._warn(f"{error}; the run keeps {names}")
        return self.hosts != before

    def close(self) -> None:
        if self._asking is not None:
            self._asking.close()

    def _read(self) -> tuple[HostEntry, ...]:
        """What is newly said; nothing if nothing has changed."""
        if self.scale_file is not None and (stamp := self._stamp(self.scale_file)) != self._scaled:
            self._scaled = stamp
            return read_hostfile(self.scale_file)
        if self._asking is not None:
            return self._asking.news()
        if (
            self._elastic.hostfile is not None
            and (stamp := self._stamp(self._elastic.hostfile)) != self._seen
        ):
            self._seen = stamp
            return read_hostfile(self._elastic.hostfile)
        return ()

    @staticmethod
    def _stamp(path: Path | None) -> tuple[int, int] | None:
        try:
            status = path.stat() if path is not None else None
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size) if status is not None else None


class Asking:
    """Asks a discovery script again and again, in a thread of its own: it may take its time."""

    def __init__(self, command: str, every_s: float = DISCOVER_EVERY_S) -> None:
        self._command, self._every_s = command, every_s
        self._told: tuple[HostEntry, ...] = ()
        self._found: tuple[HostEntry, ...] | HostListError = ()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="weft-discover", daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._over.is_set():
            try:
                self._found = discover(self._command)
            except HostListError as error:
                self._found = error
            self._over.wait(self._every_s)

    def close(self) -> None:
        """Ask no more."""
        self._over.set()
        self._thread.join(DISCOVER_TIMEOUT_S)

    def news(self) -> tuple[HostEntry, ...]:
        """What it found, if that is not what it found before."""
        found = self._found
        if isinstance(found, HostListError):
            raise found
        if found == self._told:
            return ()
        self._told = found
        return found


def discover(command: str) -> tuple[HostEntry, ...]:
    """Ask a discovery script, as Horovod does: it prints `host` or `host:slots`, one a line."""
    try:
        found = subprocess.run(
            command, shell=True, capture_output=True, text=True, timeout=DISCOVER_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise HostListError(
            f"a discovery script must answer within {DISCOVER_TIMEOUT_S:g} s, got silence from {command!r}"
        ) from None
    if found.returncode:
        complaint = found.stderr.strip().splitlines()
        raise HostListError(
            f"a discovery script must exit with 0, got {found.returncode} from {command!r}"
            + (f": {complaint[-1]}" if complaint else "")
        )
    lines = [line.strip() for line in found.stdout.splitlines() if line.strip()]
    if not lines:
        raise HostListError(f"a discovery script must print at least one host, got none from {command!r}")
    return parse_hosts(",".join(lines))
