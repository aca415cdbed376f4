"""The agent of one host in an elastic run: it watches over the host's workers and agrees with the other agents on who
takes part.

It is started by the launcher but does not depend on it: when the launcher, its host or its cable is gone, the agents go
on and finish the run. When an agent ends, however it ends, so do its workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import time
from pathlib import Path

from weft.elastic.agent.door import carry, knock, let_in, open_door
from weft.elastic.agent.journal import Journal, outcome
from weft.elastic.agent.launcher_link import Spoken
from weft.elastic.agent.peers import Address, Message, Peers
from weft.elastic.agent.process import FINISHED, LEAVING
from weft.elastic.agent.reactions import Watch
from weft.elastic.membership.council import Action, Council, Decided, Send, is_quorum
from weft.elastic.membership.leader import Leading
from weft.elastic.membership.policy import AgentReport, Rules
from weft.elastic.membership.stragglers import Slowness
from weft.elastic.membership.view import View
from weft.elastic.timing import Timing

URGENT = ("death", "broken", "start")  # kinds of changes that do not wait for the end of a step
ALONE_S = 600.0  # until an agent gives up that nobody hears


class Agent:
    """One host's part in the run."""

    def __init__(self, spec: Message, launcher: Spoken, port: int) -> None:
        self.spec = spec
        self.name: str = spec["agent"]
        self.host: str = spec["host"]
        self.witness: bool = spec["witness"]
        self.launcher = launcher
        self.timing = Timing(spec["detect_within"])
        self.rules = Rules(
            least=spec["least"],
            most=spec["most"],
            gather_s=self.timing.gather_s,
            broken_s=self.timing.broken_s,
            waiting_s=self.timing.detect_within,
            start_within_s=spec["start_within"],
        )
        self.where = Address(self.host, spec["address"], 0 if self.witness else port)
        self.council = Council(self.name, View.from_json(spec["view"]))
        self.peers = Peers(
            self.name, spec["secret"], self, retry_s=self.timing.retry_s, calls_all=self.witness
        )
        self.journal = Journal(Path(spec["run_dir"]), self.host, spec["run"], tell=self._tell_event)
        self.watch = Watch(spec, self, self.journal, launcher, self.timing)
        self.household = self.watch.household
        slowness = Slowness(spec["slow"], self.rules.least, self.journal, self._evict)
        self.leading = Leading(self.rules, self.timing, slowness, spec["expected"])
        self.reports: dict[str, Message] = {}  # what the other agents last said of themselves
        self._told_lost: set[tuple[int, str]] = set()
        self.leaving = False
        self.over = ""  # "finished", or why the run failed
        self.code = 0  # the exit code of a run that is over
        self._stop_at: float | None = None
        self._changed = asyncio.Event()
        self._next_beat = 0.0
        self._turned_at = time.monotonic()
        self._with_others_at = time.monotonic()

    # -- the loop ---------------------------------------------------------------------------------

    async def run(self) -> int:
        """Until the run is over and our workers are gone; gives our exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_leave)
        door = open_door(self.spec["run"], self.host)
        if door is not None:
            loop.add_reader(door.fileno(), self._let_in, door)
        self.household.open()
        self.launcher.say({"event": "begun"})
        for name, where in self.spec["roster"].items():
            self.peers.add(name, Address(*where))
        while not self._done():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self.timing.look_s)
            self._changed.clear()
            self._turn()
        self._beat()
        self.household.close()
        await self.peers.close()
        self.journal.close()
        return 0 if self.leaving else self.code

    def _turn(self) -> None:
        now = time.monotonic()
        late_s, self._turned_at = now - self._turned_at - self.timing.look_s, now
        if late_s > self.timing.beat_s:
            self.peers.excuse(late_s)
        self.peers.drop_silent(self.timing.silence_s)
        self.watch.turn()
        if not self.over:
            self._lead(now)
            self._see_whether_it_can_go_on()
            self._see_whether_anybody_is_left(now)
        if self.over and self._stop_at is not None and now >= self._stop_at:
            self._stop_at = None
            self.household.kill(but=FINISHED)
        if now >= self._next_beat:
            self._beat()

    def _beat(self) -> None:
        self._next_beat = time.monotonic() + self.timing.beat_s
        status = self._status()
        self.peers.beat({"kind": "status", **status})
        self.launcher.say({"event": "status", **status})

    def _status(self) -> Message:
        return {
            "report": self._report().to_json(),
            "view": self.council.view.number,
            "voters": self.council.view.voters,
            "over": self.over,
            "code": self.code,
            "leaving": self.leaving,
            "committed": self.watch.committed,
            "possible": 0 if self.leaving else self.household.possible,
            "trouble": self.household.trouble,
            "micros": self.household.micros(),
            "round_trip_s": self.peers.round_trip_s(),
            "roster": {
                name: [where.host, where.address, where.port]
                for name, where in [*self.peers.roster().items(), (self.name, self.where)]
            },
        }

    def _report(self) -> AgentReport:
        return AgentReport(
            self.name, self.host, self.where.address, self.household.reports(), witness=self.witness
        )

    def _done(self) -> bool:
        """Whether there is nothing left for us to do."""
        return self.household.empty and (bool(self.over) or self.leaving)

    # -- leading ----------------------------------------------------------------------------------

    def _living(self) -> dict[str, AgentReport]:
        """The agents that are there, ourselves included, with what they last reported."""
        living = {self.name: self._report()}
        for name, status in self.reports.items():
            if self.peers.silent_for(name) < self.timing.silence_s:
                living[name] = AgentReport.from_json(status["report"])
        return living

    def _lead(self, now: float) -> None:
        """Propose what should follow, if it is our turn: we are the first voter that is there."""
        view = self.council.view
        living = self._living()
        leader = next((voter for voter in view.voters if voter in living), None)
        if leader != self.name:
            return
        statuses = {agent: self._status_of(agent) for agent in living}
        wish = self.leading.wish(view, living, statuses, now)
        if wish is None:
            return
        for agent in sorted(view.agents - living.keys()):
            self._tell_lost(agent, f"no sign of life for {self.peers.silent_for(agent):.1f} s")
        self._act(self.council.propose(wish))

    def _tell_lost(self, agent: str, cause: str) -> None:
        """Note that a host is lost, once for each view."""
        view = self.council.view
        if agent in view.agents and (view.number, agent) not in self._told_lost and not self.over:
            self._told_lost.add((view.number, agent))
            who = [member.worker for member in view.members if member.agent == agent]
            self.journal.event("detected", view=view.number, kind="host", who=who, cause=cause)

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self.peers.send(action.to, {"kind": "council", "word": action.message})
            elif isinstance(action, Decided):
                self._adopt(action.view)

    def _adopt(self, view: View) -> None:
        """A view is decided: tell our workers."""
        self.leading.adopted()
        kind, _, cause = view.cause.partition(": ")
        members = [member.worker for member in view.members]
        if members:
            self.journal.event(
                "agreed", view=view.number, cause=cause, kind=kind, size=view.size, members=members
            )
        self.watch.adopt(view, urgent=kind in URGENT)
        self._changed.set()

    def _status_of(self, agent: str) -> Message:
        return self.reports[agent] if agent != self.name else self._status()

    def _evict(self, worker: str) -> None:
        """Have a slow worker ended by whoever watches it."""
        for member in self.council.view.members:
            if member.worker == worker:
                if member.agent == self.name:
                    self.watch.end_slow(worker)
                else:
                    self.peers.send(member.agent, {"kind": "evict", "worker": worker})

    def _see_whether_it_can_go_on(self) -> None:
        """If fewer workers can ever be there than the run needs, it has failed."""
        statuses = [self._status_of(agent) for agent in self._living()]
        if sum(status["possible"] for status in statuses) >= self.rules.least:
            return
        trouble, code = next((status["trouble"] for status in statuses if status["trouble"][0]), ("", 0))
        if trouble:
            self.end(trouble, code)

    def _see_whether_anybody_is_left(self, now: float) -> None:
        """Without a launcher, and without enough others to decide anything, nobody would ever end us."""
        if not self.launcher.lost or is_quorum(self.council.view.voters, self._living().keys()):
            self._with_others_at = now
        elif now - self._with_others_at > ALONE_S:
            self.end(f"{self.host} was cut off from the others and from its launcher for {ALONE_S:g} s")

    # -- the other agents -------------------------------------------------------------------------

    def met(self, peer: str) -> None:
        self._act(self.council.met(peer))
        self._beat()

    def parted(self, peer: str) -> None:
        self._act(self.council.lost(peer))

    def died(self, peer: str) -> None:
        self.reports.pop(peer, None)
        self._tell_lost(peer, "its agent has ended")
        self._act(self.council.gone(peer))
        self._changed.set()

    def heard(self, peer: str, message: Message) -> None:
        match message["kind"]:
            case "council":
                self._act(self.council.receive(peer, message["word"]))
            case "status":
                self._hear_status(peer, message)
            case "evict":
                self.watch.end_slow(message["worker"])

    def _hear_status(self, peer: str, status: Message) -> None:
        before = self.reports.get(peer)
        self.reports[peer] = status
        for name, where in status["roster"].items():
            self.peers.add(name, Address(*where))
        if status["over"] and not self.over:
            self.end(status["over"], status["code"], tell=False)
        if before is None or _states(before) != _states(status):
            self._changed.set()

    # -- our workers ------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        return self.council.view

    def others_stay(self) -> bool:
        members = {member.worker for member in self.view.members}
        reports = [worker for agent in self._living().values() for worker in agent.workers]
        return any(report.worker in members and report.state != LEAVING for report in reports)

    def look_soon(self) -> None:
        self._changed.set()

    def tell_all(self) -> None:
        self._beat()

    def act_now(self) -> None:
        self._lead(time.monotonic())
        self._beat()

    # -- the end ----------------------------------------------------------------------------------

    def end(self, how: str, code: int = 1, *, tell: bool = True) -> None:
        """The run is over: those who are done go by themselves, the others are ended."""
        if self.over:
            return
        self.over, self.code = how, code
        self.journal.event("finished" if how == "finished" else "failed", cause=how, code=code)
        self.watch.dismiss(finished=how == "finished")
        self._stop_at = time.monotonic() + self.spec["grace"]
        if tell:
            self._beat()
        self._changed.set()

    def _asked_to_leave(self) -> None:
        """Our host is taken away: our workers leave at the end of the step, then we go. Soon, or by force."""
        if self.leaving:
            self.household.kill()
            return
        self._leave()
        asyncio.get_running_loop().call_later(
            self.spec["grace"] + self.timing.detect_within, self._asked_to_leave
        )

    def _leave(self) -> None:
        self.leaving = True
        self.watch.take_away()
        self._beat()

    def obey(self, message: Message) -> None:
        """A word of the launcher."""
        match message["do"]:
            case "roster":
                for name, where in message["roster"].items():
                    self.peers.add(name, Address(*where))
            case "over":
                self.end(message["how"], message["code"])
            case "begin":  # whoever had decided anything is dead
                self._act(self.council.receive("", {"kind": "decided", "view": message["view"]}))
            case "leave" if not self.leaving:  # no hurry: our host stays as long as it takes
                self._leave()
            case "stop":
                if message.get("now"):
                    self.household.kill()
                self.end("stopped on request")

    def _let_in(self, door: socket.socket) -> None:
        """The launcher had lost us, and is back."""
        visitor = let_in(door)
        if visitor is not None:
            self.launcher.attach(visitor)
            self.launcher.say({"event": "attached", "agent": self.name, "address": self.where.address,
                               "port": self.where.port})  # fmt: skip

    def _tell_event(self, event: Message) -> None:
        self.launcher.say({"event": "news", "news": event})


def _states(status: Message) -> list[tuple[str, str]]:
    return [(worker["worker"], worker["state"]) for worker in status["report"]["workers"]]


def _listener() -> socket.socket:
    """A port on all addresses of this host; who calls must know the secret of the run."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


async def serve() -> int:
    """Tell the launcher where we listen, hear what the run is, and take part in it."""
    launcher = Spoken()
    agent: Agent | None = None

    async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if agent is None:
            writer.close()  # it calls again
        else:
            await agent.peers.answer(reader, writer)

    listener = _listener()
    port = listener.getsockname()[1]
    server = await asyncio.start_server(called, sock=listener, limit=64 << 20)
    launcher.say({"event": "hello", "port": port, "token": secrets.token_hex(4)})
    async for message in launcher.listen():
        if message["do"] == "elastic":
            if (there := knock(message["run"], message["host"])) is not None:
                await carry(launcher, there)
                return 0
            over, code = outcome(Path(message["run_dir"]), message["host"]) if message["life"] else ("", 0)
            if over:
                launcher.say({"event": "done", "over": over, "code": code})
                await launcher.drain()
                return 0
            agent = Agent(message, launcher, port)
            break
        if message["do"] == "bye":
            return 0
    if agent is None:
        return 0
    hearing = asyncio.create_task(_hear(launcher, agent))
    try:
        code = await agent.run()
    finally:
        hearing.cancel()
        server.close()
    launcher.say({"event": "done", "over": agent.over, "code": agent.code})
    await launcher.drain()
    return code


async def _hear(launcher: Spoken, agent: Agent) -> None:
    while True:  # a launcher that is gone may come back
        async for message in launcher.listen():
            agent.obey(message)


def main() -> None:
    """`python -m weft.elastic.agent.agent`; the launcher is the only caller."""
    code = asyncio.run(serve())
    os._exit(code)


if __name__ == "__main__":
    main()
