"""The scaler of a run: it brings the hosts of a run to those that are wanted, and their workers to so many."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.decisions import (
    hosts_to_call,
    hosts_to_dismiss,
    hosts_to_resize,
    too_few_slots,
)
from weft.elastic.launcher.hosts.wanted import HostsWanted
from weft.elastic.launcher.recruits import HostRecord, HostState, Recruits
from weft.launch.agent.here import is_this_machine
from weft.topology.hostlist import HostEntry


class HostScaler:
    """Calls, resizes and dismisses the hosts of one run. `local`: it runs on this machine alone."""

    def __init__(
        self, recruits: Recruits, elastic: ElasticConfig, *, local: bool, say: Callable[[str], None]
    ) -> None:
        self._recruits, self._elastic, self._local, self._say = recruits, elastic, local, say
        self.wanted = HostsWanted(recruits.config.hosts, elastic, warn=say)
        self._refused: tuple[HostEntry, ...] = ()  # the hosts that were too few, as was said

    def follow(self, scale_file: Path) -> None:
        """Look for requests of `weft scale` from now on."""
        self.wanted.scale_file = scale_file

    def close(self) -> None:
        """Run the discovery script no more."""
        self.wanted.close()

    def entries(self) -> tuple[HostEntry, ...]:
        """Return the hosts that are wanted; of a run on this machine alone by its name in the run."""
        alone = next(iter(self._recruits.hosts), None) if self._local else None
        return self.wanted.entries(time.monotonic(), alone=alone)

    def names(self) -> AbstractSet[str]:
        """Return the names of the hosts that are wanted; all known ones where none is named."""
        return {entry.name for entry in self.entries()} or self._recruits.hosts.keys()

    def expected_workers(self) -> int:
        """Return how many workers the hosts that are wanted are to have."""
        wanted = self.names()
        return sum(
            len(host.plan.workers)
            for host in self._recruits.hosts.values()
            if host.plan is not None and host.name in wanted
        )

    def bar(self, news: Mapping[str, Any]) -> list[str]:
        """Bar the hosts of workers that failed, by an event of a journal; return the lines that tell of them."""
        return [] if self._local else self.wanted.bar(news, time.monotonic())

    def look(self) -> None:
        """Read the sources of wanted hosts, and call the hosts that are newly wanted."""
        if not self.wanted.look():
            return
        elsewhere = [entry.name for entry in self.wanted.hosts if not is_this_machine(entry.name)]
        if self._local and (len(self.wanted.hosts) > 1 or elsewhere):
            self._say(
                "hosts can be added to a run that was started on named hosts or with --engine ssh, got "
                f"{', '.join(entry.name for entry in self.wanted.hosts)}"
            )
            self.wanted.hosts = self._recruits.config.hosts
            return
        self._recruits.config = replace(self._recruits.config, hosts=self.entries())
        known = self._recruits.hosts
        for name in [] if self._local else [entry.name for entry in self.entries()]:
            if name not in known or known[name].state in (HostState.AWAY, HostState.GONE):
                self._say(f"{name} is wanted")
                self._recruits.call(name)

    def resize(self) -> bool:
        """Plan as many workers on each host as are wanted there; return whether a plan changed."""
        entries = self.entries()
        changed = hosts_to_resize(self._recruits.hosts, entries)
        if not changed:
            return False
        per_host = self._recruits.config.per_host
        trouble = too_few_slots(
            entries,
            least=self._elastic.least,
            most=self._elastic.most,
            per_host=per_host if isinstance(per_host, int) else None,
        )
        if trouble is not None:
            if entries != self._refused:
                self._say(f"{trouble}; nothing is changed")
            self._refused = entries
            return False
        for host in changed:
            self._recruits.plan_workers(host)
        return True

    def dismiss(self) -> list[HostRecord]:
        """Mark the hosts that are no longer wanted as leaving, and return them."""
        if self._local:
            return []
        wanted = {entry.name for entry in self.entries()}
        leaving = hosts_to_dismiss(self._recruits.hosts, wanted, self._elastic.least)
        for host in leaving:
            self._say(f"{host.name} is no longer wanted; its workers leave")
            host.state, host.dismissed = HostState.LEAVING, True
        return leaving

    def call_absent(self, now: float) -> None:
        """Try the hosts again that are wanted and away."""
        for host in hosts_to_call(self._recruits.hosts.values(), self.names(), now):
            if host.state == HostState.GONE:
                host.dismissed = False
            self._recruits.call(host.name)
