"""Predictions beside arithmetic that can be done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import UsageError
from weft.parallel.planning.candidates import PLAIN_FSDP, candidates, divisions
from weft.parallel.prediction.cluster import ClusterFacts, CollectiveSpeed, fit_speed, on_cpus
from weft.parallel.prediction.costs import collective_cost
from weft.parallel.prediction.memory import peak_bytes
from weft.parallel.prediction.predict import predict
from weft.parallel.prediction.simulation import shared_cores
from weft.parallel.prediction.step import LayerRecord, RecordedStep
from weft.parallel.prediction.timeline import SharedCores
from weft.parallel.prediction.way import KINDS, Way

MB, MIB = 1_000_000, 1 << 20
GIGABIT = 125 * MB


def step(
    layers: int = 4, *, layer_bytes: int = 25 * MB, passes: int = 1, optimizer_bytes: int = 0
) -> RecordedStep:
    return RecordedStep(
        name="net",
        layers=tuple(
            LayerRecord(
                name=f"layer{number}",
                forward_s=0.1,
                backward_s=0.2,
                parameter_bytes=layer_bytes,
                gradient_bytes=layer_bytes,
                activation_bytes=10 * MB,
            )
            for number in range(layers)
        ),
        passes=passes,
        optimizer_bytes=optimizer_bytes,
    )


def cluster(hosts: int = 4, workers: int = 2, **more: object) -> ClusterFacts:
    exact = {"efficiency": 1.0, "fixed_s": 0.0, "host_fixed_s": 0.0, "memory_bps": 1e15, "card_bps": GIGABIT}
    names = tuple(f"h{number}" for number in range(hosts))
    return ClusterFacts(hosts=names, workers_per_host=workers, **{**exact, **more})  # type: ignore[arg-type]


def test_one_worker_computes_all_the_time() -> None:
    found = predict(step(passes=3), cluster(1, 1), Way())
    assert found.step_s == pytest.approx(3 * 1.2)
    assert found.computing_share == 1.0
    assert found.card_bytes == 0


def test_an_all_reduce_takes_what_the_cards_carry() -> None:
    cost = collective_cost(cluster(4), Way(), "all_reduce", 100 * MB)
    assert cost.card_bytes == 150 * MB
    assert cost.seconds == pytest.approx(1.2)
    assert collective_cost(cluster(4), Way(wire="bf16"), "all_reduce", 100 * MB).seconds == pytest.approx(0.6)
    assert collective_cost(cluster(4), Way(wire="bf16"), "all_gather", 100 * MB).card_bytes == 75 * MB


def test_the_slower_of_memory_and_network_counts() -> None:
    slow_memory = cluster(2, 2, memory_bps=10 * MB)
    assert collective_cost(slow_memory, Way(), "all_gather", 100 * MB).seconds == pytest.approx(5.0)


def test_uplinks_of_racks_carry_less_by_levels() -> None:
    racked = cluster(4, 1, racks=2, uplink_bps=GIGABIT / 2)
    ring, levels = (
        collective_cost(racked, Way(racks=racks), "all_reduce", 100 * MB) for racks in (False, True)
    )
    assert (ring.uplink_bytes, levels.uplink_bytes) == (150 * MB, 100 * MB)
    assert levels.seconds < ring.seconds


def test_ddp_hides_buckets_behind_backward() -> None:
    # Buckets of 25 MB take 0.3 s each on the network and become ready every 0.2 s of the backward pass, from 0.6 s on.
    found = predict(step(), cluster(), Way(bucket_bytes=25 * MB))
    assert found.card_bytes == 150 * MB
    assert found.step_s == pytest.approx(0.6 + 4 * 0.3)


def test_a_bucket_holds_whole_gradients() -> None:
    # Two layers of 25 MB in two tensors each: 30 MB are there with the third tensor, after 3/4 of the backward pass.
    layers = tuple(replace(one, tensor_bytes=(15 * MB, 10 * MB)) for one in step(2).layers)
    found = predict(replace(step(2), layers=layers), cluster(), Way(bucket_bytes=30 * MB))
    ready_s = 0.2 + 0.2 + 0.2 * 10 / 25
    assert found.step_s == pytest.approx(ready_s + 50 * MB * 1.5 / GIGABIT)
    small = predict(replace(step(2), layers=layers), cluster(), Way(bucket_bytes=1 * MB))
    assert small.step_s == pytest.approx(0.2 + 0.2 * 10 / 25 + 50 * MB * 1.5 / GIGABIT)


def test_copies_to_buckets_keep_the_processor_busy() -> None:
    copying = predict(step(), cluster(bucket_copy_bps=250 * MB), Way(bucket_bytes=25 * MB))
    assert copying.step_s == pytest.approx(0.6 + 0.1 + 4 * 0.3)


def test_shards_leave_what_an_optimizer_takes_for_each_tensor() -> None:
    optimized = replace(step(1), optimizer_s=0.8, optimizer_fixed_s=0.4)
    assert optimized.optimizer_s_of(8) == pytest.approx(0.45)
    quick = cluster(1, 8, memory_bps=1e18)
    assert predict(optimized, quick, Way(kind="fsdp")).step_s == pytest.approx(0.3 + 0.45)


def test_fsdp_takes_a_time_for_each_layer() -> None:
    alone, hooked = (
        predict(step(), cluster(1, 2, shard_fixed_s=seconds), Way(kind="fsdp")) for seconds in (0.0, 0.01)
    )
    assert hooked.step_s == pytest.approx(alone.step_s + 2 * 4 * 0.01)


def test_cpus_take_what_is_usual_where_nothing_was_measured() -> None:
    usual, measured = on_cpus(cluster(1, 2)), on_cpus(cluster(1, 2, shard_fixed_s=0.01))
    assert usual.shard_fixed_s > 0
    assert usual.bucket_copy_bps > 0
    assert measured.shard_fixed_s == 0.01


def test_computing_is_slower_beside_transport_on_the_same_cores() -> None:
    # The transport takes half of the one core while the network works.
    busy = replace(step(), busy_cores=1.0)
    shared = cluster(transport_cores=0.5)
    alone, beside = (predict(busy, facts, Way(bucket_bytes=25 * MB)) for facts in (cluster(), shared))
    # Each other layer computes 0.15 s in the 0.3 s of a bucket, and the rest alone.
    assert alone.step_s == pytest.approx(1.8)
    assert beside.step_s == pytest.approx(0.6 + 3 * 0.35 + 0.3)
    with_room = replace(busy, spare_cores=1.0)
    assert predict(with_room, shared, Way(bucket_bytes=25 * MB)).step_s == alone.step_s
    assert predict(step(), shared, Way(bucket_bytes=25 * MB)).step_s == alone.step_s


def test_waiting_for_a_device_needs_no_core() -> None:
    # Busy for half of the time, on half a core, of which the transport takes half: that half takes twice as long.
    waits = replace(step(), busy_cores=0.5)
    computing, _ = shared_cores(waits, cluster(transport_cores=0.25))
    assert computing == SharedCores(2.0, 1.0)
    roomy, _ = shared_cores(replace(waits, spare_cores=0.75), cluster(transport_cores=0.25))
    assert roomy == SharedCores()
    # A worker gets one core: it is idle for half of the time, in which nothing is slower.
    idle, copying = shared_cores(waits, cluster(transport_cores=0.25, worker_cores=1.0))
    assert idle.computing == pytest.approx(1 + 0.5 / 3)
    assert copying.computing == pytest.approx(4 / 3)


def test_cores_are_shared_evenly_where_there_are_too_few() -> None:
    assert SharedCores.of(2.0, 1.0, 0.5) == SharedCores()
    assert SharedCores.of(1.0, 1.0, 0.5) == SharedCores(2.0, 1.0)
    assert SharedCores.of(1.0, 1.0, 1.0) == SharedCores(2.0, 2.0)
    assert SharedCores.of(1.0, 0.25, 1.0) == SharedCores(1.0, 4 / 3)


def test_the_network_is_slower_beside_copies_on_the_same_cores() -> None:
    # After 0.2 s forward and 0.2 s of copies, each bucket takes 0.2 s on the network, the first beside 0.2 s of copies.
    layers = tuple(replace(one, backward_s=0.0) for one in step(2).layers)
    busy = replace(step(2), busy_cores=1e-9, layers=layers)
    roomy, shared = (
        cluster(2, 1, transport_cores=1.0, worker_cores=cores, bucket_copy_bps=125 * MB)
        for cores in (2.0, 1.0)
    )
    assert predict(busy, roomy, Way(bucket_bytes=25 * MB)).step_s == pytest.approx(0.8)
    assert predict(busy, shared, Way(bucket_bytes=25 * MB)).step_s == pytest.approx(1.0)


def test_a_wire_has_the_speed_that_was_measured_for_it() -> None:
    speeds = {
        "all_reduce": CollectiveSpeed(0.0, GIGABIT),
        "all_reduce bf16": CollectiveSpeed(0.1, GIGABIT / 2),
    }
    facts = cluster(measured=speeds)
    costs = [
        collective_cost(facts, Way(wire=wire), "all_reduce", 100 * MB) for wire in ("fp32", "bf16", "fp16")
    ]
    assert [cost.seconds for cost in costs] == pytest.approx([1.2, 0.1 + 1.2, 0.6])


def test_without_overlap_everything_adds_up() -> None:
    blocking = predict(step(), cluster(), replace(PLAIN_FSDP, overlap=False))
    assert blocking.step_s == pytest.approx(1.2 + 3 * 0.6)  # gathered twice, reduced once
    overlapped = predict(step(), cluster(), PLAIN_FSDP)
    assert 1.8 <= overlapped.step_s < blocking.step_s


def test_passes_are_reduced_once() -> None:
    whole, every = (predict(step(passes=8), cluster(), Way(sync_every_pass=every)) for every in (False, True))
    assert every.card_bytes == 8 * whole.card_bytes
    assert whole.computing_share > 0.9 > every.computing_share


def test_many_passes_are_extrapolated() -> None:
    few, many = (predict(step(passes=number), cluster(), PLAIN_FSDP) for number in (4, 40))
    per_pass = (many.step_s - few.step_s) / 36
    assert many.card_bytes == 10 * few.card_bytes
    assert 1.8 <= per_pass <= 1.2 + 1.8


def test_fewer_passes_hold_more_activations() -> None:
    small, large = (predict(step(passes=8), cluster(), Way(passes=passes)) for passes in (0, 1))
    assert large.peak_bytes - small.peak_bytes == 7 * 40 * MB
    assert large.compute_s == pytest.approx(small.compute_s)


def test_shards_take_less_memory() -> None:
    owned = step(optimizer_bytes=200 * MB)
    peaks = {kind: peak_bytes(owned, cluster(), Way(kind=kind, sync_every_pass=True)) for kind in KINDS}
    assert peaks["ddp"] == 100 * MB + 100 * MB + 200 * MB + 40 * MB
    assert peaks["zero1"] == peaks["ddp"] - 175 * MB
    assert peaks["fsdp"] < peaks["hsdp"] < peaks["ddp"]
    assert peaks["fsdp"] < peaks["fsdp-keep"] < peaks["ddp"]


def test_large_model_support_swaps_what_does_not_fit() -> None:
    tight = cluster(device_bytes=300 * MB, copy_bps=1000 * MB)
    owned = step(optimizer_bytes=200 * MB)
    found = predict(owned, tight, Way(kind="lms"))
    assert found.fits
    assert found.copy_bytes == 2 * 140 * MB
    assert not predict(owned, tight, Way()).fits
    assert predict(owned, replace(tight, device_bytes=10 * MB), Way(kind="lms")).fits is False


def test_averages_of_local_steps_cost_their_share() -> None:
    found = predict(step(), cluster(), Way(local_steps=8))
    assert found.card_bytes == pytest.approx(150 * MB / 8)
    assert found.changes == "more"


def test_workers_that_scatter_wait_for_the_slowest() -> None:
    steady, scattered = (predict(step(), cluster(jitter=jitter), Way()) for jitter in (0.0, 0.02))
    assert scattered.step_s > steady.step_s


def test_measured_collectives_win_over_the_card() -> None:
    measured = {"all_reduce": CollectiveSpeed(0.5, GIGABIT)}
    assert collective_cost(cluster(measured=measured), Way(), "all_reduce", 0).seconds == 0.5


@given(st.floats(1e-5, 1.0), st.floats(1e6, 1e10))
def test_a_fit_finds_what_made_the_times(fixed: float, rate: float) -> None:
    times = {size: fixed + size / rate for size in (1 << 12, 1 << 18, 1 << 22, 1 << 26)}
    found = fit_speed(times)
    for size, seconds in times.items():
        assert found.seconds(size) == pytest.approx(seconds, rel=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 4), st.sampled_from((1, 2, 6, 8)))
def test_no_way_is_quicker_than_compute_or_the_cards(
    layers: int, hosts: int, workers: int, passes: int
) -> None:
    record, facts = step(layers, passes=passes), cluster(hosts, workers)
    for way in candidates(record, facts):
        found = predict(record, facts, way)
        assert found.step_s >= found.compute_s - 1e-9
        assert found.step_s >= found.card_bytes / GIGABIT - 1e-6
        assert 0 < found.computing_share <= 1


def test_a_division_keeps_the_samples() -> None:
    assert divisions(1) == (0,)
    assert divisions(6) == (0, 3, 2, 1)
    assert divisions(64) == (0, 32, 16, 8, 1)
    with pytest.raises(UsageError, match="parted evenly"):
        step(passes=6).in_passes(4)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: cluster(card_bps=0.0), "must be measured"),
        (lambda: cluster(4, racks=3), "equally many hosts"),
        (lambda: RecordedStep(name="x", layers=()), "layers with parameters"),
        (lambda: Way(wire="fp8"), "must be one of"),
        (lambda: Way(kind="tp"), "must be one of"),  # type: ignore[arg-type]
        (lambda: replace(step().layers[0], forward_s=float("nan")), "must be a time"),
    ],
)
def test_wrong_records_are_refused(make: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()  # type: ignore[operator]
