"""The agent's end of its launcher's channel: standard input and output, one JSON object a line.

The launcher may be gone, or there but not listening. Neither may hold up the agent, so what it says waits in memory,
and what is only to be shown is dropped when too much waits.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from weft.launch.agent.protocol import Message, decode, encode

BACKLOG_BYTES = 8 << 20


class Spoken:
    """The launcher, as an agent sees it."""

    def __init__(self) -> None:
        self._in, self._out = 0, 1
        self._connection: socket.socket | None = None
        self._unsent: deque[bytes] = deque()
        self._waiting = 0
        self._gone = False
        self.lost = False  # it hears us no more, unless it comes back
        self._lines: asyncio.Queue[Message | None] = asyncio.Queue()
        self._unheard = b""
        self._loop = asyncio.get_running_loop()
        os.set_blocking(1, False)
        self._open()

    def attach(self, connection: socket.socket) -> None:
        """Speak with a launcher that was lost and has come back; what waited for it is out of date."""
        self._loop.remove_writer(self._out)
        self._loop.remove_reader(self._in)
        if self._connection is not None:
            self._connection.close()
        self._connection = connection
        self._in = self._out = connection.fileno()
        self._unsent.clear()
        self._waiting, self._gone, self.lost, self._unheard = 0, False, False, b""
        self._open()

    def _open(self) -> None:
        os.set_blocking(self._in, False)
        try:
            self._loop.add_reader(self._in, self._read)
        except PermissionError:  # a file or /dev/null: nothing will come
            self._lines.put_nowait(None)

    def _read(self) -> None:
        try:
            data = os.read(self._in, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lost = True
            self._loop.remove_reader(self._in)
            self._lines.put_nowait(None)
            return
        *lines, self._unheard = (self._unheard + data).split(b"\n")
        for line in lines:
            message = decode(line, "do")
            if message is not None and message["do"] != "beat":
                self._lines.put_nowait(message)

    async def listen(self) -> AsyncIterator[Any]:
        """The launcher's words, until it is gone."""
        while (message := await self._lines.get()) is not None:
            yield message

    def say(self, message: Message, *, may_drop: bool = False) -> None:
        if self._gone or (self._waiting > BACKLOG_BYTES and may_drop) or self._waiting > 4 * BACKLOG_BYTES:
            return
        self.pass_on(encode(message))

    def pass_on(self, data: bytes) -> None:
        """Say a whole line."""
        if self._gone:
            return
        self._unsent.append(data)
        self._waiting += len(data)
        if len(self._unsent) == 1:
            self._write()

    def _write(self) -> None:
        self._loop.remove_writer(self._out)
        try:
            while self._unsent:
                data = self._unsent[0]
                count = os.write(self._out, data)
                self._waiting -= count
                if count < len(data):
                    self._unsent[0] = data[count:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._out, self._write)
        except OSError:
            self._gone = True
            self._unsent.clear()
            self._waiting = 0

    async def drain(self, timeout_s: float = 2.0) -> None:
        """Wait until all is said, but not for ever."""
        deadline = self._loop.time() + timeout_s
        while self._unsent and not self._gone and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
