"""Strangers on the network: what they may write into the store, and what they may connect to."""

from __future__ import annotations

import os
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch._C._distributed_c10d import HashStore

from weft.collectives.members import GroupMember
from weft.collectives.modes.peers import DimensionPeers
from weft.collectives.modes.shared_memory import arena
from weft.collectives.modes.tcp.mesh import Mesh, listen
from weft.collectives.modes.tcp.ring import Ring
from weft.errors import CollectiveError, PeerError

TIMEOUT_S = 30.0


def describe(peer: int, what: str) -> str:
    return f"peer {peer} {what}"


def peers_of(store: object, index: int, secret: str) -> DimensionPeers:
    members = tuple(
        GroupMember(rank=rank, host="here", name="here", pid=os.getpid(), address="127.0.0.1")
        for rank in range(2)
    )
    return DimensionPeers(
        name="test",
        store=store,
        members=members,
        index=index,
        timeout_s=TIMEOUT_S,
        describe=describe,
        lives=lambda peer: True,
        secret=secret,
    )


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../etc/passwd", "other-file", "weft-arena-../../x", "weft-arena-", "weft-arena-1\n", ""],
)
def test_memory_to_share_must_have_a_name_of_ours(name: str, tmp_path: Path) -> None:
    with pytest.raises(CollectiveError, match="must be named weft-arena-"):
        arena.attach(name, tmp_path)


def test_memory_to_share_is_no_link_and_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "weft-arena-1").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        arena.attach("weft-arena-1", tmp_path)
    os.mkfifo(tmp_path / "weft-arena-2")
    with pytest.raises(CollectiveError, match="must be a file of user"):
        arena.attach("weft-arena-2", tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_memory_to_share_is_of_our_own_user(tmp_path: Path) -> None:
    (tmp_path / "weft-arena-1").write_bytes(b"x")
    os.chown(tmp_path / "weft-arena-1", 65534, 65534)
    with pytest.raises(CollectiveError, match="of user 65534"):
        arena.attach("weft-arena-1", tmp_path)


def test_the_secret_of_a_run_is_not_in_its_store() -> None:
    store = HashStore()
    with ThreadPoolExecutor(2) as pool:
        rings = list(pool.map(lambda index: Ring.connect(peers_of(store, index, "the run's")), range(2)))
    for ring in rings:
        ring.close()
    assert not store.check(["test/secret"])


def test_a_caller_without_the_secret_is_not_let_in_and_the_peer_that_has_it_is() -> None:
    listeners = [listen("127.0.0.1") for _ in range(2)]
    addresses = [listener.getsockname()[:2] for listener in listeners]
    stranger = socket.create_connection(addresses[0])
    stranger.sendall(
        struct.pack("!I", 1) + b"0123456789abcdef" + bytes(64)
    )  # the index of a peer, and a guess

    def join(index: int) -> Mesh:
        return Mesh(
            listeners[index], addresses, index=index, secret="right", timeout_s=TIMEOUT_S, describe=describe
        )

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(join, range(2))
    second.socket_of(0).setblocking(True)
    first.socket_of(1).setblocking(True)
    second.socket_of(0).sendall(b"from the peer")
    assert first.socket_of(1).recv(13, socket.MSG_WAITALL) == b"from the peer"
    for mesh in (first, second):
        mesh.close()
    stranger.close()


def test_a_listener_without_the_secret_is_not_talked_to() -> None:
    """A stranger who can write to the store may name an address of its own."""
    impostor = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = impostor.accept()
        with connection:
            connection.recv(20)
            connection.sendall(bytes(48))
            connection.recv(64)

    thread = threading.Thread(target=answer)
    thread.start()
    listener = listen("127.0.0.1")
    with pytest.raises(PeerError, match="peer 0 could not be met"):
        Mesh(
            listener,
            [impostor.getsockname()[:2], listener.getsockname()[:2]],
            index=1,
            secret="right",
            timeout_s=TIMEOUT_S,
            describe=describe,
        )
    thread.join()
    impostor.close()
