"""The output that a killed agent left on its host, sent to a launcher that asks for the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from weft.elastic.agent.journal import PIECE_BYTES, Journal
from weft.elastic.agent.launcher_messages import AgentAbsent, AttachOrder
from weft.elastic.agent.main import _receive_spec
from weft.launch.agent.protocol import WorkerOutput


class NarrowLauncher:
    """A link that has room for one message at a time, and drops what is sent without waiting for it."""

    def __init__(self, order: AttachOrder) -> None:
        self._order, self._room = order, 1
        self.taken: list[Any] = []
        self.lost = False

    async def orders(self) -> AsyncIterator[AttachOrder]:
        yield self._order

    def send(self, message: Any) -> bool:
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
