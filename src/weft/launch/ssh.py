"""The ssh engine: an agent on each host, started over OpenSSH, and nothing that listens there but sshd.

One connection per host carries everything and stays open a minute for the next run. The agents describe their
hosts, find the address and the cards to use, and later start the workers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

from weft.errors import ConnectError, UsageError
from weft.launch.address import Reach, candidates, card_used, choose_address
from weft.launch.conduct import Conductor, tasks_of
from weft.launch.config import LaunchConfig
from weft.launch.crew import AgentCommand, Crew
from weft.launch.here import LOOPBACK, is_this_machine
from weft.launch.local import agent_argv, explain_agent
from weft.launch.outcome import Outcome
from weft.launch.output import Console
from weft.launch.plan import Plan, Site
from weft.launch.survey import Survey

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 20.0
REACH_TIMEOUT_S = 3.0


def ssh_argv(host: str, command: str, *, config_file: str | None = None) -> tuple[str, ...]:
    """The ssh client for one host: never asks, notices a dead peer, shares its connection."""
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_TIMEOUT_S),
        "ServerAliveInterval": "1",
        "ServerAliveCountMax": "3",
        "ControlMaster": "auto",
        # The same name may mean another host under another configuration.
        "ControlPath": f"{_socket_folder()}/{zlib.crc32((config_file or '').encode()):08x}-%C",
        "ControlPersist": "60",
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    return ("ssh", *(("-F", config_file) if config_file else ()), "-T", *flags, host, command)


def _socket_folder() -> Path:
    """Where shared connections live: private, and short, for a socket's path is at most 107 characters."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "weft-ssh") if runtime else Path(f"/tmp/weft-ssh-{os.getuid()}")


def _make_private(folder: Path) -> None:
    """A folder that is ours alone: whoever could write there could answer in a host's place."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UsageError(f"{folder} must be private to us (mode 700), got one that is not; remove it")


def remote_command(python: str, lost_after_s: float) -> str:
    """What sshd's shell is given. `exec` so that no shell stays between sshd and the agent."""
    arguments = (*agent_argv(python), "--survey", "--lost-after", f"{lost_after_s:g}")
    path = os.environ.get("PYTHONPATH")
    return shlex.join(("exec", *(("env", f"PYTHONPATH={path}") if path else ()), *arguments))


def explain_ssh(host: str, code: int | None, complaint: str) -> str:
    """Why an agent could not be reached, and how to mend it: a sentence for each cause we know."""
    for pattern, sentence in _CAUSES:
        if re.search(pattern, complaint, re.IGNORECASE):
            return sentence.format(host=host, bare=host.rpartition("@")[2], python=sys.executable)
    last = complaint.splitlines()[-1] if complaint else "no message"
    return f"{host}: the agent ended (exit code {code}): {last}; try: ssh {host} true"


_CAUSES = (
    (
        r"could not resolve hostname",
        "{host}: a host must be known, got a name that does not resolve; "
        "check the spelling, /etc/hosts or ~/.ssh/config",
    ),
    (
        r"host identification has changed",
        "{host}: its host key must be the one we know, got another (a stale key, or another machine); "
        "if the host was reinstalled: ssh-keygen -R {bare}",
    ),
    (
        r"host key verification failed|no .* host key is known",
        "{host}: its host key must be known, got one never seen; check it and accept it once: ssh {host} true",
    ),
    (
        r"permission denied",
        "{host}: ssh must let us in with a key, got permission denied; install yours: ssh-copy-id {host}",
    ),
    (
        r"connection refused",
        "{host}: sshd must be listening, got connection refused; start it there or check the port",
    ),
    (
        # The last: a shared connection whose other end has gone.
        r"timed out|no route to host|network is unreachable|timeout, server .* not responding|mux_client_",
        "{host}: the host must answer, got silence; is it up, is its cable in, is a firewall between?",
    ),
    (
        r"no module named .?weft",
        "{host}: weft must be installed at the same place on every host, got a Python without it ({python}); "
        "install it there: {python} -m pip install weft",
    ),
    (
        r"not found|no such file or directory",
        "{host}: Python must be at the same path on every host, got no {python} there; "
        "make the same virtual environment there or name one with --python",
    ),
)


class SshEngine:
    """Workers on hosts reached by ssh; this machine, if it is among them, without."""

    name = "ssh"

    def __init__(self, config: LaunchConfig) -> None:
        if not config.host_names:
            raise UsageError("--engine ssh must be given hosts, got none; use -H host1,host2 or --hostfile")
        self._config = config
        self._names = config.host_names
        self.python = config.python or sys.executable
        self.surveys: dict[str, Survey] = {}
        self.reached: dict[str, tuple[Reach, ...]] = {}
        self._crew: Crew | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._crew is not None:
            self._crew.close()

    def agent_commands(self) -> tuple[AgentCommand, ...]:
        remote = remote_command(self.python, self._config.lost_after_s)
        config_file = os.environ.get("WEFT_SSH_CONFIG")
        return tuple(
            AgentCommand(name, (*agent_argv(), "--survey"))
            if is_this_machine(name)
            else AgentCommand(name, ssh_argv(name, remote, config_file=config_file), remote=True)
            for name in self._names
        )

    @property
    def crew(self) -> Crew:
        """The agents, started on first use."""
        if self._crew is None:
            _make_private(_socket_folder())
            local = {name for name in self._names if is_this_machine(name)}

            def explain(host: str, code: int | None, complaint: str) -> str:
                return (explain_agent if host in local else explain_ssh)(host, code, complaint)

            self._crew = Crew(self.agent_commands(), explain=explain)
        return self._crew

    @property
    def leader(self) -> str:
        """The host of rank 0."""
        if self._config.rankfile is not None:
            return next(line.host for line in self._config.rankfile.lines if line.rank == 0)
        return self._names[0]

    def survey(self) -> dict[str, Survey]:
        """Every host's description of itself."""
        if not self.surveys:
            answers = self.crew.await_answers(
                dict.fromkeys(self._names, "survey"), timeout_s=ANSWER_TIMEOUT_S
            )
            self.surveys = {name: Survey.from_json(answers[name]) for name in self._names}
        return self.surveys

    def sites(self) -> tuple[Site, ...]:
        surveys = self.survey()
        if len(self._names) == 1:
            name = self._names[0]
            return (Site(name=name, host=surveys[name].host, address=LOOPBACK, interface="lo"),)
        leader = self.leader
        tried = candidates(surveys[leader], self._config.interface)
        if not self.reached:  # the preflight may have asked already
            self.reached = self._reach(leader, tried)
        address = choose_address(leader, tried, self.reached)
        return tuple(self._site(name, leader, address) for name in self._names)

    def _reach(self, leader: str, addresses: tuple[str, ...]) -> dict[str, tuple[Reach, ...]]:
        port = self.crew.ask({leader: {"do": "listen"}}, timeout_s=ANSWER_TIMEOUT_S)[leader]["port"]
        targets = [[leader, address, port] for address in addresses]
        question = {"do": "reach", "targets": targets, "timeout_s": REACH_TIMEOUT_S}
        others = [name for name in self._names if name != leader]
        answers = self.crew.ask(dict.fromkeys(others, question), timeout_s=ANSWER_TIMEOUT_S)
        return {
            name: tuple(
                Reach(address=r["address"], source=r["source"], seen_as=r["seen_as"], error=r["error"])
                for r in answers[name]["results"]
            )
            for name in others
        }

    def _site(self, name: str, leader: str, leader_address: str) -> Site:
        host = self.surveys[name].host
        if name == leader:
            source: str | None = leader_address
        else:
            source = next(reach.source for reach in self.reached[name] if reach.address == leader_address)
        card = card_used(host, source)
        return Site(
            name=name, host=host, address=source or leader_address, interface=card.name if card else None
        )

    def port(self) -> int:
        if self._crew is None:  # a dry run that asks no host
            return self._config.port or 29500
        answer = self._crew.ask(
            {self.leader: {"do": "port", "port": self._config.port}}, timeout_s=ANSWER_TIMEOUT_S
        )[self.leader]
        if not answer["free"]:
            raise UsageError(
                f"--port must be free on {self.leader}, got {self._config.port} which is in use; "
                "leave it out to have one picked"
            )
        port: int = answer["port"]
        return port

    def commands(self, plan: Plan) -> tuple[tuple[str, ...], ...]:
        return (*(command.argv for command in self.agent_commands()), plan.argv)

    def run(self, plan: Plan, console: Console, *, run_id: str, run_dir: Path | None) -> Outcome:
        self._look(plan)
        conductor = Conductor(
            plan,
            self.crew,
            tasks_of(plan),
            console,
            run_id=run_id,
            run_dir=run_dir,
            grace_s=self._config.grace_s,
            lost_after_s=self._config.lost_after_s,
            sweep=lambda host: self._sweep(host, run_id),
        )
        return conductor.run()

    def _sweep(self, host: str, run_id: str) -> None:
        """The connection ended; if it was the agent that died and not the host, its workers' children may live on."""
        argv: tuple[str, ...] = (self.python, "-m", "weft.launch.sweep", run_id)
        if not is_this_machine(host):
            argv = ssh_argv(host, shlex.join(argv), config_file=os.environ.get("WEFT_SSH_CONFIG"))
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=CONNECT_TIMEOUT_S, check=False
            )

    def _look(self, plan: Plan) -> None:
        """Nothing is started anywhere unless every host has the folder and the script."""
        script = plan.command.target if plan.command.kind == "script" else None
        question = {"do": "look", "cwd": plan.cwd, "script": script}
        answers = self.crew.ask(dict.fromkeys(self._names, question), timeout_s=ANSWER_TIMEOUT_S)
        for name, answer in answers.items():
            for there, what in ((answer["cwd"], plan.cwd), (answer["script"], script)):
                if not there:
                    raise ConnectError(
                        f"every host must have {what}, got none on {name}; copy it there or share the folder"
                    )
