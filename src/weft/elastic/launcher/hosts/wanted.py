"""The hosts that a run should have: as named at the start, in a hostfile, by a script, or by `weft scale`.

A list that cannot be read while the run goes on, or that has become empty, changes nothing: the run keeps the hosts it
has, and the launcher says so once.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.hosts.barred import BarredHosts, hosts_of_failures, line_about, parse_barring
from weft.errors import HostListError
from weft.topology.hostlist import HostEntry, parse_hosts, read_hostfile

DISCOVER_TIMEOUT_S = 10.0  # for a discovery script to answer
DISCOVER_EVERY_S = 1.0  # between an answer of a discovery script and its next start


class HostsWanted:
    """The hosts that are wanted now, from the newest source. `warn` is called with what cannot be read."""

    def __init__(
        self, hosts: Sequence[HostEntry], elastic: ElasticConfig, *, warn: Callable[[str], None]
    ) -> None:
        self.hosts = tuple(hosts)
        self._elastic, self._warn = elastic, warn
        self._warned = ""
        self._hostfile_stamp = _stamp(elastic.hostfile)
        self.scale_file: Path | None = None
        self._scale_stamp: tuple[int, int] | None = None
        self._discovery = Discovery(elastic.discover) if elastic.discover is not None else None
        rule = elastic.bar_hosts
        self._barred = BarredHosts(parse_barring(rule)) if rule is not None else None

    def look(self) -> bool:
        """Read the sources that changed; return whether other hosts are wanted than before."""
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

    def entries(self, now: float, *, alone: str | None = None) -> tuple[HostEntry, ...]:
        """Return the hosts that are wanted and not barred.

        `alone`: the name that this machine has in a run on it alone, whatever it is called in a list of hosts.
        """
        if alone is not None and self.hosts:
            return (replace(self.hosts[0], name=alone),)
        return self.hosts if self._barred is None else self._barred.allowed(self.hosts, now)

    def bar(self, news: Mapping[str, Any], now: float) -> list[str]:
        """Bar the hosts of workers that failed, by one event of a journal; return the lines that tell of them."""
        if self._barred is None:
            return []
        paused = [(host, self._barred.bar(host, now)) for host in hosts_of_failures(news)]
        return [line_about(host, pause_s) for host, pause_s in paused if pause_s is not None]

    def close(self) -> None:
        """Run the discovery script no more."""
        if self._discovery is not None:
            self._discovery.close()

    def _read(self) -> tuple[HostEntry, ...]:
        """Return the hosts of a source that changed; none if no source has."""
        stamp = _stamp(self.scale_file)
        if self.scale_file is not None and stamp != self._scale_stamp:
            self._scale_stamp = stamp
            return read_hostfile(self.scale_file)
        if self._discovery is not None:
            return self._discovery.news()
        hostfile = self._elastic.hostfile
        if hostfile is not None and (stamp := _stamp(hostfile)) != self._hostfile_stamp:
            self._hostfile_stamp = stamp
            return read_hostfile(hostfile)
        return ()


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """Return the time and size of a file, which change when it is written; None if there is none."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if status is not None else None


class Discovery:
    """A discovery script, run again and again in a thread of its own, as it may take its time."""

    def __init__(self, command: str, every_s: float = DISCOVER_EVERY_S) -> None:
        self._command, self._every_s = command, every_s
        self._reported: tuple[HostEntry, ...] = ()
        self._found: tuple[HostEntry, ...] | HostListError = ()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="weft-discover", daemon=True)
        self._thread.start()

    def _repeat(self) -> None:
        while not self._over.is_set():
            try:
                self._found = discover(self._command)
            except HostListError as error:
                self._found = error
            self._over.wait(self._every_s)

    def close(self) -> None:
        """Run the script no more, and wait for the present run to end."""
        self._over.set()
        self._thread.join(DISCOVER_TIMEOUT_S)

    def news(self) -> tuple[HostEntry, ...]:
        """Return the hosts that the script printed last, if they are others than those returned before."""
        found = self._found
        if isinstance(found, HostListError):
            raise found
        if found == self._reported:
            return ()
        self._reported = found
        return found


def discover(command: str) -> tuple[HostEntry, ...]:
    """Run a discovery script, as Horovod does: it prints `host` or `host:slots`, one a line."""
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
