"""Adopting an elastic run: a new launcher for a run that goes on while the one that started it is gone.

The agents finish a run without a launcher. Whoever adopts it shows its output again, also what was printed meanwhile,
brings hosts in and out, and writes down how it ended. The new launcher starts a program on every host of the run, as
the first one did; where an agent of the run is there, that program relays between the two
(`agent/launcher_link.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from weft.elastic.agent.launcher_messages import (
    AgentAbsent,
    AgentAttached,
    ElasticEvent,
)
from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.control import (
    LauncherLock,
    RunControl,
    read_control,
    read_secret,
    settings_from_json,
)
from weft.elastic.launcher.launcher import ANSWER_S, GATHER_TURN_S, ElasticLauncher
from weft.elastic.launcher.recruits import HostRecord, HostState
from weft.elastic.launcher.run_files import RunFiles
from weft.elastic.launcher.scale import wanted_hosts
from weft.errors import ConnectError, UsageError
from weft.launch.agent.protocol import SignalReceived
from weft.launch.config import LaunchConfig
from weft.launch.control.conductor import signals_to
from weft.launch.control.outcome import Outcome
from weft.launch.control.rundir import RunDir
from weft.secret import VARIABLE as SECRET_VARIABLE

ALL_LOST = (
    "all agents of the run are lost, and its workers with them; start it again with the same --checkpoint"
)


def adopt(run_dir: Path, *, out: BinaryIO, kind: type[AdoptingLauncher] | None = None) -> Outcome:
    """Become the launcher of a run that has lost its own; return, and write down, how it ended."""
    run_dir = run_dir.absolute()
    control = read_control(run_dir)
    _require_not_ended(run_dir)
    with closing(LauncherLock(run_dir)) as lock:
        _require_not_ended(run_dir)  # another launcher may have just brought it to its end
        if not control.run:
            raise UsageError(
                f"a run must be one of this version of weft to be adopted, got {run_dir}; let it end"
            )
        config, elastic = settings_from_json(control)
        kind = kind or AdoptingLauncher
        launcher = kind(config, elastic, out, control=control, run_dir=run_dir, lock=lock)
        with closing(launcher):
            return launcher.run()


def _require_not_ended(run_dir: Path) -> None:
    if (run_dir / "outcome.json").exists():
        raise UsageError(f"a run must still go on to be adopted, got {run_dir} which has ended")


class AdoptingLauncher(ElasticLauncher):
    """The launcher of a run that another one has started."""

    def __init__(
        self,
        config: LaunchConfig,
        elastic: ElasticConfig,
        out: BinaryIO,
        *,
        control: RunControl,
        run_dir: Path,
        lock: LauncherLock,
    ) -> None:
        super().__init__(config, elastic, out, secret=read_secret(run_dir), local=control.local)
        self._files = RunFiles(RunDir(run_dir), warn=self._say, lock=lock)
        self._run, self._began_s, self._first = control.run, control.began_s, control.first
        self._known = control.known
        self._settling = True  # hosts are asked for their agents
        self._absent: set[str] = set()  # hosts that have none

    def run(self) -> Outcome:
        """Find the agents of the run, and stay until it is over."""
        with signals_to(lambda number: self._crew.inbox.put(("", SignalReceived(number)))):
            self._remember()
            self._open()
            self._keep_control()
            for name in list(self._hosts):
                self._recruits.call(name)
            self._settle()
            return self._stay()

    def _remember(self) -> None:
        """Take over what the launcher before this one knew of the hosts."""
        for name, known in self._known.items():
            self._hosts[name] = HostRecord(
                name, ranks=list(known.ranks), lives=known.lives, witness=known.witness, at=known.at
            )
        ranks = [rank for known in self._known.values() for rank in known.ranks]
        self._recruits.number_from(max(ranks, default=-1) + 1)
        if self._config.hosts or not self._local:
            self._scaler.wanted.hosts = wanted_hosts(self._run_files.path)
        for entry in self._scaler.entries():
            self._hosts.setdefault(entry.name, HostRecord(entry.name))
        self._recruits.config = replace(self._config, hosts=self._scaler.entries())

    # -- finding the agents -----------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait until every host has told whether it has an agent of the run, then go on with what there is."""
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline and not all(map(self._is_settled, self._hosts.values())):
            self._hear_next(GATHER_TURN_S)
        self._settling = False
        if not self._over and not self._running():
            self._give_up()
        for host in [self._hosts[name] for name in sorted(self._absent)]:
            if host.state == HostState.LISTENING:  # or what answered has ended since: it is called again
                self._go_on_without_agent(host)

    def _is_settled(self, host: HostRecord) -> bool:
        settled = (HostState.RUNNING, HostState.DONE, HostState.GONE, HostState.AWAY)
        return host.state in settled or host.name in self._absent

    def _give_up(self) -> None:
        """End a run of which no host has an agent; raise if a host that does not answer may have one."""
        away = [
            host for host in self._hosts.values() if not self._is_settled(host) or not self._is_asked(host)
        ]
        if away:
            raise ConnectError(
                "an agent of the run must be reached to adopt it, got none; try again\n"
                + "\n".join(
                    host.trouble or f"{host.name} did not answer within {ANSWER_S:g} s" for host in away
                )
            )
        self._over, self._code = ALL_LOST, 1

    def _is_asked(self, host: HostRecord) -> bool:
        return host.state != HostState.AWAY

    def _go_on_without_agent(self, host: HostRecord) -> None:
        """Begin anew on a host whose agent is gone, if it is wanted and the run goes on."""
        if host.lives and not host.witness:  # what its workers have started may have outlived them
            self._recruits.sweep(host, self._run)
        if not (self._is_ending or host.witness or host.name in self._scaler.names()):
            self._let_go(host)
            host.dismissed = True
            return
        if not (self._is_ending or host.witness):
            self._recruits.plan_workers(host)
        super()._go_on_without_agent(host)

    # -- what agents tell -------------------------------------------------------------------------

    def _on_listening(self, host: HostRecord) -> None:
        if self._settling:
            self._ask_for_agent(host)
        else:
            super()._on_listening(host)

    def _on_event(self, host: HostRecord, event: ElasticEvent) -> None:
        if isinstance(event, AgentAbsent) and self._settling:
            self._absent.add(host.name)
        else:
            super()._on_event(host, event)

    def _on_attached(self, host: HostRecord, event: AgentAttached) -> None:
        if self._settling:
            self._take_environment(event.env)
            # Of a witness, which has no site, nothing is planned.
            placed = next((one for one in (host, *self._hosts.values()) if one.site is not None), None)
            if placed is not None:
                self._recruits.plan_workers(placed)
        super()._on_attached(host, event)

    def _take_environment(self, env: Mapping[str, str]) -> None:
        """Give workers that are started from now on the environment of the others."""
        self._recruits.carried = {name: value for name, value in env.items() if name != SECRET_VARIABLE}
        given = tuple((name, env.get(name, value)) for name, value in self._config.env)
        self._config = replace(self._config, env=given)
        self._recruits.config = replace(self._config, hosts=self._scaler.entries())
        self._recruits.plan = None
