"""The server as a process: sockets, signals, draining."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import Any

import grpc
import uvicorn
import uvloop
from uvicorn.protocols.http import httptools_impl

from weft.errors import UsageError
from weft.files import write_whole
from weft.serve.server import logs
from weft.serve.server.app import Application
from weft.serve.server.keys import KeyRing
from weft.serve.server.models.repository import Repository
from weft.serve.server.options import ServerOptions
from weft.serve.server.protocols.grpc_server import make_server
from weft.serve.server.state import ServerState
from weft.serve.server.tracing import configured

_BACKLOG = 2048
_AHEAD = 1 << 20  # bytes of a body that are read before the request asks for more


class Listener(uvicorn.Server):
    """uvicorn, which tells when it begins to end."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._ending()


def run(
    make_repository: Callable[[], Repository], options: ServerOptions, say: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; what was taken is answered before this returns."""
    keys = KeyRing(options.keys) if options.keys is not None else None
    listening = _bind(options.host, options.http_port)
    try:
        uvloop.run(_serve(make_repository, options, keys, listening, say))
    finally:
        listening.close()


async def _serve(
    make_repository: Callable[[], Repository],
    options: ServerOptions,
    keys: KeyRing | None,
    listening: socket.socket,
    say: Callable[[str], None],
) -> None:
    state = ServerState(make_repository(), options)
    tracing = configured()

    calls: grpc.aio.Server | None = None
    loop = asyncio.get_running_loop()
    stopping: list[Future[None]] = []

    def ending() -> None:
        state.ready = False
        if calls is not None and not stopping:
            stopping.append(asyncio.run_coroutine_threadsafe(calls.stop(options.drain_s), loop))

    server = Listener(_config(Application(state, keys, tracing), options), ending)
    await state.repository.start()
    watching = asyncio.ensure_future(state.repository.watch(options.poll_s))
    scheme = "https" if options.tls_cert else "http"
    addresses = {"http": f"{scheme}://{_shown(listening)}"}
    if options.grpc_port is not None:
        calls, port = make_server(state, keys, options, tracing)
        await calls.start()
        addresses["grpc"] = f"{addresses['http'].rpartition(':')[0].partition('//')[2]}:{port}"
    # What is there now stays: the collector need not look at it again and again while requests come in.
    gc.collect()
    gc.freeze()
    state.ready = True
    # uvicorn raises the signal again once it has ended; we have done all it asks for by then.
    before = {sig: signal.signal(sig, _nothing) for sig in (signal.SIGTERM, signal.SIGINT)}
    try:
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        if not serving.done():
            _tell(addresses, options, say)
        await serving
    finally:
        state.ready = False
        watching.cancel()
        if calls is not None:
            await calls.stop(options.drain_s)
        await state.repository.close(options.drain_s)
        tracing.close()
        for sig, handler in before.items():
            signal.signal(sig, handler)
    logs.event("ended")


def _tell(addresses: dict[str, str], options: ServerOptions, say: Callable[[str], None]) -> None:
    say("listening on " + ", ".join(f"{address} ({kind})" for kind, address in addresses.items()))
    if options.ready_file is not None:
        write_whole(options.ready_file, json.dumps(addresses) + "\n")


def _config(app: Any, options: ServerOptions) -> uvicorn.Config:
    # uvicorn stops reading every 64 kB, which costs a large tensor a third of the time it takes to come in.
    httptools_impl.HIGH_WATER_LIMIT = _AHEAD  # type: ignore[attr-defined]
    return uvicorn.Config(
        app,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=int(options.drain_s) or 1,
        ssl_certfile=str(options.tls_cert) if options.tls_cert else None,
        ssl_keyfile=str(options.tls_key) if options.tls_key else None,
    )


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise UsageError(
            f"{host}:{port} must be free to listen on: {error.strerror}; choose another with --port"
        ) from error
    listening.listen(_BACKLOG)
    listening.set_inheritable(True)
    return listening


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _nothing(sig: int, frame: FrameType | None) -> None:
    """The signal has been heeded already."""
