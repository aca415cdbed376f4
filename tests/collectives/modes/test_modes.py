"""The contract, kept by each mode. The peers are threads: the memory and the sockets are real.

Mode `mpi` keeps it in `test_mpi_mode.py`: its peers must be processes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from tests.collectives.modes.mode_contract import BETWEEN_HOSTS, CASES, LEAVING, Together
from torch._C._distributed_c10d import HashStore

from weft.collectives.members import GroupMember
from weft.collectives.modes.explore import Explorer
from weft.collectives.modes.gloo import Gloo
from weft.collectives.modes.mode import Mode
from weft.collectives.modes.peers import DimensionPeers
from weft.collectives.modes.shared_memory import arena, files
from weft.collectives.modes.shared_memory.shm import SharedMemory
from weft.collectives.modes.table import MODES, candidates
from weft.collectives.modes.tcp.mesh import Mesh, listen
from weft.collectives.modes.tcp.ring import Ring

TIMEOUT_S = 60.0  # Gloo closes connections that a busy machine takes longer to make
SLAB_BYTES = 1 << 18  # small, so that tensors go through in pieces


def describe(peer: int, what: str) -> str:
    return f"peer {peer} {what}"


def shm_makers(size: int) -> list[Callable[[], Mode]]:
    name = f"{files.PREFIX}{os.getpid()}-test-{threading.get_ident()}-{size}"
    arena.unlink(name)
    opened = [arena.create(name, size, SLAB_BYTES)] + [arena.attach(name) for _ in range(size - 1)]
    arena.unlink(name)
    pids = [os.getpid()] * size

    def maker(index: int) -> Callable[[], Mode]:
        return lambda: SharedMemory(
            arena.Arena(opened[index], index=index, pids=pids, slab_bytes=SLAB_BYTES),
            timeout_s=TIMEOUT_S,
            describe=describe,
        )

    return [maker(index) for index in range(size)]


def ring_makers(size: int) -> list[Callable[[], Mode]]:
    listeners = [listen("127.0.0.1") for _ in range(size)]
    addresses = [listener.getsockname()[:2] for listener in listeners]

    def maker(index: int) -> Callable[[], Mode]:
        return lambda: Ring(
            Mesh(
                listeners[index],
                addresses,
                index=index,
                secret="0123456789abcdef",
                timeout_s=TIMEOUT_S,
                describe=describe,
            )
        )

    return [maker(index) for index in range(size)]


def gloo_makers(size: int) -> list[Callable[[], Mode]]:
    store = HashStore()
    return [partial(Gloo, store, index, size, timedelta(seconds=TIMEOUT_S)) for index in range(size)]


def explore_makers(size: int) -> list[Callable[[], Mode]]:
    rings, gloos = ring_makers(size), gloo_makers(size)

    def maker(index: int) -> Callable[[], Mode]:
        return lambda: Explorer(
            {"ring": rings[index](), "gloo": gloos[index]()}, {4096: "ring", 65536: "gloo"}
        )

    return [maker(index) for index in range(size)]


def connected_makers(name: str, size: int) -> list[Callable[[], Mode]]:
    """Peers that the mode connects by itself, as a group has it do."""
    store = HashStore()
    members = tuple(
        GroupMember(rank=rank, host="here", name="here", pid=os.getpid(), address="127.0.0.1")
        for rank in range(size)
    )

    def maker(index: int) -> Callable[[], Mode]:
        peers = DimensionPeers(
            name="test",
            store=store,
            members=members,
            index=index,
            timeout_s=TIMEOUT_S,
            describe=describe,
            lives=lambda peer: True,
        )
        return lambda: cast("Mode", MODES[name].load().connect(peers))

    return [maker(index) for index in range(size)]


ELSEWHERE = {"mpi", "nccl"}  # kept in test_mpi_mode.py, by processes, and under tests/gpu
HERE = [name for name in MODES if name not in ELSEWHERE]
MAKERS: dict[str, Callable[[int], list[Callable[[], Mode]]]] = {
    **{name: partial(connected_makers, name) for name in HERE},
    "small slabs": shm_makers,
    "explore": explore_makers,
}


def together(makers: list[Callable[[], Mode]], work: Callable[[Mode], Any]) -> list[Any]:
    """Let every peer do the same; what each gave, or the first error."""
    results: list[Any] = [None] * len(makers)
    errors: list[BaseException] = []

    def peer(index: int) -> None:
        try:
            mode = makers[index]()
            try:
                results[index] = work(mode)
            finally:
                mode.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=peer, args=(index,)) for index in range(len(makers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def peers_of(name: str) -> Together:
    return lambda size, work: together(MAKERS[name](size), work)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("case", CASES)
def test_contract(name: str, case: str) -> None:
    CASES[case](peers_of(name))


@pytest.mark.parametrize("name", [name for name in HERE if MODES[name].between])
@pytest.mark.parametrize("case", BETWEEN_HOSTS)
def test_between_hosts_several_are_under_way(name: str, case: str) -> None:
    BETWEEN_HOSTS[case](peers_of(name))


@pytest.mark.parametrize(
    ("chosen", "inside", "between"),
    [
        ("explore", ("shm", "gloo"), ("ring", "gloo")),
        ("gloo", ("gloo",), ("gloo",)),
        ("mpi", ("mpi",), ("mpi",)),
        ("ring", ("shm",), ("ring",)),
        ("shm", ("shm",), ("ring",)),
        ("nccl", ("shm",), ("ring",)),
    ],
)
def test_what_cannot_serve_a_dimension_gives_way(
    chosen: str, inside: tuple[str, ...], between: tuple[str, ...]
) -> None:
    assert (candidates(chosen, 0), candidates(chosen, 1), candidates(chosen, 3)) == (inside, between, between)


@pytest.mark.parametrize("name", MODES)
def test_a_mode_in_the_table_can_be_loaded_and_has_its_name(name: str) -> None:
    assert MODES[name].load().name == name


@pytest.mark.parametrize("name", ["shm", "ring"])
@pytest.mark.parametrize("case", LEAVING)
def test_leaving(name: str, case: str) -> None:
    LEAVING[case](peers_of(name))


def test_arenas_of_the_dead_are_swept(tmp_path: Any) -> None:
    (tmp_path / f"{files.PREFIX}999999999-x").write_bytes(b"")
    (tmp_path / f"{files.PREFIX}{os.getpid()}-x").write_bytes(b"")
    assert files.sweep(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == [f"{files.PREFIX}{os.getpid()}-x"]
