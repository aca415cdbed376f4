"""Flows around a ring end when both of their ways have: out to the right, and in from the left."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from weft.collectives.modes.tcp.flow import Flow, FlowStep, Pump
from weft.collectives.modes.tcp.mesh import Mesh
from weft.collectives.modes.tcp.signature import HEADER_BYTES, header

SAME = header("all_gather", torch.float32, ((0, 4), (4, 4)))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The socket of a pump, and that of its neighbour."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_a_flow_without_bytes_to_take_waits_for_its_neighbours_header(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    mesh = SimpleNamespace(socket_of=lambda peer: ours, timeout_s=5.0, describe=lambda peer, what: what)
    pump = Pump(cast("Mesh", mesh), left=1, right=1)
    values = torch.arange(4.0)
    flow = Flow(out=[FlowStep(values)], into=[FlowStep(values[4:])], header=SAME)
    pump._add(flow)
    pump._turn()
    assert len(theirs.recv(1024)) == HEADER_BYTES + values.nbytes  # all of it is out
    # The next call here would take the header that is still to come for its own.
    assert not flow._over.is_set()
    theirs.send(SAME)
    pump._turn()
    pump._turn()
    assert flow._over.is_set()
