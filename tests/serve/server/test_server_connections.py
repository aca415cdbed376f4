"""What a connection may send, how long it may take, and what becomes of it when the server ends."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from benchmarks.serve_ends import Losses, terminate_under_load
from starlette.types import Receive, Scope, Send
from testing.serving import small_models
from uvicorn.server import ServerState

from weft.serve.server.http.connection import HttpConnection
from weft.serve.server.http.limits import ConnectionLimits, Phase, is_overdue
from weft.serve.server.http.listener import HttpListener, bind, http_config
from weft.serve.server.options import ServerOptions
from weft.serve.server.process import connection_limits
from weft.serve.server.refusal import RefusalError

LIMITS = ConnectionLimits()


def test_when_a_connection_has_used_up_its_time() -> None:
    longest = {
        Phase.FRESH: LIMITS.head_s,
        Phase.HEAD: LIMITS.head_s,
        Phase.BODY: LIMITS.request_s,
        Phase.KEPT: LIMITS.keep_alive_s,
        Phase.REFUSED: LIMITS.linger_s,
    }
    for phase, seconds in longest.items():
        assert not is_overdue(phase, seconds - 0.1, LIMITS, ending=False)
        assert is_overdue(phase, seconds + 0.1, LIMITS, ending=False)
    assert not is_overdue(Phase.ANSWERING, 1e6, LIMITS, ending=True)
    assert is_overdue(Phase.KEPT, 2, LIMITS, ending=True)
    assert not is_overdue(Phase.BODY, 2, LIMITS, ending=True)


def test_connections_leave_files_for_others() -> None:
    assert connection_limits(ServerOptions(), 200).connections == 136
    assert connection_limits(ServerOptions(), 65_536).connections == 52_429
    assert connection_limits(ServerOptions(upload_s=3.0), 200).head_s == 3.0


class FakeTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the path, and the length of the body."""
    size, status = 0, 200
    try:
        message = await receive()
        size += len(message.get("body", b""))
        while message.get("more_body"):
            message = await receive()
            size += len(message.get("body", b""))
    except RefusalError as refusal:
        status = refusal.status
    body = json.dumps([scope["path"], size]).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Wire:
    """A connection without a network."""

    def __init__(
        self, limits: ConnectionLimits = LIMITS, is_ending: Callable[[], bool] = lambda: False
    ) -> None:
        self.state = ServerState()
        self.connection = HttpConnection(
            http_config(echo), self.state, {}, limits=limits, is_ending=is_ending
        )
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)

    async def sent(self, data: bytes, chunk: int = 1 << 18) -> bytes:
        for at in range(0, len(data), chunk):
            self.connection.data_received(data[at : at + chunk])
        for _ in range(5):
            await asyncio.sleep(0)
        answer, self.transport.written = self.transport.written, b""
        return answer


def on_a_wire(work: Callable[[Wire], Any], **options: Any) -> None:
    async def main() -> None:
        await work(Wire(**options))

    asyncio.run(main())


@pytest.mark.parametrize("chunk", [1 << 18, 1000, 7])
def test_heads_are_bounded(chunk: int) -> None:
    async def work(wire: Wire) -> None:
        good = b"GET /good HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 60_000 + b"\r\n\r\n"
        assert b"200 OK" in await wire.sent(good, chunk)
        assert b" 431 " in await wire.sent(b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, chunk)
        assert await wire.sent(b"y" * 100_000, chunk) == b""  # dropped
        assert wire.connection.phase is Phase.REFUSED

    on_a_wire(work)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /" + b"a" * 70_000, b" 431 "),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 102, b" 431 "),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 99 + b"\r\n", b" 200 "),
        (b"nonsense\r\n\r\n", b" 400 "),
        (b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", b" 200 "),
    ],
)
def test_what_a_head_may_be(head: bytes, status: bytes) -> None:
    async def work(wire: Wire) -> None:
        answer = await wire.sent(head)
        assert status in answer
        if status != b" 200 ":
            assert b"connection: close" in answer
            assert "error" in json.loads(answer.partition(b"\r\n\r\n")[2])

    on_a_wire(work)


@pytest.mark.parametrize("chunk", [1 << 20, 100_000, 999])
@pytest.mark.parametrize("size", [0, 10, 70_000, 400_000])
def test_bodies_of_any_size_in_any_pieces_one_after_the_other(size: int, chunk: int) -> None:
    async def work(wire: Wire) -> None:
        one = b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size
        chunked = b"POST /b HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        for _ in range(2):
            assert (await wire.sent(one, chunk)).endswith(b'["/a", %d]' % size)
            assert (await wire.sent(chunked)).endswith(b'["/b", 3]')
        answers = await wire.sent(one + chunked + one, chunk)  # without waiting for answers
        while answers.count(b"200 OK") < 3:
            answers += await wire.sent(b"")
        assert [line[1] for line in answers.split(b'["/')[1:]] == [*b"aba"] or answers.count(b'"/a"') == 2

    on_a_wire(work)


def test_what_does_not_arrive_is_answered_408() -> None:
    async def work(wire: Wire) -> None:
        now = wire.connection.since
        assert await wire.sent(b"POST / HTTP/1.1\r\ncontent-length: 9\r\n") == b""
        wire.connection.look(now + LIMITS.head_s - 1)
        assert await wire.sent(b"\r\nabc") == b""
        wire.connection.look(now + LIMITS.request_s + 1)
        answer = await wire.sent(b"")
        assert b" 408 " in answer
        assert b"connection: close" in answer
        assert wire.transport.closed
        half = Wire()
        assert await half.sent(b"GET / HT") == b""
        half.connection.look(half.connection.since + LIMITS.head_s + 1)
        assert b" 408 " in await half.sent(b"")
        silent = Wire()
        silent.connection.look(silent.connection.since + LIMITS.head_s + 1)
        assert await silent.sent(b"") == b""
        assert silent.transport.closed

    on_a_wire(work)


def test_who_has_been_waited_for_longest_makes_room() -> None:
    async def work(wire: Wire) -> None:
        limits = ConnectionLimits(connections=2)
        second = Wire(limits)
        third = Wire(limits)
        for other in (second, third):
            other.connection.connections = wire.state.connections
        wire.state.connections |= {second.connection}
        wire.connection.since -= 1
        third.connection.connection_made(third.transport)
        assert (wire.transport.closed, second.transport.closed) == (True, False)

    on_a_wire(work)


def test_a_server_that_ends_answers_once_more_and_says_so() -> None:
    async def work(wire: Wire) -> None:
        get = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
        assert b"connection" not in await wire.sent(get)
        ending.append(True)
        wire.connection.say_farewell(wire.connection.since)
        assert b"connection: close" in await wire.sent(get)
        assert wire.transport.closed

    ending: list[bool] = []
    on_a_wire(work, is_ending=lambda: bool(ending))


def test_a_connection_that_was_not_accepted_yet_is_answered_when_the_server_ends() -> None:
    """Clients connect and ask while nobody accepts; then the server ends, and all of them are answered."""

    async def work() -> None:
        listening = bind("127.0.0.1", 0)
        listener = HttpListener(listening, echo, LIMITS)
        with ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection(listening.getsockname()[:2])) for _ in range(50)
            ]
            for client in clients:
                client.sendall(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n")
            await listener.start()
            await listener.drain(30)
            assert all(b"connection: close" in client.recv(1000) for client in clients)

    asyncio.run(work())


def test_sigterm_under_load_loses_nothing(tmp_path: Path) -> None:
    """Twice; benchmarks/serve_ends.py counts a hundred."""
    model = small_models.times(tmp_path / "double.onnx", 2)
    rest, calls = Losses(), Losses()
    for _ in range(2):
        terminate_under_load(model, tmp_path, 4, rest, calls)
    assert rest.answers > 8
    assert calls.answers > 8
    assert rest.farewells > 0
    assert (rest.lost, calls.lost) == ({}, {})


def test_idle_connections_do_not_lock_others_out() -> None:
    async def work() -> None:
        listening = bind("127.0.0.1", 0)
        address = listening.getsockname()[:2]
        listener = HttpListener(listening, echo, ConnectionLimits(connections=20))
        await listener.start()
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(socket.create_connection(address))
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n")
            assert b"200 OK" in await reader.readline()
            writer.close()
        await listener.close()

    asyncio.run(work())
