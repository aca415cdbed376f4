"""The door of an agent: a launcher that was cut off, and reaches the host again, finds the agent it had started there.

It is an abstract socket, named after the run and the host, that goes with the agent. Only processes of the same user
come in. The process that the launcher starts on the host carries words between the two.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import struct

from weft.elastic.agent.launcher_link import Spoken
from weft.launch.agent.protocol import encode

LONGEST_LINE = 64 << 20


def open_door(run: str, host: str) -> socket.socket | None:
    """Our own door; None where somebody has it already, or where there are no such sockets."""
    door = socket.socket(socket.AF_UNIX)
    try:
        door.bind(_name(run, host))
    except OSError:
        door.close()
        return None
    door.listen()
    door.setblocking(False)
    return door


def let_in(door: socket.socket) -> socket.socket | None:
    """Whoever knocks, if it is one of us."""
    try:
        visitor, _ = door.accept()
    except OSError:
        return None
    _, user, _ = struct.unpack("iII", visitor.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user not in (0, os.getuid()):
        visitor.close()
        return None
    return visitor


def knock(run: str, host: str) -> socket.socket | None:
    """The agent that is here already, if one is."""
    visit = socket.socket(socket.AF_UNIX)
    try:
        visit.connect(_name(run, host))
    except OSError:
        visit.close()
        return None
    return visit


async def carry(launcher: Spoken, agent: socket.socket) -> None:
    """Carry words between a launcher and the agent it had lost, until one of them goes."""
    reader, writer = await asyncio.open_unix_connection(sock=agent, limit=LONGEST_LINE)

    async def there() -> None:
        async for message in launcher.listen():
            writer.write(encode(message))

    going = asyncio.create_task(there())
    with contextlib.suppress(OSError):
        coming = asyncio.create_task(_bring(reader, launcher))
        await asyncio.wait({going, coming}, return_when=asyncio.FIRST_COMPLETED)
        coming.cancel()
    going.cancel()
    writer.close()
    await launcher.drain()


async def _bring(reader: asyncio.StreamReader, launcher: Spoken) -> None:
    while line := await reader.readline():
        launcher.pass_on(line)


def _name(run: str, host: str) -> str:
    return "\0weft-elastic-" + hashlib.sha256(f"{run}/{host}".encode()).hexdigest()[:32]
