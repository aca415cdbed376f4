"""Everyone's own message to everyone else, at once, over the connections of a mesh."""

from __future__ import annotations

import selectors
from collections.abc import Mapping

from torch import Tensor

from weft.collectives.modes.peers import let_nothing_through
from weft.collectives.modes.tcp.mesh import Mesh, bytes_of
from weft.errors import PeerError


def exchange(mesh: Mesh, out: Mapping[int, Tensor], into: Mapping[int, Tensor]) -> None:
    """Send `out[peer]` to each peer and fill `into[peer]` from it; both sides know the sizes."""
    sending = {peer: bytes_of(message) for peer, message in out.items() if message.nbytes}
    receiving = {peer: bytes_of(message) for peer, message in into.items() if message.nbytes}
    with selectors.PollSelector() as selector:
        watched: dict[int, int] = {}
        while sending or receiving:
            for peer in watched.keys() | sending.keys() | receiving.keys():
                events = selectors.EVENT_WRITE * (peer in sending) | selectors.EVENT_READ * (
                    peer in receiving
                )
                _watch(selector, mesh, peer, watched, events)
            ready = selector.select(mesh.timeout_s)
            if not ready:
                peer = next(iter(receiving or sending))
                raise PeerError(mesh.describe(peer, let_nothing_through(mesh.timeout_s)))
            for key, events in ready:
                if events & selectors.EVENT_WRITE:
                    _move(mesh, key.data, sending, out=True)
                if events & selectors.EVENT_READ:
                    _move(mesh, key.data, receiving, out=False)


def _watch(
    selector: selectors.BaseSelector, mesh: Mesh, peer: int, watched: dict[int, int], events: int
) -> None:
    before = watched.get(peer, 0)
    if events == before:
        return
    try:
        connection = mesh.socket_of(peer)
        if not before:
            selector.register(connection, events, peer)
        elif not events:
            selector.unregister(connection)
        else:
            selector.modify(connection, events, peer)
    except (OSError, ValueError) as error:  # closed by another thread
        raise PeerError(mesh.describe(peer, f"was lost: {error}")) from error
    watched[peer] = events


def _move(mesh: Mesh, peer: int, left: dict[int, memoryview], *, out: bool) -> None:
    """Send and receive as much as the sockets take now."""
    connection, memory = mesh.socket_of(peer), left[peer]
    try:
        count = connection.send(memory) if out else connection.recv_into(memory)
    except BlockingIOError:
        return
    except OSError as error:
        raise PeerError(mesh.describe(peer, f"was lost: {error}")) from error
    if count == 0:
        raise PeerError(mesh.describe(peer, "closed its connection"))
    if count == len(memory):
        del left[peer]
    else:
        left[peer] = memory[count:]
