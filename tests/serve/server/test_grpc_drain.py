"""The end of the gRPC server: it stops when no client is between two calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from weft.serve.server.protocols import grpc_drain
from weft.serve.server.protocols.grpc_drain import GrpcCallers, drain_calls


class NotedStop:
    """A server that notes how many calls had come in when it was stopped."""

    def __init__(self, callers: GrpcCallers) -> None:
        self._callers = callers
        self.calls: int | None = None
        self.told_first = False

    async def stop(self, grace: float) -> None:
        self.calls = self._callers.calls
        self.told_first = not self._callers.farewell.is_set()


def drained(callers: GrpcCallers, *later: tuple[float, str]) -> NotedStop:
    """Drain while calls come in: seconds after the begin, and connection."""
    server = NotedStop(callers)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        for after_s, peer in later:
            loop.call_later(after_s, callers.called, peer)
        stopped: Any = server
        await drain_calls(stopped, callers, 30.0)

    asyncio.run(work())
    return server


def answered(callers: GrpcCallers, *peers: str) -> None:
    for peer in peers:
        callers.called(peer)
    for peer in peers:
        callers.answered(peer)


def test_a_client_that_was_answered_a_moment_ago_is_waited_for() -> None:
    """It calls half a second later, as on a busy machine; a call after the stop would be cancelled."""
    callers = GrpcCallers()
    answered(callers, "a", "b")
    assert drained(callers, (0.01, "a"), (0.6, "b")).calls == 4


def test_each_thread_of_a_client_is_waited_for() -> None:
    callers = GrpcCallers()
    answered(callers, "a", "a", "a")
    assert drained(callers, (0.01, "a"), (0.4, "a"), (0.7, "a")).calls == 6


def test_answers_leave_after_the_farewell() -> None:
    callers = GrpcCallers()
    server = drained(callers)
    assert server.told_first
    assert callers.farewell.is_set()


def test_a_client_that_does_not_call_again_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_drain, "_NEXT_CALL_S", 0.1)
    callers = GrpcCallers()
    answered(callers, "a")
    assert drained(callers, (0.9, "a")).calls == 1


def test_connections_of_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_drain, "_MOST_CLIENTS", 10)
    callers = GrpcCallers()
    for number in range(1000):
        answered(callers, str(number))
    assert len(callers._answered) <= 10
    assert callers.are_between_calls()
