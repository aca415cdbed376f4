"""How bodies come in, and what becomes of an answer that nobody waits for any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message
from uvicorn.server import ServerState

from weft.serve.server.http.connection import HttpConnection
from weft.serve.server.http.limits import ConnectionLimits
from weft.serve.server.http.listener import http_config
from weft.serve.server.inference import until_gone
from weft.serve.server.protocols.tensors import Array
from weft.serve.server.refusal import GoneError, RefusalError


class Transport(asyncio.Transport):
    """Remembers whether it was told to read no further."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = 0

    def pause_reading(self) -> None:
        self.pauses += 1

    def resume_reading(self) -> None: ...

    def write(self, data: Any) -> None: ...

    def is_closing(self) -> bool:
        return False


async def _asleep(scope: Any, receive: Any, send: Any) -> None:
    """A request that does not ask for its body yet."""


def test_a_body_of_a_picture_s_tensor_is_read_in_one_go_and_a_huge_one_is_not() -> None:
    async def work() -> None:
        limits = ConnectionLimits()
        protocol = HttpConnection(http_config(_asleep), ServerState(), {}, limits=limits)
        transport = Transport()
        protocol.connection_made(transport)
        protocol.data_received(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n")
        part = bytes(1 << 16)
        for _ in range(limits.ahead_bytes // len(part)):
            protocol.data_received(part)
        assert transport.pauses == 0
        protocol.data_received(part)
        assert transport.pauses == 1

    asyncio.run(work())


class Caller:
    """What a request receives after its body: nothing, until the client leaves."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def __call__(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}


def test_an_answer_is_given_and_a_refusal_told() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        good: asyncio.Future[list[Array]] = loop.create_future()
        loop.call_soon(good.set_result, [])
        assert await until_gone(good, Caller()) == []
        bad: asyncio.Future[list[Array]] = loop.create_future()
        loop.call_soon(bad.set_exception, RefusalError(504, "late"))
        with pytest.raises(RefusalError, match="late"):
            await until_gone(bad, Caller())

    asyncio.run(work())


def test_a_client_that_leaves_takes_its_request_with_it() -> None:
    async def work() -> None:
        caller = Caller()
        future: asyncio.Future[list[Array]] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(until_gone(future, caller))
        await asyncio.sleep(0)
        caller.left.set()
        with pytest.raises(GoneError):
            await waiting
        assert future.cancelled()

    asyncio.run(work())


def test_a_server_that_ends_is_no_client_that_leaves() -> None:
    async def work() -> None:
        future: asyncio.Future[list[Array]] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(until_gone(future, Caller()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert future.cancelled()

    asyncio.run(work())
