"""An agent and a launcher that find each other again, over a socket whose name anybody on the host may take."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from weft.elastic.agent import launcher_link
from weft.elastic.agent.launcher_link import accept_launcher, connect_to_agent, listen_for_launcher
from weft.errors import ConnectError

SECRET = "the secret of the run"


class Launcher:
    lost = False


def run(test: Callable[[str, Any], Coroutine[Any, Any, None]]) -> None:
    """Run a test with the name of a run that no other test has."""
    asyncio.run(asyncio.wait_for(test(secrets.token_hex(8), Launcher()), 30))


async def accept(listener: socket.socket, secret: str) -> socket.socket | None:
    ready = asyncio.Event()
    asyncio.get_running_loop().add_reader(listener.fileno(), ready.set)
    await ready.wait()
    asyncio.get_running_loop().remove_reader(listener.fileno())
    return await accept_launcher(listener, secret)


def listen(name: str) -> socket.socket:
    listener = listen_for_launcher(name, "here")
    assert listener is not None
    return listener


def assert_connected(agent: socket.socket | None, caller: socket.socket | None) -> None:
    """Both ends are there, and what one sends the other receives."""
    assert agent is not None
    assert caller is not None
    with agent, caller:
        caller.sendall(b"hello")
        assert agent.recv(100) == b"hello"


def test_both_ends_that_know_the_secret_meet() -> None:
    async def test(name: str, launcher: Any) -> None:
        with listen(name) as listener:
            agent, caller = await asyncio.gather(
                accept(listener, SECRET), connect_to_agent(name, "here", SECRET, launcher)
            )
            assert_connected(agent, caller)

    run(test)


def test_who_does_not_know_the_secret_is_refused_by_either_end() -> None:
    async def test(name: str, launcher: Any) -> None:
        with listen(name) as listener:
            pair = accept(listener, SECRET), connect_to_agent(name, "here", "a guess", launcher)
            assert list(await asyncio.gather(*pair)) == [None, None]

    run(test)


def test_another_user_that_took_the_name_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(name: str, launcher: Any) -> None:
        monkeypatch.setattr(launcher_link, "_user_of", lambda connection: os.getuid() + 1)
        with listen(name) as squatter:
            assert await connect_to_agent(name, "here", SECRET, launcher) is None
            squatter.setblocking(True)
            connection, _ = squatter.accept()
            with connection:
                assert connection.recv(100) == b""
            stranger = socket.socket(socket.AF_UNIX)
            with stranger:
                stranger.connect(squatter.getsockname())
                squatter.setblocking(False)
                assert await accept(squatter, SECRET) is None
                assert stranger.recv(100) == b""

    run(test)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_another_user_is_told_apart_by_the_kernel() -> None:
    async def test(name: str, launcher: Any) -> None:
        with listen(name) as listener:
            child = os.fork()
            if child == 0:
                os.setuid(65534)
                stranger = socket.socket(socket.AF_UNIX)
                stranger.connect(listener.getsockname())
                os._exit(0 if stranger.recv(100) == b"" else 1)
            assert await accept(listener, SECRET) is None
            assert os.waitpid(child, 0)[1] == 0

    run(test)


def test_an_agent_that_is_stopped_is_waited_for_until_the_launcher_goes() -> None:
    async def test(name: str, launcher: Any) -> None:
        with listen(name):
            asyncio.get_running_loop().call_later(0.3, setattr, launcher, "lost", True)
            with pytest.raises(ConnectError, match="must answer before its launcher goes"):
                await connect_to_agent(name, "here", SECRET, launcher)

    run(test)


def test_an_agent_whose_proof_took_too_long_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a starved host, where an agent that is there must not be taken for one that is gone."""
    monkeypatch.setattr(launcher_link, "REFUSED_WITHIN_S", 0.05)

    async def test(name: str, launcher: Any) -> None:
        with listen(name) as listener:
            asking = asyncio.ensure_future(connect_to_agent(name, "here", SECRET, launcher))
            await asyncio.sleep(0)  # it has called
            first, _ = listener.accept()
            asyncio.get_running_loop().call_later(0.1, first.close)  # the agent's patience is over
            agent = await accept(listener, SECRET)
            caller = await asking
            assert_connected(agent, caller)

    run(test)
