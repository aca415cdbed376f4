"""Ports for servers that start a moment later, while others take theirs."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from weft import ports


def test_a_port_is_none_that_the_system_gives_to_others() -> None:
    drawn = [ports.free_port() for _ in range(20)]
    assert all(ports.LOWEST <= port < ports._first_given() for port in drawn)
    with socket.socket() as server:
        server.bind(("", drawn[0]))
        server.listen()
        assert not ports.is_free(drawn[0])


def test_processes_that_draw_the_same_numbers_get_different_ports() -> None:
    random.seed(0)
    first = [ports.free_port() for _ in range(4)]
    random.seed(0)
    assert [ports.free_port() for _ in range(4)] != first


def test_where_the_system_gives_all_ports_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text("1024\t65000\n")
    monkeypatch.setattr(ports, "_RANGE", tmp_path / "range")
    assert ports.is_free(ports.free_port())
    monkeypatch.setattr(ports, "_RANGE", tmp_path / "none")
    assert ports.free_port() < 32_768
