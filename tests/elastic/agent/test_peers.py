"""The links between agents, over real sockets: who meets whom, who is dead and who is only out of reach."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from weft.elastic.agent.peer_messages import EvictWorker
from weft.elastic.agent.peers import Peers
from weft.elastic.membership.reports import AgentAddress, AgentReport, AgentStatus
from weft.messages import Message

RETRY_S = 0.05


class Endpoint:
    """One end, and what it was told."""

    def __init__(self, name: str, secret: str = "secret", *, witness: bool = False) -> None:
        self.told: list[tuple[str, str]] = []
        self.peers = Peers(name, secret, self, retry_s=RETRY_S, calls_all=witness)
        self._witness = witness

    async def open(self) -> AgentAddress:
        self.server = await asyncio.start_server(self.peers.answer, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        return AgentAddress(self.peers.name, "127.0.0.1", 0 if self._witness else port)

    async def close(self) -> None:
        self.server.close()
        await self.peers.close()

    def met(self, peer: str) -> None:
        self.told.append(("met", peer))

    def on_message(self, peer: str, message: Message) -> None:
        self.told.append((message.worker if isinstance(message, EvictWorker) else "", peer))

    def on_disconnect(self, peer: str) -> None:
        self.told.append(("parted", peer))

    def on_death(self, peer: str) -> None:
        self.told.append(("died", peer))


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(test(), 20)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:  # those that answer calls
            await asyncio.wait(others, timeout=1.0)
        await asyncio.sleep(0.05)  # for what they closed to go

    asyncio.run(whole())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def meet(*agents: Endpoint) -> None:
    where = {agent.peers.name: await agent.open() for agent in agents}
    for agent in agents:
        for name, address in where.items():
            agent.peers.add(name, address)
    others = len(agents) - 1
    await until(lambda: all(sum(what == "met" for what, _ in agent.told) == others for agent in agents))


def test_everyone_meets_everyone_and_words_come_in_order() -> None:
    async def test() -> None:
        a, b, c = agents = [Endpoint(name) for name in "abc"]
        await meet(*agents)
        for worker in ("first", "second"):
            c.peers.send("a", EvictWorker(worker))
        a.peers.send_all(EvictWorker("all"))
        await until(lambda: ("second", "c") in a.told and ("all", "a") in b.told and ("all", "a") in c.told)
        assert [what for what, who in a.told if who == "c"] == ["met", "first", "second"]
        for agent in agents:
            await agent.close()

    run(test)


def test_one_that_ends_is_dead_and_one_that_only_hangs_up_is_called_again() -> None:
    async def test() -> None:
        a, b = agents = [Endpoint(name) for name in "ab"]
        await meet(*agents)
        a.peers.drop_silent(-1.0)  # as if nothing had been heard for long
        await until(lambda: a.told.count(("met", "b")) == 2 and b.told.count(("met", "a")) == 2)
        assert ("died", "b") not in a.told
        assert a.told.count(("parted", "b")) == 1
        await b.close()
        await until(lambda: ("died", "b") in a.told)
        assert a.peers.silent_for("b") == float("inf")
        assert "b" not in a.peers.roster()
        await a.close()

    run(test)


def test_a_silence_while_we_stood_still_is_nobodys_fault() -> None:
    async def test() -> None:
        a, b = agents = [Endpoint(name) for name in "ab"]
        await meet(*agents)
        await asyncio.sleep(0.1)
        silent_s = a.peers.silent_for("b")
        assert silent_s >= 0.1
        a.peers.excuse(0.05)
        assert a.peers.silent_for("b") > 0.04
        a.peers.excuse(9.0)
        assert 0 <= a.peers.silent_for("b") < silent_s
        await a.close()
        await b.close()

    run(test)


def test_one_of_another_run_is_not_heard() -> None:
    async def test() -> None:
        a, b = Endpoint("a", "one secret"), Endpoint("b", "another")
        where = await b.open()
        await a.open()
        a.peers.add("b", where)
        b.peers.add("a", AgentAddress("a", "127.0.0.1", 1))
        await asyncio.sleep(5 * RETRY_S)
        assert a.told == b.told == []
        await a.close()
        await b.close()

    run(test)


def test_a_witness_calls_whatever_the_names_and_is_never_proven_dead() -> None:
    async def test() -> None:
        a, z = Endpoint("a"), Endpoint("z", witness=True)
        await meet(a, z)
        await z.close()
        await until(lambda: ("parted", "z") in a.told)
        await asyncio.sleep(3 * RETRY_S)
        assert ("died", "z") not in a.told
        await a.close()

    run(test)


def status(name: str) -> AgentStatus:
    return AgentStatus(
        report=AgentReport(name, name, "127.0.0.1"),
        view=0,
        voters=(),
        over="",
        code=0,
        possible=0,
        trouble=("", 0),
        micros={},
        round_trip_s={},
        roster={},
    )


def test_round_trips_are_known_after_some_beats() -> None:
    async def test() -> None:
        a, _ = agents = [Endpoint(name) for name in "ab"]
        await meet(*agents)
        assert a.peers.round_trip_s() == {}
        for _ in range(40):
            for agent in agents:
                agent.peers.beat(status(agent.peers.name))
            await asyncio.sleep(0.002)
        assert 0 < a.peers.round_trip_s()["b"] < 1
        for agent in agents:
            await agent.close()

    run(test)
