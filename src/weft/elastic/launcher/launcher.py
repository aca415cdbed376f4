"""The launcher of an elastic run: it starts the agents, shows what happens, and brings hosts in and out.

The run does not depend on the launcher. It is there for the person who watches, and for hosts that join: only the
launcher can start an agent on them. When it has died, another one can take its place (`adopt.py`).
"""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Iterable
from datetime import datetime
from queue import Empty
from typing import BinaryIO

from weft.elastic.agent.launcher_link import is_agent_here
from weft.elastic.agent.launcher_messages import (
    AgentAbsent,
    AgentAttached,
    AgentBegun,
    AgentDone,
    AgentListening,
    AttachOrder,
    BeginOrder,
    CatchUpOrder,
    ElasticEvent,
    ElasticOrder,
    EndOrder,
    JournalEvent,
    LeaveOrder,
    PauseOrder,
    RosterUpdate,
    SlotsOrder,
    StatusEvent,
    StopOrder,
    WorkerFailed,
)
from weft.elastic.agent.spec import make_agent_spec, slots_of
from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.announce import lines_about
from weft.elastic.launcher.control import KnownHost, make_control
from weft.elastic.launcher.decisions import (
    are_all_ended,
    are_all_replaced,
    have_all_left,
    require_enough,
    troubles_of,
)
from weft.elastic.launcher.ending import outcome_of
from weft.elastic.launcher.hosts.scaler import HostScaler
from weft.elastic.launcher.recruits import HostRecord, HostState, Recruits
from weft.elastic.launcher.run_files import RunFiles
from weft.elastic.membership.endings import PAUSED
from weft.elastic.membership.policy import choose_voters
from weft.elastic.membership.reports import AgentAddress, AgentStatus, WorkerState
from weft.elastic.membership.view import View
from weft.launch.agent.here import is_this_machine
from weft.launch.agent.processes import sweep
from weft.launch.agent.protocol import (
    AgentClosed,
    CommandFailed,
    HostUsed,
    SignalReceived,
    WorkerOutput,
    WorkerPoints,
)
from weft.launch.agent.sweep import marker
from weft.launch.config import LaunchConfig
from weft.launch.control.agents import PoolEvent
from weft.launch.control.conductor import signals_to
from weft.launch.control.outcome import Outcome
from weft.launch.control.rundir import RunDir
from weft.launch.control.screen import RunScreen
from weft.launch.engines.engine import choose_engine, remote_hosts
from weft.launch.engines.hosts import LocalHosts
from weft.messages import encode
from weft.secret import new_secret
from weft.topology.detect import detect

LOOK_S = 0.1  # between two looks at which hosts are wanted
ANSWER_S = 20.0  # for all hosts to answer at the start
GATHER_TURN_S = 0.2  # for the next message while hosts are awaited at the start


class ElasticLauncher:
    """One elastic run, seen from where it was started."""

    def __init__(
        self,
        config: LaunchConfig,
        elastic: ElasticConfig,
        out: BinaryIO,
        *,
        secret: str | None = None,
        local: bool | None = None,
    ) -> None:
        self._config, self._elastic = config, elastic
        alone = not config.host_names or choose_engine(config) not in ("ssh", "pods")
        self._local = alone if local is None else local  # on this machine alone
        self._secret = secret or new_secret()
        hosts = LocalHosts(config) if self._local else remote_hosts(config)
        self._recruits = Recruits(config, hosts, self._on_listening)
        self._hosts, self._crew = self._recruits.hosts, self._recruits.crew
        self._scaler = HostScaler(self._recruits, elastic, local=self._local, say=self._say)
        self._screen = RunScreen(out, most_workers=elastic.most)
        self._first: View | None = None  # the view with which agents begin
        self._files: RunFiles | None = None  # once there is a run directory
        self._run = ""
        self._began_s = time.time()
        self._view = 0  # the newest that is known
        self._voters: set[str] = set()  # of that view
        self._troubles: list[str] = []  # of hosts that did not answer at the start
        self._not_replaced_at = time.monotonic()
        self._over, self._code = "", 0
        self._failures: list[str] = []
        self._interrupted: int | None = None  # the signal
        self._next_look = 0.0
        self._pausing = False

    def close(self) -> None:
        """Let all agents go."""
        self._scaler.close()
        self._crew.close()
        if self._files is not None:
            self._files.close()

    def run(self) -> Outcome:
        """Start the agents, and stay until the run is over."""
        names = [entry.name for entry in self._scaler.wanted.hosts] or [detect().name]
        absent: dict[str, str] = {}
        if not self._local and not self._config.skip_checks:
            from weft.elastic.launcher.preflight import check_present_hosts

            absent = check_present_hosts(self._config)
        # A signal may come in the middle of anything, so its handler only leaves a message.
        with signals_to(lambda number: self._crew.inbox.put(("", SignalReceived(number)))):
            for name in names:
                if name in absent:
                    self._recruits.miss(name, absent[name])
                else:
                    self._recruits.call(name)
            if not self._local and (self._elastic.witness or not any(map(is_this_machine, names))):
                self._recruits.call_witness(self._elastic.witness)
            self._gather(names)
            self._begin()
            return self._stay()

    def _stay(self) -> Outcome:
        """Stay until the run is over; return, and write down, how it ended."""
        try:
            while not self._done():
                self._turn()
        finally:
            self._screen.close()
        outcome = outcome_of(
            self._over,
            self._code,
            failures=self._failures,
            interrupted=self._interrupted,
            seconds=time.time() - self._began_s,
            run_dir=str(self._run_files.folder.path),
        )
        self._run_files.write_outcome(outcome)
        return outcome

    # -- hosts ------------------------------------------------------------------------------------

    def _gather(self, names: list[str]) -> None:
        """Wait until the agent of every host listens, or is known not to be there."""
        deadline = time.monotonic() + ANSWER_S
        settled = (HostState.LISTENING, HostState.AWAY)
        awaited = [host for host in self._hosts.values() if host.name in names or host.witness]
        while any(host.state not in settled for host in awaited):
            if time.monotonic() > deadline:
                break
            self._hear_next(GATHER_TURN_S)
            if self._interrupted:
                raise KeyboardInterrupt
        here = [self._hosts[name] for name in names if self._hosts[name].state == HostState.LISTENING]
        self._troubles = troubles_of(awaited, answer_s=ANSWER_S)
        require_enough(here, self._elastic.least, self._troubles)

    def _begin(self) -> None:
        """Make the run directory, and have the agents that listen begin."""
        here = [host for host in self._hosts.values() if host.state == HostState.LISTENING]
        assert self._recruits.plan is not None
        folder = RunDir.create(
            self._config.run_dir, self._recruits.plan, datetime.now(), self._config.parallel_plan
        )
        self._files = RunFiles(folder, warn=self._say)
        self._run = f"{folder.path.name}-{secrets.token_hex(4)}"
        self._files.begin(self._secret)
        self._open()
        for trouble in self._troubles:
            self._say(f"{trouble}; going on without it, and trying again")
        self._first = View(0, (), _choose_voters(here), "")
        self._keep_control()
        for host in here:
            self._start(host)

    @property
    def _run_files(self) -> RunFiles:
        """The files of a run that has begun."""
        assert self._files is not None
        return self._files

    def _open(self) -> None:
        """Open the logs, and look for requests."""
        self._screen.open(self._run_files.path)
        self._scaler.follow(self._run_files.scale_file)

    def _keep_control(self) -> None:
        """Write down what another launcher would have to know."""
        control = make_control(
            self._config,
            self._elastic,
            run=self._run,
            began_s=self._began_s,
            local=self._local,
            first=self._first,
            known={
                host.name: KnownHost(tuple(host.ranks), host.lives, host.witness, host.at)
                for host in self._hosts.values()
            },
        )
        self._run_files.keep_control(control)

    def _roster(self) -> dict[str, AgentAddress]:
        """The addresses of all agents that take part, or are about to, by name."""
        return {
            host.agent: AgentAddress(host.name, host.address, 0 if host.witness else host.port)
            for host in self._hosts.values()
            if host.state in (HostState.LISTENING, HostState.RUNNING)
        }

    def _start(self, host: HostRecord) -> None:
        """Give the agent of a host the description of the run."""
        assert self._recruits.plan is not None
        assert self._first is not None
        spec = make_agent_spec(
            host,
            self._recruits.plan,
            self._elastic,
            run=self._run,
            run_dir=self._run_files.path,
            grace_s=self._config.grace_s,
            expected=self._scaler.expected_workers(),
            secret=self._secret,
            view=self._first,
            roster={name: where for name, where in self._roster().items() if name != host.agent},
            here=self._is_here(host),
        )
        self._tell(spec, [host])
        host.state, host.view = HostState.RUNNING, -1
        host.lives += 1
        self._keep_control()
        self._tell_missed(host)

    def _is_here(self, host: HostRecord) -> bool:
        return not self._crew.connections[host.name].command.remote

    # -- the loop ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._hear_next(LOOK_S)
        now = time.monotonic()
        if now >= self._next_look and not self._over and self._interrupted is None:
            self._next_look = now + LOOK_S
            self._look(now)

    def _look(self, now: float) -> None:
        """Bring hosts in and out as they are wanted, and see whether the run can go on."""
        self._scaler.look()
        if self._scaler.resize():
            self._keep_control()
            for host in self._running():
                self._send_slots(host)
        for host in self._scaler.dismiss():
            self._tell(LeaveOrder(), [host])
        self._tell_workers()
        if not self._pausing and self._run_files.is_pause_asked:
            self._pause()
        self._scaler.call_absent(now)
        if not are_all_replaced(self._hosts.values(), self._voters):
            self._not_replaced_at = now
        # Not at once: an agent may be about to hear that it has become a voter.
        elif now - self._not_replaced_at > self._elastic.detect_within_s:
            self._begin_anew()
        if have_all_left(self._hosts.values(), self._scaler.names()):
            self._end("a run must have a host to go on, got none: all were taken away; start it again", 1)

    def _hear_next(self, timeout_s: float) -> None:
        """Take in one message of an agent, or a signal."""
        try:
            name, event = self._crew.hear(timeout_s)
        except Empty:
            return
        self._hear(self._hosts.get(name), event)

    def _send_slots(self, host: HostRecord) -> None:
        """Tell a host which slots it has; one that has just these changes nothing."""
        if host.plan is not None:
            slots = slots_of(host, self._run_files.path if self._is_here(host) else None)
            self._tell(SlotsOrder(slots, self._scaler.expected_workers()), [host])

    def _tell_workers(self) -> None:
        """Write down how many worker processes each host has, when that changes."""
        now = {host.name: host.alive for host in self._hosts.values() if host.alive and not host.witness}
        if all(host.view >= 0 for host in self._running()):  # or some have not told yet
            self._run_files.tell_workers(now)

    def _pause(self) -> None:
        """Have the run end at its next checkpoint; one that has not begun ends at once."""
        self._pausing = True
        self._say("the run is to pause: it ends when the next step is saved")
        if self._view == 0:
            self._end(PAUSED.how, PAUSED.code)
        else:
            self._tell(PauseOrder(), self._running())

    def _hear(self, host: HostRecord | None, event: PoolEvent) -> None:
        if host is None:
            if isinstance(event, SignalReceived):
                self._interrupt(event.number)
            return
        match event:
            case ElasticEvent():
                self._on_event(host, event)
            case WorkerOutput():
                self._screen.write(event)
            case HostUsed():
                self._screen.keep_usage(host.name, event)
            case WorkerPoints():
                self._screen.keep_points(event)
            case AgentClosed():
                self._on_closed(host)
            case CommandFailed():
                self._failures.append(f"{host.name}: could not {event.during}: {event.message}")
            case _:
                self._recruits.hear(host, event)

    def _on_event(self, host: HostRecord, event: ElasticEvent) -> None:
        """Take in a message of an elastic agent."""
        match event:
            case AgentListening():
                self._recruits.on_listening(host, event)
            case AgentAbsent():
                self._go_on_without_agent(host)
            case AgentBegun():  # the others shall know where the new agent is
                self._tell(RosterUpdate(self._roster()), self._running())
                if host.lives > 1:
                    self._catch_up(host)
            case AgentAttached():
                self._on_attached(host, event)
            case StatusEvent():
                self._on_status(host, event.status)
            case JournalEvent():
                for line in [*lines_about(event.news), *self._scaler.bar(event.news)]:
                    self._say(line)
            case WorkerFailed():
                self._failures.append(event.why)
            case AgentDone():
                host.state = HostState.DONE
                if event.over and not self._over:
                    self._end(event.over, event.code)

    def _tell(self, order: ElasticOrder, hosts: Iterable[HostRecord]) -> None:
        self._crew.tell_line(encode(order), [host.name for host in hosts])

    def _running(self) -> list[HostRecord]:
        return [host for host in self._hosts.values() if host.state == HostState.RUNNING]

    def _on_listening(self, host: HostRecord) -> None:
        """Have an agent that listens begin at once, if the run has begun and no agent of its host can be left."""
        if self._first is None:
            return
        if host.lives:
            self._ask_for_agent(host)
        else:
            self._start(host)

    def _ask_for_agent(self, host: HostRecord) -> None:
        """Ask a host for the agent that it had; one that is still there keeps the run, and its workers."""
        order = AttachOrder(
            run=self._run,
            run_dir=str(self._run_files.path),
            host=host.name,
            secret=self._secret,
            ranks=tuple(host.ranks),
            received=self._run_files.received(host.ranks, here=self._is_here(host)),
        )
        self._tell(order, [host])

    def _go_on_without_agent(self, host: HostRecord) -> None:
        """Begin anew on a host whose agent is gone; let it go if the run ends."""
        if self._is_ending:
            self._let_go(host)
        else:
            self._start(host)

    def _let_go(self, host: HostRecord) -> None:
        host.state = HostState.GONE
        self._crew.connections[host.name].dismiss()

    def _on_attached(self, host: HostRecord, event: AgentAttached) -> None:
        """Go on with an agent that was cut off from this launcher, or that another launcher had started."""
        host.agent, host.address, host.port = event.agent, event.address, event.port
        host.state, host.view = HostState.RUNNING, -1
        self._say(f"{host.name} is back")
        self._catch_up(host)

    def _catch_up(self, host: HostRecord) -> None:
        """Have an agent send the output that is missing here, and tell it what it may have missed itself."""
        self._tell(CatchUpOrder(self._run_files.received(host.ranks, here=self._is_here(host))), [host])
        self._send_slots(host)
        self._tell(RosterUpdate(self._roster()), self._running())
        self._tell_missed(host)

    def _tell_missed(self, host: HostRecord) -> None:
        """Tell an agent what was ordered before it could hear: to pause, to stop, or that the run is over."""
        if self._pausing:
            self._tell(PauseOrder(), [host])
        if self._over:
            self._tell(EndOrder(self._over, self._code), [host])
        elif self._interrupted is not None:
            self._tell(StopOrder(), [host])

    def _on_status(self, host: HostRecord, status: AgentStatus) -> None:
        host.view = status.view
        if host.view >= self._view:
            self._view, self._voters = host.view, set(status.voters)
        states = [worker.state for worker in status.report.workers]
        host.workers = sum(state in (WorkerState.READY, WorkerState.MEMBER) for state in states)
        host.alive = len(states)

    def _end(self, how: str, code: int) -> None:
        self._over, self._code = how, code
        # An agent may be cut off from the others, so all are told.
        self._tell(EndOrder(how, code), self._running())

    def _on_closed(self, host: HostRecord) -> None:
        if host.state in (HostState.DONE, HostState.LEAVING):
            host.state, host.alive = HostState.GONE, 0
            return
        was, host.alive = host.state, 0
        why = host.trouble or self._crew.explain(host.name)
        self._recruits.mark_away(host, why)
        host.trouble = why
        if was == HostState.RUNNING and not self._over:
            self._say(f"{host.name} is lost: {why}")
            if self._local:
                self._begin_again(host)

    def _begin_again(self, host: HostRecord) -> None:
        """Start another agent in place of the only one, which has died; workers resume from a checkpoint."""
        if not is_agent_here(self._run, host.name):  # or it was what relays its messages that died
            sweep(marker(self._run))
        host.retry_at = 0.0
        self._first = None
        self._recruits.call(host.name)
        self._gather([host.name])
        self._first = View(self._view + 1, (), (host.agent,), "")
        self._start(host)

    def _begin_anew(self) -> None:
        """Have new agents make a view of their own, as all others are dead; workers resume from a checkpoint."""
        here = self._running()
        self._say("all hosts were lost; those that are back begin again from what was saved")
        self._first = View(self._view + 1, (), _choose_voters(here), "start: all hosts were lost")
        self._view, self._voters = self._first.number, set(self._first.voters)
        self._tell(BeginOrder(self._first), here)

    def _interrupt(self, number: int) -> None:
        again = self._interrupted is not None
        self._interrupted = self._interrupted or number
        if not self._screen.is_open:
            return
        if not again:
            self._say(f"{signal.Signals(number).name}: ending the run (again to end it at once)")
        self._crew.tell_line(encode(StopOrder(again)))

    def _say(self, text: str) -> None:
        self._screen.say(text)

    # -- the end ----------------------------------------------------------------------------------

    @property
    def _is_ending(self) -> bool:
        return bool(self._over) or self._interrupted is not None

    def _done(self) -> bool:
        return self._is_ending and are_all_ended(self._hosts.values())


def _choose_voters(hosts: list[HostRecord]) -> tuple[str, ...]:
    agents = sorted(host.agent for host in hosts if not host.witness)
    return choose_voters(agents, [host.agent for host in hosts if host.witness])
