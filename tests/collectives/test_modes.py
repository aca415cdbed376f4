"""The contract of a mode, kept by each of them. The peers are threads: the memory and the sockets are real."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._C._distributed_c10d import HashStore

from weft.collectives import arena
from weft.collectives.explore import Explorer
from weft.collectives.gloo import Gloo
from weft.collectives.mesh import Mesh, listen
from weft.collectives.mode import Mode, even_bounds
from weft.collectives.reduction import Reduction
from weft.collectives.ring import Ring
from weft.collectives.shm import SharedMemory
from weft.errors import PeerError

TIMEOUT_S = 10.0
SLAB_BYTES = 1 << 18  # small, so that tensors go through in pieces


def describe(peer: int, what: str) -> str:
    return f"peer {peer} {what}"


def shm_makers(size: int) -> list[Callable[[], Mode]]:
    name = f"{arena.PREFIX}{os.getpid()}-test-{threading.get_ident()}-{size}"
    arena.unlink(name)
    files = [arena.create(name, size, SLAB_BYTES)] + [arena.attach(name) for _ in range(size - 1)]
    arena.unlink(name)
    pids = [os.getpid()] * size

    def maker(index: int) -> Callable[[], Mode]:
        return lambda: SharedMemory(
            arena.Arena(files[index], index=index, pids=pids, slab_bytes=SLAB_BYTES),
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
                secret=b"0123456789abcdef",
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


MAKERS = {"shm": shm_makers, "ring": ring_makers, "gloo": gloo_makers, "explore": explore_makers}


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


@pytest.fixture(params=MAKERS)
def makers(request: pytest.FixtureRequest) -> Callable[[int], list[Callable[[], Mode]]]:
    return MAKERS[request.param]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_everyone_gets_the_same_sum(makers: Callable[[int], list[Callable[[], Mode]]], size: int) -> None:
    counts = [1, 7, 1000, 16384, 100_003, 400_000]

    def work(mode: Mode) -> list[Tensor]:
        given = [torch.arange(count, dtype=torch.float32) * 0.1 + mode.index for count in counts]
        for values in given:
            mode.all_reduce(values, Reduction("SUM"))
        return given

    results = together(makers(size), work)
    for position, count in enumerate(counts):
        expected = torch.arange(count, dtype=torch.float32) * 0.1 * size + sum(range(size))
        assert torch.allclose(results[0][position], expected)
        assert all(torch.equal(result[position], results[0][position]) for result in results)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("name", ["SUM", "PRODUCT", "MIN", "MAX"])
def test_types_and_operators(
    makers: Callable[[int], list[Callable[[], Mode]]], dtype: torch.dtype, name: str
) -> None:
    def given(index: int) -> Tensor:
        return ((torch.arange(5003) + index) % 3).to(dtype)

    def work(mode: Mode) -> Tensor:
        values = given(mode.index)
        mode.all_reduce(values, Reduction(name))
        return values

    expected = given(0)
    for index in (1, 2):
        Reduction(name).combine(expected, given(index), expected)
    assert all(torch.equal(result, expected) for result in together(makers(3), work))


def test_parts_are_reduced_and_gathered(makers: Callable[[int], list[Callable[[], Mode]]]) -> None:
    count = 150_001
    for bounds in (even_bounds(count, 3), ((0, 10), (10, 10), (10, count))):

        def work(mode: Mode, bounds: Any = bounds) -> Tensor:
            values = torch.full((count,), float(mode.index + 1))
            mode.reduce_scatter(values, bounds, Reduction("SUM"))
            first, last = bounds[mode.index]
            assert torch.equal(values[first:last], torch.full((last - first,), 6.0))
            values[:first], values[last:] = -1.0, -1.0
            mode.all_gather(values, bounds)
            return values

        assert all(torch.equal(result, torch.full((count,), 6.0)) for result in together(makers(3), work))


@pytest.mark.parametrize("root", [0, 1, 2])
def test_a_broadcast_reaches_everyone(makers: Callable[[int], list[Callable[[], Mode]]], root: int) -> None:
    def work(mode: Mode) -> Tensor:
        values = torch.full((70_001,), float(mode.index))
        mode.broadcast(values, root)
        return values

    assert all(
        torch.equal(result, torch.full((70_001,), float(root))) for result in together(makers(3), work)
    )


def test_many_calls_of_all_kinds_keep_their_order(makers: Callable[[int], list[Callable[[], Mode]]]) -> None:
    def work(mode: Mode) -> list[float]:
        seen = []
        for turn in range(60):
            values = torch.full((1 + turn * 977 % 9000,), float(turn + mode.index))
            match turn % 4:
                case 0:
                    mode.all_reduce(values, Reduction("MAX"))
                case 1:
                    mode.broadcast(values, turn % mode.size)
                case 2:
                    mode.barrier()
                    mode.all_reduce(values, Reduction("MIN"))
                case _:
                    mode.all_gather(values, even_bounds(values.numel(), mode.size))
            seen.append(float(values.double().sum()))
        return seen

    first, *others = together(makers(3), work)
    assert all(other == first for other in others)


def test_a_ring_has_several_reductions_under_way() -> None:
    def work(mode: Any) -> list[Tensor]:
        given = [torch.full((50_000 + number,), float(mode.index + number)) for number in range(8)]
        for flow in [mode.start_all_reduce(values, Reduction("SUM")) for values in given]:
            flow.wait()
        tail = torch.ones(100_000)
        mode.all_reduce(tail, Reduction("SUM"))  # and is at the caller's again afterwards
        return [*given, tail]

    for result in together(ring_makers(3), work):
        for number, values in enumerate(result[:-1]):
            assert torch.equal(values, torch.full((50_000 + number,), 3.0 + 3 * number))
        assert torch.equal(result[-1], torch.full((100_000,), 3.0))


def test_a_ring_goes_back_and_forth_between_its_own_thread_and_the_callers() -> None:
    def work(mode: Any) -> bool:
        for turn in range(100):
            behind, ahead = torch.full((40_000,), float(turn)), torch.full((30_000,), 1.0)
            mode.start_all_reduce(behind, Reduction("SUM")).wait()
            mode.all_reduce(ahead, Reduction("SUM"))
            if not (bool((behind == 3 * turn).all()) and bool((ahead == 3).all())):
                return False
        return True

    assert all(together(ring_makers(3), work))


@pytest.mark.parametrize("name", ["shm", "ring"])
def test_a_peer_that_goes_away_is_named(name: str) -> None:
    built = MAKERS[name](2)

    def work(mode: Mode) -> None:
        if mode.index == 1:
            return
        mode.all_reduce(torch.ones(100_000), Reduction("SUM"))

    with pytest.raises(PeerError, match=r"peer 1 (gave up|closed its connection|was lost)"):
        together(built, work)


def test_arenas_of_the_dead_are_swept(tmp_path: Any) -> None:
    (tmp_path / f"{arena.PREFIX}999999999-x").write_bytes(b"")
    (tmp_path / f"{arena.PREFIX}{os.getpid()}-x").write_bytes(b"")
    assert arena.sweep(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == [f"{arena.PREFIX}{os.getpid()}-x"]
