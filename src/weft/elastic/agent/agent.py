"""The agent of one host in an elastic run: it runs the host's workers and agrees with the other agents on who takes
part.

The launcher starts it, but it does not depend on the launcher: when the launcher, its host or its cable is gone, the
agents go on and finish the run. When an agent ends, however it ends, so do its workers.

Events come from its workers, the other agents, the launcher and the clock. Decisions are made elsewhere, from what the
agent knows: about its own workers in `reactions.py`, about the next view in `membership/leader.py`, about agreement in
`membership/council.py`. The agent carries them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from weft.elastic.agent import reactions
from weft.elastic.agent.actions import (
    Broadcast,
    CheckSoon,
    EndRun,
    LeadNow,
    Reaction,
    ReportFailure,
    WriteCommit,
    WriteEvent,
    WriteHeader,
)
from weft.elastic.agent.journal import Journal
from weft.elastic.agent.launcher_link import LauncherLink, accept_launcher, listen_for_launcher
from weft.elastic.agent.launcher_messages import (
    AgentAttached,
    AgentBegun,
    AgentSpec,
    BeginOrder,
    CatchUpOrder,
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
from weft.elastic.agent.peer_messages import EvictWorker, StatusBeat
from weft.elastic.agent.peers import Peers
from weft.elastic.agent.reactions import RunFacts, WorkerFacts
from weft.elastic.agent.workers import HostWorkers
from weft.elastic.membership.contact import Contact
from weft.elastic.membership.council import Action, Council, Decided, Send
from weft.elastic.membership.council_messages import CouncilMessage, ViewDecided
from weft.elastic.membership.endings import (
    FINISHED,
    PAUSED,
)
from weft.elastic.membership.known_agents import KnownAgents
from weft.elastic.membership.leader import Leader
from weft.elastic.membership.policy import MembershipRules
from weft.elastic.membership.reports import AgentAddress, AgentReport, AgentStatus, WorkerState
from weft.elastic.membership.stragglers import SlowFinding, Stragglers
from weft.elastic.membership.view import View
from weft.elastic.timing import Timing
from weft.elastic.worker.messages import FromWorker
from weft.launch.agent.protocol import HostUsed
from weft.launch.agent.sweep import marker
from weft.launch.agent.usage import UsageSampler, now_ms
from weft.messages import Message

URGENT_KINDS = (
    "death",
    "broken",
    "left",
    "start",
)  # changes of the view that do not wait for the end of a step


class ElasticAgent:
    """The agent of one host."""

    def __init__(
        self, spec: AgentSpec, launcher: LauncherLink, port: int, *, left_out: Mapping[int, int]
    ) -> None:
        self.spec = spec
        self.name, self.host, self.witness = spec.agent, spec.host, spec.witness
        self.launcher = launcher
        self.timing = Timing(spec.detect_within_s)
        self.rules = MembershipRules(
            least=spec.least,
            most=spec.most,
            gather_s=self.timing.gather_s,
            broken_s=self.timing.broken_s,
            waiting_s=self.timing.detect_within,
            start_within_s=spec.start_within_s,
        )
        self.where = AgentAddress(self.host, spec.address, 0 if self.witness else port)
        self.council = Council(self.name, spec.view)
        self.peers = Peers(self.name, spec.secret, self, retry_s=self.timing.retry_s, calls_all=self.witness)
        self.journal = Journal(Path(spec.run_dir), self.host, spec.run, tell=self._send_event)
        self.workers = HostWorkers(
            spec,
            self.journal,
            launcher,
            left_out=left_out,
            on_message=self._on_worker_message,
            on_end=self._on_worker_end,
        )
        now = time.monotonic()
        stragglers = Stragglers(spec.slow, self.rules.least)
        self.leader = Leader(self.rules, self.timing, stragglers, spec.expected, now=now)
        self.known = KnownAgents(
            self.name, own_status=self._status, own_report=self._report, is_alive=self._is_alive
        )
        self.committed = 0  # steps, as far as this host knows
        self.saved = False  # there is a checkpoint, as far as this host knows
        self.leaving = False  # this host is taken away from the run
        self.gave_up = False  # this host was cut off from all for long, and leaves for that
        self.over = ""  # "finished", or why the run failed
        self.code = 0  # the exit code of a run that is over
        self._losses_reported: set[tuple[int, str]] = set()  # view and agent
        self._kill_at: float | None = None
        self._changed = asyncio.Event()
        self._next_beat = 0.0
        self._checked_at = now
        self._usage = UsageSampler(marker(spec.run))
        self._contact = Contact(least=self.rules.least, now=now)
        self._tasks: set[asyncio.Task[None]] = set()

    # -- the loop ---------------------------------------------------------------------------------

    async def run(self) -> int:
        """Take part until the run is over and the workers of this host are gone; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        listener = listen_for_launcher(self.spec.run, self.host)
        if listener is not None:
            loop.add_reader(listener.fileno(), lambda: self._start(self._on_launcher_back(listener)))
        self.workers.open()
        self.launcher.send(AgentBegun())
        self._add_peers(self.spec.roster)
        while not self._done():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self.timing.look_s)
            self._changed.clear()
            self._check()
        self._beat()
        self.workers.close()
        await self.peers.close()
        self.journal.close()
        return 0 if self.leaving else self.code

    def _done(self) -> bool:
        return self.workers.empty and (bool(self.over) or self.leaving)

    def _check(self) -> None:
        """Do what is due by the clock."""
        now = time.monotonic()
        late_s, self._checked_at = now - self._checked_at - self.timing.look_s, now
        if late_s > self.timing.beat_s:
            self.peers.excuse(late_s)
            self._contact.excuse(late_s, now)
        self.peers.drop_silent(self.timing.silence_s)
        self._check_workers()
        reach = self.known.reach(self.council.view)
        self._contact.note(reach, launcher_heard_at=self.launcher.heard_at, now=now)
        if not self.over and not self.leaving:
            self._leave_if_cut_off(now)
        if not self.over:
            self._lead(now)
            self._end_if_over(now)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self.workers.kill(but=WorkerState.FINISHED)
        if now >= self._next_beat:
            self._beat()
        if now >= self._usage.due_at and not self.witness:
            values = self._usage.sample(now)
            if values is not None:
                self.launcher.send(HostUsed(now_ms(), values), may_drop=True)

    def _beat(self) -> None:
        """Send the status of this agent to the others and to the launcher."""
        self._next_beat = time.monotonic() + self.timing.beat_s
        status = self._status()
        self.peers.beat(status)
        self.launcher.send(StatusEvent(status))

    def _status(self) -> AgentStatus:
        return AgentStatus(
            report=self._report(),
            view=self.council.view.number,
            voters=self.council.view.voters,
            over=self.over,
            code=self.code,
            possible=0 if self.leaving else self.workers.possible,
            trouble=self.workers.trouble,
            micros=self.workers.micros(),
            round_trip_s=self.peers.round_trip_s(),
            roster={**self.peers.roster(), self.name: self.where},
        )

    def _is_alive(self, agent: str) -> bool:
        return self.peers.silent_for(agent) < self.timing.silence_s

    def _report(self) -> AgentReport:
        reports = self.workers.reports()
        return AgentReport(self.name, self.host, self.where.address, reports, witness=self.witness)

    # -- its own workers --------------------------------------------------------------------------

    def _on_worker_message(self, worker: WorkerFacts, message: FromWorker) -> None:
        self._carry_out(reactions.on_message(worker, message, self._run_facts()))

    def _on_worker_end(self, worker: WorkerFacts, code: int) -> None:
        self._carry_out(reactions.on_end(worker, code, self._run_facts()))

    def _check_workers(self) -> None:
        stays = not self.over and not self.leaving
        self.workers.start_due(wanted=stays)
        for worker, stall in self.workers.stuck(self.timing, self.known.waits_s(self.council.view)):
            ends = self.known.may_end(worker.name, idle_s=stall.idle_s, saved=self.saved)
            self._carry_out(reactions.on_stuck(worker, stall, self.council.view, may_end=ends))
        for worker, used_bytes in self.workers.over_memory():
            limit_bytes, view = self.spec.memory_bytes, self.council.view
            self._carry_out(reactions.on_over_memory(worker, used_bytes, limit_bytes, view))
        if stays:
            workers, view = self.workers.facts(), self.council.view
            others_stay = self.known.others_stay(view)
            grace_s = self.spec.grace_s
            self._carry_out(reactions.on_clock(workers, view, grace_s=grace_s, others_stay=others_stay))

    def _evict_here(self, name: str) -> None:
        for worker in self.workers.facts():
            if worker.name == name:
                self._carry_out(reactions.on_too_slow(worker))

    def _run_facts(self) -> RunFacts:
        return RunFacts(self.council.view, bool(self.over), self.leaving, self.committed)

    def _carry_out(self, actions: Iterable[Reaction]) -> None:
        for action in actions:
            match action:
                case WriteEvent(name, facts):
                    self.saved = self.saved or name == "saved"
                    self.journal.event(name, **facts)
                case WriteHeader(header):
                    self.journal.header(dict(header))
                case WriteCommit(record):
                    self.committed = max(self.committed, record.step + 1)
                    self.journal.commit(record)
                case ReportFailure(why):
                    self.launcher.send(WorkerFailed(why))
                case EndRun(how, code):
                    self.end(how, code)
                case CheckSoon():
                    self._changed.set()
                case Broadcast():
                    self._beat()
                case LeadNow():
                    self._lead(time.monotonic())
                    self._beat()
                case _:
                    self.workers.carry_out(action)

    # -- leading and agreeing ---------------------------------------------------------------------

    def _lead(self, now: float) -> None:
        """Decide what should follow, if this agent leads: it is the first voter that is alive."""
        view = self.council.view
        statuses = self.known.living()
        leader = next((voter for voter in view.voters if voter in statuses), None)
        if leader != self.name:
            return
        living = {agent: status.report for agent, status in statuses.items()}
        decision = self.leader.decide(view, living, statuses, now)
        for finding in decision.findings:
            self._act_on_slow(view, finding)
        if decision.proposal is None:
            return
        for agent in sorted(view.agents - living.keys()):
            self._report_loss(agent, f"no sign of life for {self.peers.silent_for(agent):.1f} s")
        self._agree(self.council.propose(decision.proposal))

    def _act_on_slow(self, view: View, finding: SlowFinding) -> None:
        who = list(finding.workers)
        policy = self.spec.slow
        self.journal.event(
            "detected", view=view.number, kind="slow", who=who, cause=finding.cause, policy=policy
        )
        for member in view.members:
            if finding.evict and member.worker in who:
                if member.agent == self.name:
                    self._evict_here(member.worker)
                else:
                    self.peers.send(member.agent, EvictWorker(member.worker))

    def _report_loss(self, agent: str, cause: str) -> None:
        """Write down that a host is lost, once for each view."""
        view = self.council.view
        if agent in view.agents and (view.number, agent) not in self._losses_reported and not self.over:
            self._losses_reported.add((view.number, agent))
            who = [member.worker for member in view.members if member.agent == agent]
            self.journal.event("detected", view=view.number, kind="host", who=who, cause=cause)

    def _agree(self, actions: list[Action]) -> None:
        """Carry out what the council asks for."""
        for action in actions:
            if isinstance(action, Send):
                self.peers.send(action.to, action.message)
            elif isinstance(action, Decided):
                self._adopt(action.view)

    def _adopt(self, view: View) -> None:
        """Tell the workers of this host that a view is decided."""
        self.leader.on_view(time.monotonic())
        kind, _, cause = view.cause.partition(": ")
        members = [member.worker for member in view.members]
        if members:
            self.journal.event(
                "agreed", view=view.number, cause=cause, kind=kind, size=view.size, members=members
            )
        self._carry_out(reactions.on_view(self.workers.facts(), view, urgent=kind in URGENT_KINDS))
        self._changed.set()

    # -- the other agents -------------------------------------------------------------------------

    def met(self, peer: str) -> None:
        """Note that a connection to this peer begins."""
        self._agree(self.council.met(peer))
        self._beat()

    def on_disconnect(self, peer: str) -> None:
        """Note that the connection to this peer broke."""
        self._agree(self.council.lost(peer))

    def on_death(self, peer: str) -> None:
        """Note that the process of this peer has ended."""
        self.known.forget(peer)
        self._report_loss(peer, "its agent has ended")
        self._agree(self.council.gone(peer))
        self._changed.set()

    def on_message(self, peer: str, message: Message) -> None:
        """Take in a message of this peer."""
        match message:
            case CouncilMessage():
                self._agree(self.council.receive(peer, message))
            case StatusBeat():
                self._on_status(peer, message.status)
            case EvictWorker():
                self._evict_here(message.worker)

    def _on_status(self, peer: str, status: AgentStatus) -> None:
        changed = self.known.take(peer, status)
        self._add_peers(status.roster)
        if status.over and not self.over:
            self.end(status.over, status.code, tell=False)
        if changed:
            self._changed.set()

    def _add_peers(self, roster: Mapping[str, AgentAddress]) -> None:
        for name, where in roster.items():
            self.peers.add(name, where)

    # -- the end ----------------------------------------------------------------------------------

    def end(self, how: str, code: int = 1, *, tell: bool = True) -> None:
        """End the run: workers that are done exit by themselves, the others are asked to, and killed after a while."""
        if self.over:
            return
        self.over, self.code = how, code
        well = how in (FINISHED.how, PAUSED.how)
        self.journal.event(how if well else "failed", cause=how, code=code)
        self._carry_out(reactions.on_run_over(self.workers.facts(), self.council.view, how=how))
        self._kill_at = time.monotonic() + self.spec.grace_s
        if tell:
            self._beat()
        self._changed.set()

    def _end_if_over(self, now: float) -> None:
        """End the run if loops were left, if too few workers can be there, or if nobody is there to help for long."""
        view = self.council.view
        found = self.known.run_end(view, self.rules) or self._contact.end_of_run(self.known.reach(view), now)
        if found is not None:
            self.end(found.how, found.code)

    def _leave_if_cut_off(self, now: float) -> None:
        """End what is here if this host was cut off from the others and from its launcher for long.

        The run may well go on elsewhere: nobody is told that it is over, and this host may be called again.
        """
        view = self.council.view
        patience_s = self._contact.gives_up_after_s(
            self.known.reach(view),
            now,
            lambda: self.known.patience_when_cut_off_s(view, self.spec.alone_s),
        )
        if patience_s is None:
            return
        cause = f"cut off from the others and from the launcher for {patience_s:g} s"
        self.journal.event("gave-up", view=view.number, cause=cause)
        self.leaving = self.gave_up = True
        self._carry_out(reactions.on_cut_off(self.workers.facts()))
        self._beat()

    def _on_signal(self) -> None:
        """Leave the run, as this host is taken away; a second signal, or the end of the grace, kills the workers."""
        if self.leaving:
            self.workers.kill()
            return
        self._leave()
        asyncio.get_running_loop().call_later(self.spec.grace_s + self.timing.detect_within, self._on_signal)

    def _leave(self) -> None:
        """Have all workers leave, those that take part at the end of their step; then the agent ends."""
        self.leaving = True
        self._carry_out(reactions.on_host_leaves(self.workers.facts(), self.council.view))
        self._beat()

    def _take_slots(self, order: SlotsOrder) -> None:
        """Have another number of workers on this host."""
        self.leader.expect(order.expected)
        if self.over or self.leaving:
            return
        before = len(self.workers.slots)
        surplus = self.workers.take_slots(order.slots)
        if surplus is None:
            return
        if len(order.slots) != before:
            self.journal.event("resized", slots=len(order.slots), before=before)
        self._carry_out(reactions.on_slots_gone(surplus, self.council.view))
        self._beat()

    # -- the launcher -----------------------------------------------------------------------------

    def obey(self, order: ElasticOrder) -> None:
        """Do what the launcher asks for."""
        match order:
            case RosterUpdate():
                self._add_peers(order.roster)
            case EndOrder():
                self.end(order.how, order.code)
            case BeginOrder():  # all agents that had decided on a view are dead
                self._agree(self.council.receive("", ViewDecided(order.view)))
            case LeaveOrder() if not self.leaving:  # without a limit: the host stays as long as it takes
                self._leave()
            case SlotsOrder():
                self._take_slots(order)
            case PauseOrder():
                self.workers.pause()
            case CatchUpOrder():
                self.workers.catch_up(order.received)
            case StopOrder():
                if order.now:
                    self.workers.kill()
                self.end("stopped on request")

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _on_launcher_back(self, listener: socket.socket) -> None:
        """Attach a launcher that had lost this agent."""
        connection = await accept_launcher(listener, self.spec.secret)
        if connection is not None:
            self.workers.hold_output()
            self.launcher.attach(connection)
            self.launcher.send(AgentAttached(self.name, self.where.address, self.where.port, self.spec.env))

    def _send_event(self, event: dict[str, Any]) -> None:
        self.launcher.send(JournalEvent(event))
