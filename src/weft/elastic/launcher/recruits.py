"""Hosts brought into an elastic run one by one: start an agent, survey the host, find where the others reach it.

How an agent is started on a host, and what a host is asked, is that of every launch (`weft.launch.engines.hosts`). Here
each host goes its own way at its own pace, and what fails is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from weft.elastic.agent.launcher_messages import AgentListening, read_event
from weft.errors import ConnectError
from weft.launch.address import candidates
from weft.launch.agent.here import LOOPBACK
from weft.launch.agent.protocol import BecomeProgram, FilesFound, FindRoutes, HostSurveyed, RoutesFound
from weft.launch.agent.survey import Survey
from weft.launch.config import LaunchConfig, carried_variables
from weft.launch.control.agents import AgentPool, PoolEvent
from weft.launch.engines.hosts import Hosts, LocalHosts, look_question, missing_files, site_at
from weft.launch.engines.local import explain_agent, lone_site
from weft.launch.plan import HostPlan, LaunchPlan, make_plan
from weft.launch.sites import HostSite
from weft.topology.detect import detect
from weft.topology.hostlist import HostEntry

# Seconds before a host that is lost, or was never there, is tried again, by how often it was tried.
RETRY_PAUSES_S = (0.5, 1.0, 2.0, 5.0)
AGENT = "weft.elastic.agent.main"  # the module that an agent of `weft.launch` goes on as


class HostState(Enum):
    """The stages of a host on its way into an elastic run and out of it."""

    AWAY = auto()  # not reached, or lost; tried again after a pause
    CALLED = auto()  # an agent is being started there
    SURVEYED = auto()  # the host has described itself
    LISTENING = auto()  # its elastic agent has told where it listens, and waits for the run
    RUNNING = auto()  # its agent takes part in the run
    LEAVING = auto()  # its agent was asked to leave, because the host is no longer wanted
    DONE = auto()  # its agent has seen the end of the run
    GONE = auto()  # its agent has ended, as it should


@dataclass
class HostRecord:
    """One host of the run, as far as the launcher has got with it."""

    name: str
    state: HostState = HostState.AWAY
    survey: Survey | None = None
    has_files: bool = False  # the host has the folder and the script of the run
    agent: str = ""  # the name of its agent
    address: str = ""
    port: int = 0
    site: HostSite | None = None
    entry: HostEntry | None = (
        None  # the request that the plan was made from; None: no number of workers was named
    )
    plan: HostPlan | None = None
    ranks: list[int] = field(default_factory=list)  # under which the output of its slots is shown
    tries: int = 0  # in a row that failed
    retry_at: float = 0.0  # monotonic seconds
    lives: int = 0  # agents of this host that were told to begin
    view: int = -1  # the newest that its agent knows
    dismissed: bool = False  # it left because it was not wanted
    workers: int = 0  # that take part, or could at once
    alive: int = 0  # worker processes that are there, those that are about to leave included
    witness: bool = False  # its agent votes and has no workers
    at: str = ""  # the host of a witness that was asked for; a witness without one is on this machine
    trouble: str = ""

    @property
    def machine(self) -> str:
        """The name by which the machine is reached."""
        return self.at or ("localhost" if self.witness else self.name)


class Recruits:
    """All hosts of an elastic run, by name. `on_listening` is called when the agent of a host listens."""

    def __init__(
        self, config: LaunchConfig, hosts: Hosts, on_listening: Callable[[HostRecord], None]
    ) -> None:
        self.config = config
        self.hosts: dict[str, HostRecord] = {}
        self.crew = AgentPool([], explain=self._explain, read=read_event)
        self.plan: LaunchPlan | None = None  # of the first host; but for its workers that of any
        self.carried: Mapping[str, str] = carried_variables()  # to every worker
        self._reached, self._on_listening = hosts, on_listening
        self._next_rank = 0

    # -- calling ----------------------------------------------------------------------------------

    def call(self, name: str) -> None:
        """Start an agent on a host."""
        host = self.hosts.setdefault(name, HostRecord(name))
        host.state, host.survey, host.has_files, host.address = HostState.CALLED, None, False, ""
        self._reached.prepare()
        try:
            self.crew.join(replace(self._reached.agent_command(host.machine), host=name))
        except ConnectError as error:
            self.mark_away(host, str(error))

    def number_from(self, rank: int) -> None:
        """Give the output of new slots this rank and those that follow."""
        self._next_rank = rank

    def sweep(self, host: HostRecord, run: str) -> None:
        """End what is left of the run on a host that has no agent of it any more."""
        self._reached.sweep(host.machine, run)

    def miss(self, name: str, trouble: str) -> None:
        """Note a host that is known not to be there; it is called after a pause."""
        self.mark_away(self.hosts.setdefault(name, HostRecord(name)), trouble)

    def call_witness(self, at: str | None) -> None:
        """Start an agent without workers, on `at` or on this machine: of two hosts, it tells which one is lost."""
        name = f"{at}-witness" if at else f"{detect().name}-launcher"
        self.hosts[name] = HostRecord(name, witness=True, at=at or "")
        self.call(name)

    def mark_away(self, host: HostRecord, trouble: str) -> None:
        """Note that a host is not there, and when to try it again."""
        host.state, host.trouble = HostState.AWAY, trouble
        pause_s = RETRY_PAUSES_S[min(host.tries, len(RETRY_PAUSES_S) - 1)]
        host.retry_at = time.monotonic() + pause_s
        host.tries, host.workers = host.tries + 1, 0
        self._locate_the_rest()

    def _explain(self, host: str, code: int | None, complaint: str) -> str:
        machine = self.hosts[host].machine
        if self._reached.is_here(machine):
            return explain_agent(host, code, complaint)
        return self._reached.explain(machine, code, complaint)

    # -- answers ----------------------------------------------------------------------------------

    def hear(self, host: HostRecord, event: PoolEvent) -> None:
        """Take in what a host answers on its way into the run."""
        match event:
            case HostSurveyed(survey):
                self._on_survey(host, survey)
            case FilesFound():
                self._on_files(host, event)
            case RoutesFound():
                self._on_routes(host, event)

    def on_listening(self, host: HostRecord, event: AgentListening) -> None:
        """Note that the elastic agent of a host listens."""
        host.port, host.agent = event.port, f"{host.name}#{event.token}"
        host.state, host.tries = HostState.LISTENING, 0
        self._on_listening(host)

    def _on_survey(self, host: HostRecord, survey: Survey) -> None:
        """Ask a host that described itself whether it has what the run needs."""
        host.survey = survey
        host.state = HostState.SURVEYED
        if host.witness:  # it has nothing to run, and the others do not call it
            host.has_files, host.address = True, LOOPBACK
            self._begin_agent(host)
            return
        self.crew.tell(look_question(self.config.command, str(self.config.cwd)), [host.name])

    def _on_files(self, host: HostRecord, found: FilesFound) -> None:
        trouble = missing_files(host.name, found, self.config.command, str(self.config.cwd))
        if trouble is not None:
            host.trouble = trouble
            self.crew.connections[host.name].dismiss()
            return
        host.has_files = True
        self._locate(host)

    # -- addresses --------------------------------------------------------------------------------

    def _locate(self, host: HostRecord) -> None:
        """Find the address at which the other hosts reach this one."""
        assert host.survey is not None
        if isinstance(self._reached, LocalHosts):
            self._place(host, lone_site(host.name, host.survey.host, self.config.interface))
            return
        own = candidates(host.survey, self.config.interface)
        if not self._reached.is_here(host.machine) or self.config.interface is not None:
            self._place(host, site_at(host.name, host.survey, own[0]))
            return
        others = [other for other in self.hosts.values() if other is not host]
        known = [candidates(other.survey, None)[:1] for other in others if other.survey is not None]
        if any(known):  # the way to any of them is the way to all
            self.crew.tell(FindRoutes(tuple(next(filter(None, known)))), [host.name])
        elif not any(other.state == HostState.CALLED for other in others):
            self._place(host, site_at(host.name, host.survey, (*own, LOOPBACK)[0]))

    def _on_routes(self, host: HostRecord, found: RoutesFound) -> None:
        assert host.survey is not None
        source = found.sources[0] or candidates(host.survey, self.config.interface)[0]
        self._place(host, site_at(host.name, host.survey, source))

    def _place(self, host: HostRecord, site: HostSite) -> None:
        """Plan the workers of a host whose address is known, and have its elastic agent begin."""
        host.address, host.site = site.address, site
        self.plan_workers(host)
        self._begin_agent(host)

    def plan_workers(self, host: HostRecord) -> None:
        """Plan the workers that a host is to have now."""
        assert host.site is not None
        host.entry = next((entry for entry in self.config.hosts if entry.name == host.name), None)
        plan = make_plan(
            replace(self.config, hosts=() if host.entry is None else (host.entry,)),
            [host.site],
            engine="local" if isinstance(self._reached, LocalHosts) else "ssh",
            port=1,
            python=self._reached.python,
            carried=dict(self.carried),
        )
        host.plan = plan.hosts[0]
        self.plan = self.plan or plan
        while len(host.ranks) < len(host.plan.workers):
            host.ranks.append(self._next_rank)
            self._next_rank += 1

    def _begin_agent(self, host: HostRecord) -> None:
        self.crew.tell(BecomeProgram(AGENT), [host.name])
        self._locate_the_rest()

    def _locate_the_rest(self) -> None:
        """Locate hosts that waited for another one to ask the way to, or that will have none."""
        for other in self.hosts.values():
            if other.state == HostState.SURVEYED and other.has_files and not other.address:
                self._locate(other)
