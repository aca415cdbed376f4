"""The output that a killed agent left on its host, sent to a launcher that asks for the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.elastic.agent import main
from weft.elastic.agent.journal import PIECE_BYTES, Journal
from weft.elastic.agent.launcher_messages import AgentAbsent, AttachOrder, WorkerSlot
from weft.elastic.agent.main import _receive_spec, _send_what_is_left
from weft.elastic.agent.workers import HostWorkers
from weft.launch.agent.protocol import WorkerOutput


class NarrowLauncher:
    """A link that has room for one message at a time, and drops what is sent without waiting for it."""

    def __init__(self, order: AttachOrder) -> None:
        self._order, self._room = order, 1
        self.taken: list[Any] = []
        self.lost = False

    async def orders(self) -> AsyncIterator[AttachOrder]:
        yield self._order

    def send(self, message: Any, *, may_drop: bool = False) -> bool:
        if self._room:
            self._room -= 1
            self.taken.append(message)
            return True
        return False

    async def await_room(self) -> None:
        self._room = 1


def test_however_much_output_is_left_all_of_it_comes_and_the_answer_after_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "h2", "run", tell=lambda line: None)
    journal.output(0, b"x" * (2 * PIECE_BYTES + 1))
    journal.points(0, b"y" * (2 * PIECE_BYTES + 1))
    journal.close()
    run_dir = str(tmp_path)
    order = AttachOrder(run="run", run_dir=run_dir, host="h2", secret="s", ranks=(1,), received={1: (1, 0)})
    launcher: Any = NarrowLauncher(order)
    assert asyncio.run(_receive_spec(launcher)) is None
    *pieces, answer = launcher.taken
    assert isinstance(answer, AgentAbsent)
    printed = [piece for piece in pieces if isinstance(piece, WorkerOutput)]
    assert sum(len(piece.text) for piece in printed) == 2 * PIECE_BYTES
    assert sum(len(piece.text) for piece in pieces if piece not in printed) == 2 * PIECE_BYTES + 1


def test_the_agent_that_follows_sends_nothing_again_where_output_was_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "BACKLOG_BYTES", 1000)
    journal = Journal(tmp_path, "h2", "run", tell=lambda line: None)
    journal.output(0, b"x" * 5000)
    run_dir = str(tmp_path)
    order = AttachOrder(run="run", run_dir=run_dir, host="h2", secret="s", ranks=(1,), received={})
    launcher: Any = NarrowLauncher(order)
    left_out = asyncio.run(_send_what_is_left(order, launcher))
    received = sum(len(piece.text) for piece in launcher.taken)
    launcher.taken.clear()
    spec: Any = SimpleNamespace(slots=(WorkerSlot(0, rank=1, env={}),), memory_bytes=0, life="1-")
    launcher.has_room = True
    workers = HostWorkers(
        spec, journal, launcher, left_out=left_out, on_message=lambda *_: None, on_end=lambda *_: None
    )
    workers.catch_up({1: (received, 0)})
    assert launcher.taken == []
    journal.output(0, b"new")
    workers.catch_up({1: (received, 0)})
    assert [piece.text for piece in launcher.taken] == ["new"]
    journal.close()
