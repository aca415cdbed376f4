"""Which hosts the run should have: as named at the start, in a watched hostfile, by a script, or by `weft scale`.

A list that cannot be read while the run is on, or that has become empty, changes nothing: the run keeps the hosts it
has, and says so once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.elastic.config import ElasticConfig
from weft.errors import HostListError
from weft.topology.hostlist import HostEntry, parse_hosts, read_hostfile

DISCOVER_TIMEOUT_S = 10.0
SCALE_FILE = "hosts"  # in RUN/elastic, written by `weft scale`


class Wanted:
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

    def _read(self) -> tuple[HostEntry, ...]:
        """What is newly said; nothing if nothing has changed."""
        if self.scale_file is not None and (stamp := self._stamp(self.scale_file)) != self._scaled:
            self._scaled = stamp
            return read_hostfile(self.scale_file)
        if self._elastic.discover is not None:
            return discover(self._elastic.discover)
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
