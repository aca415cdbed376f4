"""The port on which an agent answers probes."""

from __future__ import annotations

import socket

import pytest

from weft.launch.agent import probes
from weft.launch.agent.protocol import ProbeTarget


def test_probes_are_answered_until_they_are_stopped() -> None:
    listener = probes.serve()
    target = ProbeTarget("here", "127.0.0.1", listener.getsockname()[1])
    (reached,) = probes.reach([target], 20.0)
    assert (reached.error, reached.source, reached.seen_as) == (None, "127.0.0.1", "127.0.0.1")
    probes.stop(listener)
    (reached,) = probes.reach([target], 20.0)
    assert reached.error == "Connection refused"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((target.address, target.port), timeout=60.0)
