"""The agents as the launcher hears them."""

from __future__ import annotations

import sys
import time

import pytest
from testing.cluster.waiting import wait_until

from weft.errors import ConnectError
from weft.launch.agent.protocol import CommandFailed, WorkerOutput, WorkersDone
from weft.launch.control.agents import ROOM, AgentCommand, AgentPool
from weft.launch.engines.local import explain_agent

# An agent whose worker prints a lot.
CHATTERBOX = """
import json
for number in range({count}):
    print(json.dumps({{"event": "output", "rank": 0, "stream": "out", "text": str(number)}}))
print(json.dumps({{"event": "done", "attempt": 0}}), flush=True)
"""


def crew_of(program: str) -> AgentPool:
    return AgentPool([AgentCommand("h1", (sys.executable, "-c", program))], explain=explain_agent)


def test_a_worker_that_prints_faster_than_we_can_has_to_wait() -> None:
    count = 10 * ROOM
    with crew_of(CHATTERBOX.format(count=count)) as crew:
        wait_until(lambda: crew.inbox.qsize() == ROOM, "the inbox to be full")
        # It is we who do not listen; the host does not count as silent.
        wait_until(lambda: crew.connections["h1"].heard_at > time.monotonic(), "the listener to wait")
        heard = []
        for _ in range(count):
            assert crew.inbox.qsize() <= ROOM + 1  # what is not output needs no room
            _, event = crew.hear(5.0)
            assert isinstance(event, WorkerOutput)
            heard.append(event.text)
        assert heard == [str(number) for number in range(count)]
        assert crew.hear(5.0) == ("h1", WorkersDone(0))


def test_an_agent_that_cannot_be_started_takes_the_others_along() -> None:
    commands = [
        AgentCommand("h1", (sys.executable, "-c", "input()")),
        AgentCommand("h2", ("no-such-ssh", "h2")),
    ]
    with pytest.raises(ConnectError, match="no-such-ssh must start here to reach h2, got: No such file"):
        AgentPool(commands, explain=explain_agent)  # the guard of all tests sees to it that nothing is left


def test_output_that_nobody_takes_does_not_keep_us() -> None:
    with crew_of(CHATTERBOX.format(count=10 * ROOM)) as crew:
        wait_until(lambda: crew.inbox.qsize() == ROOM, "the inbox to be full")


def test_a_message_of_another_version_is_a_failure_that_names_the_line() -> None:
    with crew_of(
        """print('welcome!'); print('{"event": "exit", "rank": "0", "code": 1}', flush=True)"""
    ) as crew:
        _, event = crew.hear(20.0)
    assert isinstance(event, CommandFailed)
    assert "rank must be int" in event.message
    assert "same version of Weft" in event.message
