"""Agents that begin or come back late are told what was ordered before they could hear."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from weft.elastic.agent.launcher_messages import EndOrder, PauseOrder, StopOrder
from weft.elastic.launcher.launcher import ElasticLauncher
from weft.elastic.launcher.recruits import HostRecord
from weft.messages import encode


class Lines:
    """A crew that remembers the lines it was to send."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, list[str]]] = []

    def tell_line(self, line: bytes, hosts: list[str]) -> None:
        self.sent.append((line, hosts))


@pytest.mark.parametrize(
    ("over", "pausing", "interrupted", "orders"),
    [
        ("", False, None, []),
        ("", True, None, [PauseOrder()]),
        ("", False, signal.SIGINT, [StopOrder()]),
        ("finished", False, signal.SIGINT, [EndOrder("finished", 3)]),
    ],
)
def test_a_late_agent_hears_of_a_pause_of_a_stop_and_of_the_end(
    over: str, pausing: bool, interrupted: int | None, orders: list[Any]
) -> None:
    # A launcher with its crew and what it was told, and nothing else.
    launcher: Any = ElasticLauncher.__new__(ElasticLauncher)
    launcher._crew, launcher._over, launcher._code, launcher._pausing = Lines(), over, 3, pausing
    launcher._interrupted = interrupted
    launcher._tell_missed(HostRecord("h2"))
    assert launcher._crew.sent == [(encode(order), ["h2"]) for order in orders]
