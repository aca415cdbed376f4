"""Bringing hosts into an elastic run: start an agent, hear what the host is like, find where the others reach it.

Each host goes its own way at its own pace: asked, surveyed, called (its agent listens). What fails is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from weft.errors import ConnectError
from weft.launch.address import candidates, card_used
from weft.launch.agent.here import LOOPBACK, is_this_machine
from weft.launch.agent.protocol import Message
from weft.launch.agent.survey import Survey
from weft.launch.config import LaunchConfig, carried_variables
from weft.launch.control.agents import AgentCommand, Crew
from weft.launch.engines.local import agent_argv, explain_agent
from weft.launch.engines.ssh import SshHosts
from weft.launch.plan import HostPlan, Plan, Site, make_plan
from weft.topology.detect import detect

RETRY_S = (0.5, 1.0, 2.0, 5.0)  # before a host that is lost, or was never there, is tried again
AGENT = "weft.elastic.agent.main"


@dataclass
class HostRecord:
    """One host of the run, as far as the launcher has got with it."""

    name: str
    state: str = "away"  # away, asked, surveyed, called, running, leaving, done, gone
    survey: Survey | None = None
    looked: bool = False
    agent: str = ""
    address: str = ""
    port: int = 0
    plan: HostPlan | None = None
    ranks: list[int] = field(default_factory=list)
    tries: int = 0
    retry_at: float = 0.0
    lives: int = 0
    view: int = -1  # the newest that its agent knows
    dismissed: bool = False  # it left because it was not wanted
    workers: int = 0  # that take part, or could at once
    witness: bool = False  # it votes and has no workers
    at: str = ""  # the host of a witness that was asked for; without, it is on our own machine
    trouble: str = ""


class Recruiting:
    """All hosts of a run, and how far each of them is. `ssh`: None if there is but this machine."""

    def __init__(
        self, config: LaunchConfig, ssh: SshHosts | None, called: Callable[[HostRecord], None]
    ) -> None:
        self.config = config
        self.hosts: dict[str, HostRecord] = {}
        self.crew = Crew([], explain=self._explain)
        self.plan: Plan | None = None  # of the first host; but for its workers that of any
        self._ssh, self._called = ssh, called
        self._python = ssh.python if ssh else config.python or agent_argv()[0]
        self._ranks = 0

    def hear(self, host: HostRecord, message: Message) -> None:
        """What a host answers while it is recruited."""
        match message["event"]:
            case "survey":
                self._on_survey(host, message)
            case "look":
                self._on_look(host, message)
            case "route":
                self._on_route(host, message)
            case "hello":
                host.port, host.agent = message["port"], f"{host.name}#{message['token']}"
                host.state, host.tries = "called", 0
                self._called(host)

    def call(self, name: str) -> None:
        """Start an agent on a host."""
        host = self.hosts.setdefault(name, HostRecord(name))
        host.state, host.survey, host.looked, host.address = "asked", None, False, ""
        here = self._is_here(host)
        argv: tuple[str, ...] = (*agent_argv(self._python), "--survey")
        if self._ssh is not None and not here:
            self._ssh.prepare()
            argv = self._ssh.start_on(host.at or name, argv)
        try:
            self.crew.join(AgentCommand(name, argv, remote=not here))
        except ConnectError as error:
            self.away(host, str(error))

    def miss(self, name: str, trouble: str) -> None:
        """A host is known not to be there; it is called before long."""
        self.away(self.hosts.setdefault(name, HostRecord(name)), trouble)

    def call_witness(self, at: str | None) -> None:
        """Start an agent without workers, there or beside us: with two hosts, it tells which of them is lost."""
        name = f"{at}-witness" if at else f"{detect().name}-launcher"
        self.hosts[name] = HostRecord(name, witness=True, at=at or "")
        self.call(name)

    def _is_here(self, host: HostRecord) -> bool:
        beside = host.witness and not host.at
        return self._ssh is None or beside or is_this_machine(host.at or host.name)

    def _explain(self, host: str, code: int | None, complaint: str) -> str:
        if self._ssh is None or self._is_here(self.hosts[host]):
            return explain_agent(host, code, complaint)
        return self._ssh.explain(self.hosts[host].at or host, code, complaint)

    def away(self, host: HostRecord, trouble: str) -> None:
        host.state, host.trouble = "away", trouble
        host.retry_at = time.monotonic() + RETRY_S[min(host.tries, len(RETRY_S) - 1)]
        host.tries, host.workers = host.tries + 1, 0
        self._locate_the_rest()

    def _on_survey(self, host: HostRecord, message: Message) -> None:
        """A host described itself: see where it can be reached, and that it has what the run needs."""
        host.survey = Survey.from_json(message)
        host.state = "surveyed"
        if host.witness:  # it has nothing to run, and nobody calls it
            host.looked, host.address = True, LOOPBACK
            self.crew.tell({"do": "become", "module": AGENT}, [host.name])
            self._locate_the_rest()
            return
        command = self.config.command
        script = command.target if command.kind == "script" else None
        question = {"do": "look", "cwd": str(self.config.cwd), "script": script}
        self.crew.tell(question, [host.name])

    def _on_look(self, host: HostRecord, message: Message) -> None:
        missing = str(self.config.cwd) if not message["cwd"] else None
        if missing is None and not message["script"]:
            missing = self.config.command.target
        if missing is not None:
            host.trouble = (
                f"every host must have {missing}, got none on {host.name}; copy it there or share the folder"
            )
            self.crew.connections[host.name].dismiss()
            return
        host.looked = True
        self._locate(host)

    def _locate(self, host: HostRecord) -> None:
        """Find the address at which the other hosts reach this one."""
        assert host.survey is not None
        if self._ssh is None:
            self._located(host, LOOPBACK, "lo")
            return
        own = candidates(host.survey, self.config.interface)
        if not self._is_here(host) or self.config.interface is not None:
            self._located(host, own[0], None)
            return
        others = [other for other in self.hosts.values() if other is not host]
        known = [candidates(other.survey, None)[:1] for other in others if other.survey is not None]
        if any(known):  # the way to any of them is the way to all
            self.crew.tell({"do": "route", "to": next(filter(None, known))}, [host.name])
        elif not any(other.state == "asked" for other in others):
            self._located(host, (*own, LOOPBACK)[0], None)

    def _on_route(self, host: HostRecord, message: Message) -> None:
        assert host.survey is not None
        source = message["sources"][0] or candidates(host.survey, self.config.interface)[0]
        self._located(host, source, None)

    def _located(self, host: HostRecord, address: str, interface: str | None) -> None:
        assert host.survey is not None
        host.address = address
        if interface is None:
            card = card_used(host.survey.host, address)
            interface = card.name if card else None
        site = Site(name=host.name, host=host.survey.host, address=address, interface=interface)
        plan = make_plan(
            replace(self.config, hosts=tuple(e for e in self.config.hosts if e.name == host.name)),
            [site],
            engine="ssh" if self._ssh else "local",
            port=1,
            python=self._python,
            carried=carried_variables(),
        )
        host.plan = plan.hosts[0]
        self.plan = self.plan or plan
        while len(host.ranks) < len(host.plan.workers):
            host.ranks.append(self._ranks)
            self._ranks += 1
        self.crew.tell({"do": "become", "module": AGENT}, [host.name])
        self._locate_the_rest()

    def _locate_the_rest(self) -> None:
        """One that waited for somebody to ask the way to, or that will have nobody."""
        for other in self.hosts.values():
            if other.state == "surveyed" and other.looked and not other.address:
                self._locate(other)
