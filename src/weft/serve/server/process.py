"""The server as a process: sockets, signals, draining."""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import signal
import socket
from collections.abc import Callable

import grpc
import uvloop

from weft.files import write_whole
from weft.serve.server import logs
from weft.serve.server.app import Application
from weft.serve.server.http.limits import ConnectionLimits
from weft.serve.server.http.listener import HttpListener, bind, shown_address
from weft.serve.server.keys import KeyRing
from weft.serve.server.models.repository import Repository
from weft.serve.server.options import ServerOptions
from weft.serve.server.protocols.grpc_drain import drain_calls
from weft.serve.server.protocols.grpc_server import make_server
from weft.serve.server.screen import StartScreen
from weft.serve.server.state import ServerState
from weft.serve.server.tracing import Tracing, configured

_MOST_FILES = 65_536  # descriptors that the server asks for, where the system allows as many
_OTHER_FILES = 64  # descriptors that connections leave for models, logs and gRPC, at least


def run(
    make_repository: Callable[[], Repository], options: ServerOptions, say: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; what was taken is answered before this returns."""
    keys = KeyRing(options.keys) if options.keys is not None else None
    files = raise_file_limit()
    listening = bind(options.host, options.http_port)
    try:
        uvloop.run(_serve(make_repository, options, keys, listening, connection_limits(options, files), say))
    finally:
        listening.close()


def raise_file_limit() -> int:
    """Let this process open as many files as it may, since every connection is one; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST_FILES if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


def connection_limits(options: ServerOptions, files: int) -> ConnectionLimits:
    """Return the bounds of connections under the server's options, for a process that may open so many files."""
    spare = max(_OTHER_FILES, files // 5)
    return ConnectionLimits(
        body_bytes=options.max_body,
        request_s=options.upload_s,
        head_s=min(ConnectionLimits.head_s, options.upload_s),
        keep_alive_s=options.keep_alive_s,
        connections=max(1, files - spare),
    )


async def _serve(
    make_repository: Callable[[], Repository],
    options: ServerOptions,
    keys: KeyRing | None,
    listening: socket.socket,
    limits: ConnectionLimits,
    say: Callable[[str], None],
) -> None:
    state = ServerState(make_repository(), options)
    tracing = configured()
    tls = (str(options.tls_cert), str(options.tls_key)) if options.tls_cert else None
    listener = HttpListener(listening, Application(state, keys, tracing), limits, tls)
    addresses = {"http": f"{'https' if tls else 'http'}://{shown_address(listening)}"}
    calls: grpc.aio.Server | None = None
    if options.grpc_port is not None:
        calls, port = make_server(state, keys, options, tracing)
        addresses["grpc"] = f"{shown_address(listening).rpartition(':')[0]}:{port}"
    screen = StartScreen(say)
    await state.repository.start(screen)
    watching = asyncio.ensure_future(state.repository.watch(options.poll_s))
    # What is there now stays: the collector need not look at it again and again while requests come in.
    gc.collect()
    gc.freeze()
    ending, at_once = _signals()
    state.ready = True
    await listener.start()
    if calls is not None:
        await calls.start()
    screen.end(addresses)
    if options.ready_file is not None:
        write_whole(options.ready_file, json.dumps(addresses) + "\n")
    try:
        await ending.wait()
    finally:
        watching.cancel()
        await _end(state, listener, calls, tracing, at_once)
    logs.event("ended")


async def _end(
    state: ServerState,
    listener: HttpListener,
    calls: grpc.aio.Server | None,
    tracing: Tracing,
    at_once: asyncio.Event,
) -> None:
    """Answer what was taken, on both protocols at once; a second Ctrl-C ends without."""
    drain_s = state.options.drain_s
    state.ready, state.draining = False, True
    drains = [asyncio.ensure_future(listener.drain(drain_s))]
    if calls is not None:
        drains.append(asyncio.ensure_future(drain_calls(calls, state.callers, drain_s)))
    hurry = asyncio.ensure_future(at_once.wait())
    hurry.add_done_callback(lambda _: [drain.cancel() for drain in drains])
    await asyncio.gather(*drains, return_exceptions=at_once.is_set())
    hurry.cancel()
    await state.repository.close(0.0 if at_once.is_set() else drain_s)
    tracing.close()


def _signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Return events for the first SIGTERM or SIGINT, and for a SIGINT after that."""
    loop = asyncio.get_running_loop()
    ending, at_once = asyncio.Event(), asyncio.Event()

    def stop(sig: signal.Signals) -> None:
        if ending.is_set() and sig is signal.SIGINT:
            at_once.set()
        ending.set()

    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop, sig)
    return ending, at_once
