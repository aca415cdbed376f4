"""Light wires: what the codecs lose, what the feedback gives back, and that all peers get the same bits."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest
import torch
from testing.cluster.cluster import VirtualCluster
from tests.collectives.conftest import Bench
from torch import Tensor

import weft
from weft.collectives.modes.mode import Background
from weft.collectives.modes.tcp.mesh import Mesh, listen
from weft.collectives.modes.tcp.ring import Ring
from weft.collectives.modes.wires.light import light
from weft.collectives.modes.wires.wire import BLOCK, BlockInt8, Cast, Feedback, Memories
from weft.collectives.reduction import Reduction
from weft.errors import MismatchError, PeerError, UsageError

SUM = Reduction("SUM")
T = TypeVar("T")


def values_of(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def through(codec: BlockInt8 | Cast, values: Tensor) -> Tensor:
    came = torch.empty_like(values)
    codec.decode(codec.encode(values), came)
    return came


# -- codecs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 255, 256, 257, 1000, 1 << 16])
def test_int8_is_off_by_half_a_step_at_most(count: int) -> None:
    codec, values = BlockInt8(), values_of(count)
    encoded = codec.encode(values)
    assert encoded.numel() == codec.encoded_bytes(count)
    steps = codec.steps(values).repeat_interleave(BLOCK)[:count]
    assert ((through(codec, values) - values).abs() <= steps * 0.5001).all()


def test_int8_takes_a_quarter_of_the_bytes() -> None:
    assert BlockInt8().encoded_bytes(1 << 20) / (4 << 20) == pytest.approx(0.254, abs=1e-3)


@pytest.mark.parametrize("value", [0.0, 1e-42, 1e-38, 3e38])
def test_int8_has_no_trouble_at_the_ends_of_the_range(value: float) -> None:
    came = through(BlockInt8(), torch.full((300,), value))
    assert came.isfinite().all()
    assert torch.allclose(came, torch.full((300,), value), rtol=0.01, atol=2e-38)


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_what_is_not_finite_stays_so_in_its_block_and_harms_no_other(bad: float) -> None:
    values = values_of(3 * BLOCK)
    values[BLOCK + 7] = bad
    came = through(BlockInt8(), values)
    assert not came[BLOCK : 2 * BLOCK].isfinite().any()
    assert came[:BLOCK].isfinite().all()
    assert came[2 * BLOCK :].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_casts_are_torchs_own(dtype: torch.dtype) -> None:
    values = values_of(1000)
    assert torch.equal(through(Cast(dtype), values), values.to(dtype).float())


@pytest.mark.parametrize("codec", [Cast(torch.bfloat16), BlockInt8()])
def test_other_types_pass_unchanged(codec: BlockInt8 | Cast) -> None:
    values = torch.arange(10, dtype=torch.float64)
    assert codec.encode(values) is values
    assert torch.equal(through(codec, values), values)


# -- feedback -------------------------------------------------------------------------------------


def test_with_feedback_the_sum_over_time_is_right() -> None:
    codec = BlockInt8()
    feedback = Feedback(codec)
    exact, fed, plain = (torch.zeros(BLOCK) for _ in range(3))
    values = torch.full((BLOCK,), 0.001)
    values[0] = 1.0  # one large value: the others are less than half a step
    for _ in range(100):
        exact += values
        plain += through(codec, values)
        came = torch.empty(BLOCK)
        codec.decode(feedback.encode("bucket", values), came)
        fed += came
    assert (plain[1:] == 0).all()
    assert (fed - exact).abs().max() <= 1 / 127


def test_tensors_do_not_share_what_they_lost() -> None:
    codec = BlockInt8()
    feedback, values = Feedback(codec), values_of(BLOCK)
    first = feedback.encode("a", values)
    assert torch.equal(feedback.encode("b", values), first)
    assert not torch.equal(feedback.encode("a", values), first)


def test_memory_used_for_something_else_is_disturbed_by_a_step_at_most() -> None:
    codec = BlockInt8()
    feedback = Feedback(codec)
    feedback.encode("memory", values_of(1000) * 1e6)
    small = values_of(1000, seed=1)
    came = torch.empty(1000)
    codec.decode(feedback.encode("memory", small), came)
    steps = codec.steps(small).repeat_interleave(BLOCK)[:1000]
    assert ((came - small).abs() <= steps * 1.6).all()
    codec.decode(feedback.encode("memory", torch.zeros(1000)), came)
    assert (came == 0).all()


def test_a_bad_step_leaves_no_trace() -> None:
    codec = BlockInt8()
    feedback = Feedback(codec)
    feedback.encode("bucket", torch.full((BLOCK,), float("nan")))
    came = torch.empty(BLOCK)
    codec.decode(feedback.encode("bucket", torch.ones(BLOCK)), came)
    assert torch.allclose(came, torch.ones(BLOCK))


def test_memory_that_is_gone_is_forgotten() -> None:
    feedback = Feedback(BlockInt8())
    memories = Memories(feedback)
    kept = values_of(BLOCK)
    memories.encode(kept, "part", kept)
    for seed in range(5):
        fresh = values_of(BLOCK, seed)
        memories.encode(fresh, "part", fresh)
        del fresh
    assert feedback.count <= 2
    again = memories.encode(kept, "part", kept)
    assert not torch.equal(again, BlockInt8().encode(kept))


# -- around a ring --------------------------------------------------------------------------------


@contextmanager
def rings(size: int, wires: list[str]) -> Iterator[list[Background]]:
    """Peers in threads, joined by real connections."""
    listeners = [listen("127.0.0.1") for _ in range(size)]
    addresses = [("127.0.0.1", listener.getsockname()[1]) for listener in listeners]
    secret = secrets.token_hex(16)

    def join(index: int) -> tuple[Ring, Mesh]:
        mesh = Mesh(
            listeners[index],
            addresses,
            index=index,
            secret=secret,
            timeout_s=60,
            describe=lambda peer, what: f"peer {peer} {what}",
        )
        return Ring(mesh), mesh

    made = in_threads(size, join)
    try:
        yield in_threads(size, lambda index: light(*made[index], wires[index]))
    finally:
        for ring, _ in made:
            ring.close()


def test_a_mesh_does_not_wait_for_a_peer_that_died_before_it_called() -> None:
    listener = listen("127.0.0.1")
    with pytest.raises(PeerError, match="peer 1 died"):
        Mesh(
            listener,
            [listener.getsockname()[:2], ("127.0.0.1", 1)],
            index=0,
            secret=secrets.token_hex(16),
            timeout_s=300,
            describe=lambda peer, what: f"peer {peer} {what}",
            lives=lambda peer: False,
        )


def in_threads(size: int, work: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, range(size)))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(
    ("wire", "tolerance"), [("fp32", 1e-5), ("bf16", 0.02), ("fp16", 0.003), ("int8", 0.03)]
)
@pytest.mark.parametrize("background", [False, True])
def test_all_peers_get_the_same_bits_and_nearly_the_sum(
    size: int, wire: str, tolerance: float, background: bool
) -> None:
    count = 30_001

    def work(index: int) -> Tensor:
        values = values_of(count, seed=index)
        if background:
            chunks = torch.split(values, 12_000)  # the last one is too small for a light wire
            for pending in [modes[index].start_all_reduce(chunk, SUM) for chunk in chunks]:
                pending.wait()
        else:
            modes[index].all_reduce(values, SUM)
        return values

    with rings(size, [wire] * size) as modes:
        results = in_threads(size, work)
        for mode in modes:
            mode.close()
    exact = torch.stack([values_of(count, seed=index) for index in range(size)]).sum(0)
    assert all(torch.equal(result, results[0]) for result in results)
    assert (results[0] - exact).abs().max() <= tolerance * exact.abs().max()
    if wire != "fp32":
        assert not torch.equal(results[0], exact)


def test_int8_makes_up_for_what_it_lost_where_memory_lives_on() -> None:
    count, steps = 20_000, 20

    def work(index: int) -> Tensor:
        gradient, total = torch.empty(count), torch.zeros(count)
        for _ in range(steps):
            gradient.copy_(values_of(count, seed=index))
            modes[index].all_reduce(gradient, SUM)
            total += gradient
        return total

    exact = steps * torch.stack([values_of(count, seed=index) for index in range(3)]).sum(0)
    with rings(3, ["int8"] * 3) as modes:
        (total, *_) = in_threads(3, work)
    once = 3 * 4 / 127  # what one reduction may lose: about a step for each peer
    assert (total - exact).abs().max() < 2 * once  # and not 20 times as much


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (torch.arange(20_000, dtype=torch.float64) / 3, "SUM"),
        (torch.arange(20_000, dtype=torch.int32), "SUM"),
        (torch.arange(20_000, dtype=torch.float32) / 3, "MAX"),
        (torch.arange(1000, dtype=torch.float32) / 3, "SUM"),
    ],
)
@pytest.mark.parametrize("wire", ["bf16", "int8"])
def test_what_is_small_or_no_float32_sum_is_exact(wire: str, values: Tensor, name: str) -> None:
    def work(index: int) -> Tensor:
        mine = values.clone()
        modes[index].all_reduce(mine, Reduction(name))
        return mine

    with rings(2, [wire] * 2) as modes:
        results = in_threads(2, work)
    assert all(torch.equal(result, values * 2 if name == "SUM" else values) for result in results)


def test_fp16_sums_do_not_run_out_of_range() -> None:
    def work(index: int) -> Tensor:
        mine = torch.full((20_000,), 60_000.0)
        modes[index].all_reduce(mine, SUM)
        return mine

    with rings(4, ["fp16"] * 4) as modes:
        assert in_threads(4, work)[0].isfinite().all()


@pytest.mark.parametrize("wire", ["bf16", "fp16", "int8"])
def test_parts_are_reduced_within_the_wires_precision(wire: str) -> None:
    values = values_of(60_000)
    bounds = ((0, 10), (10, 30_000), (30_000, 60_000))

    def work(index: int) -> Tensor:
        mine = values.clone()
        modes[index].reduce_scatter(mine, bounds, SUM)
        first, last = bounds[index]
        return mine[first:last]

    with rings(3, [wire] * 3) as modes:
        whole = torch.cat(in_threads(3, work))
    torch.testing.assert_close(whole, values * 3, rtol=0, atol=0.05 * float(values.abs().max()))


def test_different_wires_are_refused_on_every_rank() -> None:
    with (
        pytest.raises(MismatchError, match="must use the same wire, got fp32 on one and bf16 on another"),
        rings(2, ["fp32", "bf16"]),
    ):
        pass


def test_a_peer_that_is_gone_is_an_error_for_int8() -> None:
    with rings(2, ["int8"] * 2) as modes:
        threading.Timer(0.2, modes[1].close).start()
        with pytest.raises(PeerError, match="peer 1"):
            modes[0].all_reduce(values_of(20_000), SUM)


@pytest.mark.parametrize(
    ("backend", "wire", "complaint"),
    [("gloo", "bf16", "must come with the backend \"weft\", got 'gloo'"), (None, "fp8", "got 'fp8'")],
)
def test_init_refuses_a_wire_that_nothing_would_carry(backend: str | None, wire: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        weft.init(backend, wire=wire)


# -- between hosts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "env"), [(("bf16", "0.02"), {"WEFT_WIRE": "bf16"}), (("int8", "0.05", "init"), {})]
)
def test_the_wire_is_light_between_hosts_and_the_same_bits_arrive(
    shared_cluster: VirtualCluster, bench: Bench, args: tuple[str, ...], env: dict[str, str]
) -> None:
    said = bench.passes_on(shared_cluster, "h1:2,h2:1,h3:2", "light_wire.py", *args, **env)
    assert said.count("as it should be") == 5, said
