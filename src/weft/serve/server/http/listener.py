"""The listener for HTTP: the socket, the deadlines of all connections, and an end that loses no request.

When the server ends, everybody who is connected gets one more answer, which says `Connection: close`. Connections that
are on their way are taken, too; only then is the socket closed.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from weft.errors import UsageError
from weft.serve.server import logs
from weft.serve.server.http.connection import HttpConnection
from weft.serve.server.http.limits import QUIET_S, ConnectionLimits
from weft.serve.server.http.syn_filter import refuse_new_connections

_BACKLOG = 2048
_LOOK_S = 0.5  # how often deadlines are looked at
_STEP_S = 0.005  # how often the end is looked at


class HttpListener:
    """A socket that takes connections for an ASGI application."""

    def __init__(
        self,
        listening: socket.socket,
        app: Any,
        limits: ConnectionLimits,
        tls: tuple[str, str] | None = None,
        *,
        web_sockets: bool = False,
    ) -> None:
        self._socket = listening
        self._state = ServerState()
        self._config = http_config(app, tls, web_sockets=web_sockets)
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._ending = False
        self._looking: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        make = partial(
            HttpConnection,
            config=self._config,
            server_state=self._state,
            app_state={},
            limits=self._limits,
            is_ending=lambda: self._ending,
        )
        self._server = await loop.create_server(
            make, sock=self._socket, ssl=self._config.ssl, backlog=_BACKLOG
        )
        self._look(loop)

    async def drain(self, drain_s: float) -> None:
        """Answer everybody who is connected or connects within a moment, then close."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._ending = True
        for connection in self._connections():
            connection.say_farewell(began)
        for other in self._state.connections - set(self._connections()):  # WebSockets
            other.shutdown()
        await self._until(lambda: not self._state.connections, min(drain_s, QUIET_S))
        await self._stop_listening()
        left_s = drain_s - (loop.time() - began)
        if not await self._until(lambda: not self._state.connections, left_s):
            logs.event("drain", error=f"requests were still at work after {drain_s:g} s")
        await self.close()

    async def close(self) -> None:
        """End all connections, whatever they are doing."""
        if self._looking is not None:
            self._looking.cancel()
        if self._server is not None:
            self._server.close()
        for connection in self._state.connections:
            if (transport := getattr(connection, "transport", None)) is not None:
                transport.abort()
        for task in self._state.tasks:
            task.cancel()

    async def _stop_listening(self) -> None:
        """Take all connections that have been made, and close the socket at a moment when there are none."""
        assert self._server is not None
        refuse_new_connections(self._socket)
        pending = select.poll()
        pending.register(self._socket.fileno(), select.POLLIN)
        await self._until(lambda: not pending.poll(0), QUIET_S)
        self._server.close()
        self._socket.close()

    async def _until(self, done: Callable[[], bool], seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not done():
            if loop.time() > deadline:
                return False
            for connection in self._connections():
                connection.look(loop.time())
            await asyncio.sleep(_STEP_S)
        return True

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in self._connections():
            connection.look(now)
        self._looking = loop.call_later(_LOOK_S, self._look, loop)

    def _connections(self) -> list[HttpConnection]:
        return [one for one in self._state.connections if isinstance(one, HttpConnection)]


def http_config(app: Any, tls: tuple[str, str] | None = None, *, web_sockets: bool = False) -> uvicorn.Config:
    """Return uvicorn's settings for connections; TLS files that cannot be used are told."""
    cert, key = tls or (None, None)
    config = uvicorn.Config(
        app,
        loop="none",
        ws="websockets-sansio" if web_sockets else "none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(
            f"--tls-cert and --tls-key must be a certificate and its key in PEM, got: {error}"
        ) from error
    return config


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise UsageError(
            f"{host}:{port} must be free to listen on: {error.strerror or error}; choose another with --port"
        ) from error
    listening.listen(_BACKLOG)
    listening.set_inheritable(True)
    return listening


def shown_address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
