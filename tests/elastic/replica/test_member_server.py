"""The server of a member: only those who know the secret are answered, and its thread ends with it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from testing.cluster.waiting import wait_until

from weft.elastic.replica.member_server import MemberServer
from weft.secret import greet


def echo(connection: socket.socket) -> None:
    connection.sendall(connection.recv(100))


@pytest.fixture
def server() -> Iterator[MemberServer]:
    with closing(MemberServer("127.0.0.1", "secret", echo, name="test-member-server")) as server:
        yield server


def test_a_member_that_knows_the_secret_is_answered(server: MemberServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        greet(connection, "secret")
        connection.sendall(b"hello")
        assert connection.recv(100) == b"hello"
        assert connection.recv(100) == b""  # closed once it was answered


def test_others_are_not_answered(server: MemberServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"\n" * 1000)
        told = b""
        with suppress(ConnectionError):  # closed with what it did not read
            while data := connection.recv(1000):
                told += data
        assert b"\n\n" not in told


def test_its_thread_ends_when_it_is_closed(server: MemberServer) -> None:
    assert "test-member-server" in {thread.name for thread in threading.enumerate()}
    server.close()
    wait_until(
        lambda: "test-member-server" not in {thread.name for thread in threading.enumerate()},
        "the thread that accepts to end",
    )
