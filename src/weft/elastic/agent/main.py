"""The program of an elastic agent: `python -m weft.elastic.agent.main`, started by the launcher alone.

It tells the launcher where it listens, hears what the run is, and takes part in it. If an agent of the run is on this
host already, it relays between that one and the launcher instead.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

from weft.elastic.agent.agent import ElasticAgent
from weft.elastic.agent.journal import Journal, read_outcome
from weft.elastic.agent.launcher_link import (
    BACKLOG_BYTES,
    CHUNK_BYTES,
    LONGEST_LINE_BYTES,
    LauncherLink,
    connect_to_agent,
    relay,
)
from weft.elastic.agent.launcher_messages import (
    AgentAbsent,
    AgentDone,
    AgentListening,
    AgentSpec,
    AttachOrder,
    OrderBye,
)
from weft.errors import ConnectError
from weft.launch.agent.protocol import WorkerOutput, WorkerPoints
from weft.launch.agent.wire import bytes_to_text


async def serve() -> int:
    """Run the agent; return its exit code."""
    launcher = LauncherLink()
    agent: ElasticAgent | None = None

    async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if agent is None:
            writer.close()  # the peer calls again
        else:
            await agent.peers.answer(reader, writer)

    listener = _listen()
    port = listener.getsockname()[1]
    server = await asyncio.start_server(called, sock=listener, limit=LONGEST_LINE_BYTES)
    launcher.send(AgentListening(port, secrets.token_hex(4)))
    described = await _receive_spec(launcher)
    if described is None:
        return 0
    spec, left_out = described
    agent = ElasticAgent(spec, launcher, port, left_out=left_out)
    obeying = asyncio.create_task(_obey(launcher, agent))
    try:
        code = await agent.run()
    finally:
        obeying.cancel()
        server.close()
    if not agent.gave_up:  # a launcher that hears no farewell calls the host again
        launcher.send(AgentDone(agent.over, agent.code))
    await launcher.drain()
    return code


def _listen() -> socket.socket:
    """Listen on a port of all addresses of this host; a caller must prove that it knows the secret of the run."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


async def _receive_spec(launcher: LauncherLink) -> tuple[AgentSpec, Mapping[int, int]] | None:
    """Wait for the description of the run; None if the launcher has no use for this agent, or there is an earlier one.

    Return beside it the bytes that the output of an earlier agent lacked when it was sent from here, by slot.

    A launcher that adopts the run, or calls the host again, asks for an earlier agent first.
    """
    left_out: Mapping[int, int] = {}
    async for order in launcher.orders():
        if isinstance(order, AgentSpec):
            taken = await _is_taken_care_of(order, launcher, ended=bool(order.life))
            return None if taken else (order, left_out)
        if isinstance(order, OrderBye):
            return None
        if isinstance(order, AttachOrder):
            if await _is_taken_care_of(order, launcher, ended=True):
                return None
            left_out = await _send_what_is_left(order, launcher)
            launcher.send(AgentAbsent())
    return None


async def _is_taken_care_of(spec: AgentSpec | AttachOrder, launcher: LauncherLink, *, ended: bool) -> bool:
    """Return whether an earlier agent on this host still has the run, until it goes, or had brought it to its end.

    `ended`: there may have been one.
    """
    try:
        earlier = await connect_to_agent(spec.run, spec.host, spec.secret, launcher)
    except ConnectError:
        return True
    if earlier is not None:
        await relay(launcher, earlier)
        return True
    over, code = read_outcome(Path(spec.run_dir), spec.host) if ended else ("", 0)
    if over:
        if isinstance(spec, AttachOrder):
            await _send_what_is_left(spec, launcher)
        launcher.send(AgentDone(over, code))
        await launcher.drain()
    return bool(over)


async def _send_what_is_left(order: AttachOrder, launcher: LauncherLink) -> dict[int, int]:
    """Send the output of workers that the launcher lacks, in place of an agent that is gone; return what it lacked.

    It waits for room: the answer that follows must not be dropped, however much output there is.
    """
    journal = Journal(Path(order.run_dir), order.host, order.run, tell=lambda line: None)
    left_out: dict[int, int] = {}
    for slot, rank in enumerate(order.ranks):
        printed, logged = order.received.get(rank, (0, 0))
        pieces, left_out[slot] = journal.output_since(slot, printed, BACKLOG_BYTES)
        for data in pieces:
            launcher.send(WorkerOutput(rank, "out", bytes_to_text(data)))
            await launcher.await_room()
        while data := journal.read_points(slot, logged, CHUNK_BYTES):
            launcher.send(WorkerPoints(rank, bytes_to_text(data)))
            await launcher.await_room()
            logged += len(data)
    return left_out


async def _obey(launcher: LauncherLink, agent: ElasticAgent) -> None:
    while True:  # a launcher that is gone may come back
        async for order in launcher.orders():
            agent.obey(order)


def main() -> None:
    """Run the agent, and end the process without waiting for threads."""
    os._exit(asyncio.run(serve()))


if __name__ == "__main__":
    main()
