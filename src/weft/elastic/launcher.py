"""The launcher of an elastic run: it starts the agents, shows what happens, and brings hosts in and out.

The run does not depend on it. It is there for the person who watches, and for hosts that come: only it can start an
agent on them.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from queue import Empty
from typing import Any, BinaryIO

from weft.elastic.config import ElasticConfig
from weft.elastic.news import tell_of
from weft.elastic.policy import choose_voters
from weft.elastic.secret import new_secret
from weft.elastic.view import View
from weft.elastic.wanted import SCALE_FILE, Wanted
from weft.errors import ConnectError, UsageError
from weft.files import write_whole
from weft.launch.address import candidates, card_used
from weft.launch.conduct import signals_to
from weft.launch.config import LaunchConfig, carried_variables
from weft.launch.crew import AgentCommand, Crew
from weft.launch.engine import choose_engine
from weft.launch.here import LOOPBACK, is_this_machine
from weft.launch.local import agent_argv, explain_agent
from weft.launch.outcome import Failure, Outcome
from weft.launch.output import Console
from weft.launch.plan import HostPlan, Plan, Site, make_plan
from weft.launch.processes import sweep
from weft.launch.rundir import RunDir
from weft.launch.ssh import SshHosts
from weft.launch.survey import Survey
from weft.launch.sweep import marker
from weft.launch.wire import Message, text_to_bytes
from weft.topology.detect import detect

LOOK_S = 0.5  # between two looks at which hosts are wanted
ANSWER_S = 20.0  # for all hosts to answer at the start
RETRY_S = (0.5, 1.0, 2.0, 5.0)  # before a host that is lost, or was never there, is tried again
# What each worker finds out for itself, when it joins.
_NOT_TOLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WEFT_DIMENSIONS")


def run_elastic(config: LaunchConfig, elastic: ElasticConfig, *, out: BinaryIO) -> Outcome:
    """Run the program on whoever is there; returns when the run is finished, or has failed."""
    config = launch_behind(config, elastic)
    launcher = Launcher(config, elastic, out)
    with closing(launcher):
        return launcher.run()


def launch_behind(config: LaunchConfig, elastic: ElasticConfig) -> LaunchConfig:
    """The launch behind an elastic run: so many workers on each host, whatever others do."""
    if choose_engine(config) not in ("local", "ssh"):
        raise UsageError(
            f"--elastic must come with the engine local or ssh, got {choose_engine(config)}; use -H host1,host2"
        )
    for given, flag in ((config.rankfile, "--rankfile"), (config.max_restarts, "--max-restarts")):
        if given:
            raise UsageError(
                f"--elastic decides where and how often workers run, got {flag} as well; drop one"
            )
    hosts = max(1, len(config.host_names))
    per_host = config.per_host
    if config.workers is not None:
        per_host = -(-config.workers // hosts)
    elif per_host is None:
        per_host = -(-elastic.most // hosts)
    return replace(config, workers=None, per_host=per_host, allow_uneven=True)


@dataclass
class _Host:
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
    witness: bool = False  # on our own machine, which is none of the hosts: it votes and has no workers
    trouble: str = ""


class Launcher:
    """One elastic run, seen from where it was started."""

    def __init__(self, config: LaunchConfig, elastic: ElasticConfig, out: BinaryIO) -> None:
        self._config, self._elastic, self._out = config, elastic, out
        self._remote = bool(config.host_names) and choose_engine(config) == "ssh"
        self._ssh = SshHosts(config) if self._remote else None
        self._python = self._ssh.python if self._ssh else config.python or agent_argv()[0]
        self._secret = new_secret()
        self._wanted = Wanted(config.hosts, elastic, warn=self._say)
        self._hosts: dict[str, _Host] = {}
        self._crew: Crew | None = None
        self._console: Console | None = None
        self._first: View | None = None
        self._plan: Plan | None = None
        self._folder: RunDir | None = None
        self._run = ""
        self._ranks = 0
        self._view = 0
        self._voting: set[str] = set()  # in the newest view we know of
        self._not_lost_at = time.monotonic()
        self._over = ""
        self._failures: list[str] = []
        self._interrupted: int | None = None
        self._next_look = 0.0

    def close(self) -> None:
        self._wanted.close()
        if self._crew is not None:
            self._crew.close()

    def run(self) -> Outcome:
        began = time.monotonic()
        # A handler may run in the middle of anything we do, so it only leaves a note.
        self._crew = Crew([], explain=self._explain)
        names = [entry.name for entry in self._wanted.hosts] or [detect().name]
        with signals_to(lambda number: self._crew.inbox.put(("", {"event": "signal", "number": number}))):  # type: ignore[union-attr]
            for name in names:
                self._call(name)
            if self._ssh is not None and not any(map(is_this_machine, names)):
                self._call_witness()
            self._gather(names)
            self._begin()
            try:
                while not self._done():
                    self._turn()
            finally:
                assert self._console is not None
                self._console.close()
        outcome = self._outcome(time.monotonic() - began)
        assert self._folder is not None
        self._folder.write_outcome(outcome)
        return outcome

    # -- hosts ------------------------------------------------------------------------------------

    def _call(self, name: str) -> None:
        """Start an agent on a host."""
        assert self._crew is not None
        host = self._hosts.setdefault(name, _Host(name))
        host.state, host.survey, host.looked, host.address = "asked", None, False, ""
        here = self._is_here(host)
        argv: tuple[str, ...] = (*agent_argv(self._python), "--survey")
        if self._ssh is not None and not here:
            self._ssh.prepare()
            argv = self._ssh.start_on(name, argv)
        try:
            self._crew.join(AgentCommand(name, argv, remote=not here))
        except ConnectError as error:
            self._away(host, str(error))

    def _call_witness(self) -> None:
        """Start an agent without workers beside us: with two hosts, it tells which of them is lost."""
        name = f"{detect().name}-launcher"
        self._hosts[name] = _Host(name, witness=True)
        self._call(name)

    def _is_here(self, host: _Host) -> bool:
        return self._ssh is None or host.witness or is_this_machine(host.name)

    def _explain(self, host: str, code: int | None, complaint: str) -> str:
        if self._ssh is None or self._is_here(self._hosts[host]):
            return explain_agent(host, code, complaint)
        return self._ssh.explain(host, code, complaint)

    def _away(self, host: _Host, trouble: str) -> None:
        host.state, host.trouble = "away", trouble
        host.retry_at = time.monotonic() + RETRY_S[min(host.tries, len(RETRY_S) - 1)]
        host.tries, host.workers = host.tries + 1, 0
        self._locate_the_rest()

    def _gather(self, names: list[str]) -> None:
        """Wait until every host has said where its agent listens, or that it is not there."""
        deadline = time.monotonic() + ANSWER_S
        settled = ("called", "away")
        while any(self._hosts[name].state not in settled for name in names):
            if time.monotonic() > deadline:
                break
            self._turn_once(0.2)
            if self._interrupted:
                raise KeyboardInterrupt
        here = [self._hosts[name] for name in names if self._hosts[name].state == "called"]
        troubles = [host.trouble or f"{host.name} must answer within {ANSWER_S:g} s, got silence"
                    for host in self._hosts.values() if host not in here and not host.witness]  # fmt: skip
        if not here:
            raise ConnectError("\n".join(troubles))
        slots = sum(len(host.plan.workers) for host in here if host.plan is not None)
        if slots < self._elastic.least:
            raise ConnectError(
                f"an elastic run must have at least {self._elastic.least} workers to begin, got {slots} on "
                f"{', '.join(host.name for host in here)}; name more hosts or lower MIN"
                + "".join(f"\n{trouble}" for trouble in troubles)
            )
        self._troubles = troubles

    def _begin(self) -> None:
        """Make the run directory, and have those who are here begin."""
        here = [host for host in self._hosts.values() if host.state == "called"]
        assert self._plan is not None
        self._folder = RunDir.create(self._config.run_dir, self._plan, datetime.now())
        path = self._folder.path.absolute()
        self._run = f"{path.name}-{secrets.token_hex(4)}"
        self._console = Console(max(2, self._elastic.most), logs=path, out=self._out)
        for trouble in self._troubles:
            self._say(f"{trouble}; going on without it, and trying again")
        (path / "elastic").mkdir(exist_ok=True)
        self._wanted.scale_file = path / "elastic" / SCALE_FILE
        self._first = View(0, (), self._voters(here), "")
        write_whole(
            path / "elastic" / "control.json",
            json.dumps(
                {
                    "run": self._run,
                    "launcher": os.getpid(),
                    "hosts": [vars(entry) for entry in self._wanted.hosts],
                    "secret": self._secret,
                    "agents": self._roster(),
                }
            )
            + "\n",
        )
        (path / "elastic" / "control.json").chmod(0o600)
        for host in here:
            self._start(host)

    @staticmethod
    def _voters(hosts: list[_Host]) -> tuple[str, ...]:
        agents = sorted(host.agent for host in hosts if not host.witness)
        return choose_voters(agents, [host.agent for host in hosts if host.witness])

    def _roster(self) -> dict[str, list[Any]]:
        return {
            host.agent: [host.name, host.address, 0 if host.witness else host.port]
            for host in self._hosts.values()
            if host.state in ("called", "running")
        }

    def _start(self, host: _Host) -> None:
        """Tell an agent what the run is."""
        assert self._crew is not None
        assert self._plan is not None
        assert self._folder is not None
        assert self._first is not None
        expected = sum(len(other.plan.workers) for other in self._hosts.values() if other.plan is not None)
        env = {
            **dict(self._plan.env),
            "WEFT_RUN_ID": self._run,
            "WEFT_RUN_DIR": str(self._folder.path.absolute()),
        }
        env |= {"TORCHELASTIC_RUN_ID": self._run, "WEFT_HOST": host.name}
        if self._elastic.checkpoint is not None:
            env["WEFT_CHECKPOINT"] = str(self._elastic.checkpoint)
        if self._elastic.checkpoint_every is not None:
            env["WEFT_CHECKPOINT_EVERY"] = str(self._elastic.checkpoint_every)
        spec = {
            "do": "elastic",
            "run": self._run,
            "run_dir": str(self._folder.path.absolute()),
            "host": host.name,
            "agent": host.agent,
            "witness": host.witness,
            "life": f"{host.lives}-" if host.lives else "",
            "address": host.address,
            "cwd": self._plan.cwd,
            "env": {name: value for name, value in env.items() if name not in _NOT_TOLD},
            "argv": list(self._plan.argv),
            "slots": [
                {
                    "number": worker.local_rank,
                    "rank": rank,
                    "env": {name: value for name, value in worker.env if name not in _NOT_TOLD},
                    "cpus": list(worker.placement.cpus) if worker.placement else [],
                    "numa": list(worker.placement.numa) if worker.placement else [],
                }
                for worker, rank in zip(host.plan.workers if host.plan else (), host.ranks, strict=True)
            ],
            "least": self._elastic.least,
            "most": self._elastic.most,
            "expected": expected,
            "detect_within": self._elastic.detect_within_s,
            "start_within": self._elastic.start_within_s,
            "slow": self._elastic.slow,
            "grace": self._config.grace_s,
            "secret": self._secret,
            "view": self._first.to_json(),
            "roster": {name: where for name, where in self._roster().items() if name != host.agent},
        }
        self._crew.tell(spec, [host.name])
        host.state, host.view = "running", -1
        host.lives += 1

    # -- the loop ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._turn_once(LOOK_S / 2)
        now = time.monotonic()
        if now >= self._next_look and not self._over and self._interrupted is None:
            self._next_look = now + LOOK_S
            if self._wanted.look():
                self._scale()
            self._let_go()
            self._try_again(now)
            if self._all_were_lost(now):
                self._begin_anew()

    def _turn_once(self, timeout_s: float) -> None:
        assert self._crew is not None
        try:
            name, message = self._crew.hear(timeout_s)
        except Empty:
            return
        self._hear(self._hosts.get(name), message)

    def _try_again(self, now: float) -> None:
        wanted = {entry.name for entry in self._wanted.hosts} or self._hosts.keys()
        for host in list(self._hosts.values()):
            if host.state == "away" and (host.name in wanted or host.witness) and now >= host.retry_at:
                self._call(host.name)
            elif host.state == "gone" and host.dismissed and host.name in wanted:  # it is wanted again
                host.dismissed = False
                self._call(host.name)

    def _scale(self) -> None:
        """Other hosts are wanted than before."""
        assert self._crew is not None
        wanted = [entry.name for entry in self._wanted.hosts]
        if self._ssh is None:
            self._say(f"hosts can be added to a run that was started on named hosts, got {', '.join(wanted)}")
            return
        self._config = replace(self._config, hosts=self._wanted.hosts)
        for name in wanted:
            if name not in self._hosts or self._hosts[name].state in ("away", "gone"):
                self._say(f"{name} is wanted")
                self._call(name)

    def _let_go(self) -> None:
        """Have hosts leave that are no longer wanted, once there are enough workers on the others."""
        wanted = {entry.name for entry in self._wanted.hosts}
        if (
            self._ssh is None
            or sum(self._hosts[name].workers for name in wanted & self._hosts.keys()) < self._elastic.least
        ):
            return
        assert self._crew is not None
        for host in self._hosts.values():
            if host.name not in wanted and host.state == "running" and not host.witness:
                self._say(f"{host.name} is no longer wanted; its workers leave")
                host.state, host.dismissed = "leaving", True
                self._crew.tell({"do": "leave"}, [host.name])

    def _hear(self, host: _Host | None, message: Message) -> None:
        if host is None:
            if message["event"] == "signal":
                self._interrupt(message["number"])
            return
        handler: Callable[[_Host, Message], None] | None = getattr(self, f"_on_{message['event']}", None)
        if handler is not None:
            handler(host, message)

    def _on_survey(self, host: _Host, message: Message) -> None:
        """A host described itself: see where it can be reached, and that it has what the run needs."""
        assert self._crew is not None
        host.survey = Survey.from_json(message)
        host.state = "surveyed"
        command = self._config.command
        script = command.target if command.kind == "script" else None
        question = {"do": "look", "cwd": str(self._config.cwd), "script": script}
        self._crew.tell(question, [host.name])

    def _on_look(self, host: _Host, message: Message) -> None:
        assert self._crew is not None
        missing = str(self._config.cwd) if not message["cwd"] else None
        if missing is None and not message["script"]:
            missing = self._config.command.target
        if missing is not None:
            host.trouble = (
                f"every host must have {missing}, got none on {host.name}; copy it there or share the folder"
            )
            self._crew.connections[host.name].dismiss()
            return
        host.looked = True
        self._locate(host)

    def _locate(self, host: _Host) -> None:
        """Find the address at which the other hosts reach this one."""
        assert self._crew is not None
        assert host.survey is not None
        if self._ssh is None or host.witness:  # nobody calls a witness
            self._located(host, LOOPBACK, "lo")
            return
        own = candidates(host.survey, self._config.interface)
        others = [other for other in self._hosts.values() if other is not host]
        known = [
            candidates(other.survey, self._config.interface)[:1]
            for other in others
            if other.survey is not None
        ]
        if not self._is_here(host) or self._config.interface is not None:
            self._located(host, own[0], None)
        elif any(known):  # the way to any of them is the way to all
            self._crew.tell({"do": "route", "to": next(filter(None, known))}, [host.name])
        elif not any(other.state == "asked" for other in others):
            self._located(host, (*own, LOOPBACK)[0], None)

    def _on_route(self, host: _Host, message: Message) -> None:
        assert host.survey is not None
        source = message["sources"][0] or candidates(host.survey, self._config.interface)[0]
        self._located(host, source, None)

    def _located(self, host: _Host, address: str, interface: str | None) -> None:
        assert self._crew is not None
        assert host.survey is not None
        host.address = address
        if host.witness:
            self._crew.tell({"do": "become", "module": "weft.elastic.agent"}, [host.name])
            return
        if interface is None:
            card = card_used(host.survey.host, address)
            interface = card.name if card else None
        site = Site(name=host.name, host=host.survey.host, address=address, interface=interface)
        plan = make_plan(
            replace(self._config, hosts=tuple(e for e in self._config.hosts if e.name == host.name)),
            [site],
            engine="ssh" if self._ssh else "local",
            port=1,
            python=self._python,
            carried=carried_variables(),
        )
        host.plan = plan.hosts[0]
        self._plan = self._plan or plan
        while len(host.ranks) < len(host.plan.workers):
            host.ranks.append(self._ranks)
            self._ranks += 1
        self._crew.tell({"do": "become", "module": "weft.elastic.agent"}, [host.name])
        self._locate_the_rest()

    def _locate_the_rest(self) -> None:
        """One that waited for somebody to ask the way to, or that will have nobody."""
        for other in self._hosts.values():
            if other.state == "surveyed" and other.looked and not other.address:
                self._locate(other)

    def _on_hello(self, host: _Host, message: Message) -> None:
        host.port, host.agent = message["port"], f"{host.name}#{message['token']}"
        host.state, host.tries = "called", 0
        if self._first is not None:
            self._start(host)

    def _on_begun(self, host: _Host, message: Message) -> None:
        """An agent takes part: the others shall know where it is."""
        assert self._crew is not None
        running = [other.name for other in self._hosts.values() if other.state == "running"]
        self._crew.tell({"do": "roster", "roster": self._roster()}, running)

    def _on_attached(self, host: _Host, message: Message) -> None:
        """The agent that we had lost is still there."""
        host.agent, host.address, host.port = message["agent"], message["address"], message["port"]
        self._say(f"{host.name} is back")

    def _on_output(self, host: _Host, message: Message) -> None:
        assert self._console is not None
        self._console.write(message["rank"], message["stream"], text_to_bytes(message["text"]))

    def _on_status(self, host: _Host, message: Message) -> None:
        host.view = message["view"]
        if host.view >= self._view:
            self._view, self._voting = host.view, set(message["voters"])
        states = [worker["state"] for worker in message["report"]["workers"]]
        host.workers = sum(state in ("ready", "member") for state in states)

    def _on_news(self, host: _Host, message: Message) -> None:
        for line in tell_of(message["news"]):
            self._say(line)

    def _on_failed(self, host: _Host, message: Message) -> None:
        why = message.get("why") or f"{host.name}: could not {message['during']}: {message['message']}"
        self._failures.append(why)

    def _on_done(self, host: _Host, message: Message) -> None:
        host.state = "done"
        if message["over"] and not self._over:
            assert self._crew is not None
            self._over = message["over"]
            running = [other.name for other in self._hosts.values() if other.state == "running"]
            self._crew.tell({"do": "over", "how": self._over}, running)  # one that is cut off from the others

    def _on_closed(self, host: _Host, message: Message) -> None:
        assert self._crew is not None
        if host.state in ("done", "leaving"):
            host.state = "gone"
            return
        was = host.state
        why = host.trouble or self._crew.explain(host.name)
        self._away(host, why)
        host.trouble = why
        if was == "running" and not self._over:
            self._say(f"{host.name} is lost: {why}")
            if self._ssh is None:
                self._begin_again(host)

    def _begin_again(self, host: _Host) -> None:
        """The one agent there was has died, and its workers with it: what follows begins from what was saved."""
        sweep(marker(self._run))
        host.retry_at = 0.0
        self._first = None
        self._call(host.name)
        self._gather([host.name])
        self._first = View(self._view + 1, (), (host.agent,), "")
        self._start(host)

    def _all_were_lost(self, now: float) -> bool:
        """Whether all agents that had the run are dead: every host has been reached, and its agent is another one."""
        ran = [
            host for host in self._hosts.values() if host.lives and not host.witness and host.state != "gone"
        ]
        reached = all(host.state == "running" and host.view >= 0 for host in ran)
        if not ran or not reached or self._voting & {host.agent for host in ran}:
            self._not_lost_at = now
        # One of them may be about to hear that it has become a voter.
        return now - self._not_lost_at > self._elastic.detect_within_s

    def _begin_anew(self) -> None:
        """Have the agents that are here make a view of their own; workers resume from what was saved."""
        assert self._crew is not None
        here = [host for host in self._hosts.values() if host.state == "running"]
        self._say("all hosts were lost; those that are back begin again from what was saved")
        self._first = View(self._view + 1, (), self._voters(here), "start: all hosts were lost")
        self._view, self._voting = self._first.number, set(self._first.voters)
        self._crew.tell({"do": "begin", "view": self._first.to_json()}, [host.name for host in here])

    def _interrupt(self, number: int) -> None:
        assert self._crew is not None
        again = self._interrupted is not None
        self._interrupted = self._interrupted or number
        if self._console is None:
            return
        if not again:
            self._say(f"{signal.Signals(number).name}: ending the run (again to end it at once)")
        self._crew.tell({"do": "stop", "now": again})

    def _say(self, text: str) -> None:
        if self._console is not None:
            self._console.say(f"weft: {text}")

    # -- the end ----------------------------------------------------------------------------------

    def _done(self) -> bool:
        states = {host.state for host in self._hosts.values()}
        if self._over or self._interrupted is not None:
            return not states & {"running", "leaving", "called"}
        return False

    def _outcome(self, seconds: float) -> Outcome:
        assert self._folder is not None
        why = "" if self._over == "finished" else self._over or "no agent is left"
        why = why or next(iter(self._failures), "")
        code = 1 if why else 0
        interrupted = self._interrupted
        if interrupted is not None:
            code = 128 + interrupted
        failure = None
        if why and interrupted is None:
            failure = Failure(rank=None, host="the run", code=1, reason=why)
        return Outcome(
            code=code,
            codes={},
            seconds=round(seconds, 3),
            failure=failure,
            interrupted_by=signal.Signals(interrupted).name if interrupted else None,
            run_dir=str(self._folder.path),
        )


def control_of(run_dir: Path) -> dict[str, Any]:
    """How the agents of a run can be reached."""
    try:
        data: dict[str, Any] = json.loads((run_dir / "elastic" / "control.json").read_text())
    except (OSError, ValueError):
        raise UsageError(
            f"{run_dir} must be an elastic run of ours, got no elastic/control.json; was it started with --elastic?"
        ) from None
    return data
