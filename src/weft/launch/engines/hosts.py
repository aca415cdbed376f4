"""Hosts that agents are started on: who they are, how they reach the leader, what is left on them.

How an agent gets there is the subclass's business: `SshHosts` by ssh, `SlurmHosts` by srun.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from weft.errors import ConnectError, UsageError
from weft.launch.address import Reach, candidates, card_used, choose_address
from weft.launch.agent.here import is_this_machine
from weft.launch.agent.protocol import (
    FilesFound,
    FindFiles,
    FindPort,
    HostSurveyed,
    OpenProbePort,
    PortFound,
    ProbePortOpened,
    ProbeTarget,
    ReachTargets,
    TargetsReached,
)
from weft.launch.agent.survey import Survey
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.control.agents import AgentCommand, AgentPool
from weft.launch.engines.local import agent_argv, explain_agent, lone_site
from weft.launch.plan import LaunchPlan
from weft.launch.sites import HostSite

ANSWER_TIMEOUT_S = 20.0  # for all hosts to answer a question
REACH_TIMEOUT_S = 3.0  # for one host to connect to another
SWEEP_TIMEOUT_S = 5.0  # for what is left of a run on a host to be ended


@dataclass(frozen=True, kw_only=True)
class HostKnowledge:
    """The answers of hosts that need not be asked for again; None where nobody has asked yet."""

    surveys: Mapping[str, Survey] | None = None
    reached: Mapping[str, tuple[Reach, ...]] | None = None  # the tries of each host to connect to the leader
    files_seen: bool = False  # every host has the folder and the script of the run


class Hosts(ABC):
    """The hosts of a run, each with an agent. This machine, if it is among them, needs no network for that."""

    def __init__(self, config: LaunchConfig) -> None:
        self._config = config
        self.names = config.host_names
        self.python = config.python or sys.executable
        self._known = HostKnowledge()
        self._crew: AgentPool | None = None

    @abstractmethod
    def start_on(self, name: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The command that starts `argv` on another host, with its standard streams here."""

    def explain(self, name: str, code: int | None, complaint: str) -> str:
        """Return why an agent on another host ended, and how to mend it."""
        return explain_agent(name, code, complaint)

    def keep(self, names: Sequence[str]) -> None:
        """Have nothing more to do with the other hosts."""
        self.names = tuple(names)
        self._known = replace(self._known, reached=None)  # another host may be the leader now

    def remember(self, known: HostKnowledge) -> None:
        """Take over what the preflight has found out, so that the plan need not ask for it again."""
        self._known = known

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()

    def prepare(self) -> None:  # noqa: B027 (most hosts need nothing)
        """Get ready to start agents; to be called before the first one is started."""

    def is_here(self, name: str) -> bool:
        """Return whether a host is this machine, so that its agent needs no network."""
        return is_this_machine(name)

    def agent_commands(self) -> tuple[AgentCommand, ...]:
        """The commands that start the agents."""
        return tuple(map(self.agent_command, self.names))

    def agent_command(self, name: str) -> AgentCommand:
        """The command that starts the agent of one host."""
        if self.is_here(name):
            return AgentCommand(name, (*agent_argv(), "--survey"))
        silence = ("--lost-after", f"{self._config.lost_after_s:g}")
        remote = (*agent_argv(self.python), "--survey", *silence)
        return AgentCommand(name, self.start_on(name, remote), remote=True)

    @property
    def crew(self) -> AgentPool:
        """The agents, started on first use."""
        if self._crew is None:
            self.prepare()
            self._crew = AgentPool(self.agent_commands(), explain=self._explain)
        return self._crew

    def _explain(self, host: str, code: int | None, complaint: str) -> str:
        return (explain_agent if self.is_here(host) else self.explain)(host, code, complaint)

    @property
    def leader(self) -> str:
        """The host of rank 0."""
        if self._config.rankfile is not None:
            return next(line.host for line in self._config.rankfile.lines if line.rank == 0)
        return self.names[0]

    def survey(self) -> Mapping[str, Survey]:
        """Return every host's description of itself, which its agent sends once."""
        surveys = self._known.surveys
        if surveys is None:
            answers = self.crew.await_answers(self.names, HostSurveyed, timeout_s=ANSWER_TIMEOUT_S)
            surveys = {name: answers[name].survey for name in self.names}
            self._known = replace(self._known, surveys=surveys)
        return surveys

    def sites(self) -> tuple[HostSite, ...]:
        """The hosts as the planner needs them: with the address and the card that lead to the leader."""
        surveys = self.survey()
        if len(self.names) == 1:
            name = self.names[0]
            return (lone_site(name, surveys[name].host, self._config.interface),)
        leader = self.leader
        tried = candidates(surveys[leader], self._config.interface)
        reached = self._known.reached or self._reach(leader, tried)
        address = choose_address(leader, tried, reached)
        return tuple(
            site_at(name, surveys[name], address)
            if name == leader
            else _site_towards(name, surveys[name], address, reached[name])
            for name in self.names
        )

    def _reach(self, leader: str, addresses: tuple[str, ...]) -> dict[str, tuple[Reach, ...]]:
        """Have all other hosts connect to addresses of the leader."""
        opened = self.crew.ask({leader: OpenProbePort()}, ProbePortOpened, timeout_s=ANSWER_TIMEOUT_S)
        targets = tuple(ProbeTarget(leader, address, opened[leader].port) for address in addresses)
        questions = dict.fromkeys(
            (name for name in self.names if name != leader), ReachTargets(targets, REACH_TIMEOUT_S)
        )
        answers = self.crew.ask(questions, TargetsReached, timeout_s=ANSWER_TIMEOUT_S)
        return {
            name: tuple(
                Reach(address=r.address, source=r.source, seen_as=r.seen_as, error=r.error)
                for r in answer.results
            )
            for name, answer in answers.items()
        }

    def port(self) -> int:
        """A port on the leader for the workers to meet at."""
        if self._crew is None:  # a dry run that asks no host
            return self._config.port or 29500
        question = {self.leader: FindPort(self._config.port)}
        found = self._crew.ask(question, PortFound, timeout_s=ANSWER_TIMEOUT_S)[self.leader]
        if not found.free:
            raise UsageError(
                f"--port must be free on {self.leader}, got {self._config.port} which is in use; "
                "leave it out to have one picked"
            )
        return found.port

    def look(self, plan: LaunchPlan) -> None:
        """Refuse hosts that lack the folder or the script, before anything is started."""
        if self._known.files_seen:
            return
        question = look_question(plan.command, plan.cwd)
        answers = self.crew.ask(dict.fromkeys(self.names, question), FilesFound, timeout_s=ANSWER_TIMEOUT_S)
        for name, answer in answers.items():
            if (trouble := missing_files(name, answer, plan.command, plan.cwd)) is not None:
                raise ConnectError(trouble)

    def sweep(self, host: str, run_id: str) -> None:
        """End what an agent that died has left on its host; in vain if it was the host that died."""
        argv: tuple[str, ...] = (self.python, "-P", "-m", "weft.launch.agent.sweep", run_id)
        if not is_this_machine(host):
            argv = self.start_on(host, argv)
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SWEEP_TIMEOUT_S, check=False
            )


class LocalHosts(Hosts):
    """This machine alone, whatever it is called."""

    def is_here(self, name: str) -> bool:
        return True

    def start_on(self, name: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        return argv


def look_question(command: Command, cwd: str) -> FindFiles:
    """Return the question to a host whether it has the folder and the script of a run."""
    return FindFiles(cwd, command.target if command.kind == "script" else None)


def missing_files(name: str, answer: FilesFound, command: Command, cwd: str) -> str | None:
    """The error for a host that answered that it lacks the folder or the script; None if it has both."""
    for there, what in ((answer.cwd, cwd), (answer.script, command.target)):
        if not there:
            return f"every host must have {what}, got none on {name}; copy it there or share the folder"
    return None


def site_at(name: str, survey: Survey, address: str) -> HostSite:
    """A host that the others reach at one of its addresses, and the card that has the address."""
    card = card_used(survey.host, address)
    return HostSite(name=name, host=survey.host, address=address, interface=card.name if card else None)


def _site_towards(name: str, survey: Survey, leader_address: str, tries: Sequence[Reach]) -> HostSite:
    """A host that reaches the leader at one address, and the card that leads there."""
    source = next(reach.source for reach in tries if reach.address == leader_address)
    if source is None:
        return HostSite(name=name, host=survey.host, address=leader_address, interface=None)
    return site_at(name, survey, source)
