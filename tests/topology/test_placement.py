from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topology.machines import machine, machines

from weft.errors import TopologyError, UsageError
from weft.topology.host import Host
from weft.topology.placement import Placement, place, place_on

counts = st.integers(1, 20)


def slots(host: Host, workers: int) -> list[str]:
    return [placement.slot for placement in place(host, workers)]


def test_two_sockets_with_two_accelerators_each() -> None:
    placements = place(machine(), 4)
    assert [placement.slot for placement in placements] == ["0:0-7", "0:8-15", "1:0-7", "1:8-15"]
    assert [placement.accelerator for placement in placements] == [0, 1, 2, 3]
    assert [placement.numa for placement in placements] == [(0,), (0,), (1,), (1,)]
    assert placements[1].cpus == (*range(8, 16), *range(40, 48))
    assert placements[1].threads == 8


def test_workers_have_threads_for_the_time_of_their_container_and_run_anywhere() -> None:
    """A pod with `cpu: 6` on a machine of 32 cores: its neighbours see the same cores, and must not pick the same."""
    host = replace(machine(accelerators=()), cpu_quota_cores=6.0)
    for workers, threads in ((1, 6), (4, 1), (8, 1)):
        placements = place(host, workers)
        assert {placement.threads for placement in placements} == {threads}
        assert {placement.cpus for placement in placements} == {tuple(range(64))}
        assert {placement.numa for placement in placements} == {()}
        assert {placement.shared for placement in placements} == {workers > 6}


def test_workers_of_a_container_stay_with_their_accelerators() -> None:
    placements = place(replace(machine(), cpu_quota_cores=8.0), 4)
    assert [placement.slot for placement in placements] == slots(machine(), 4)
    assert [placement.threads for placement in placements] == [2] * 4


def test_fewer_workers_than_accelerators_share_the_cores_of_their_sockets() -> None:
    assert slots(machine(), 1) == ["0:0-15"]
    assert slots(machine(), 3) == ["0:0-7", "0:8-15", "1:0-15"]


def test_more_workers_than_accelerators_share_them_in_blocks() -> None:
    placements = place(machine(), 6)
    assert [placement.accelerator for placement in placements] == [0, 0, 1, 1, 2, 3]
    assert slots(machine(), 6) == ["0:0-3", "0:4-7", "0:8-11", "0:12-15", "1:0-7", "1:8-15"]


def test_workers_go_where_their_accelerators_are() -> None:
    assert slots(machine(accelerators=(1, 1)), 2) == ["1:0-7", "1:8-15"]
    assert slots(machine(accelerators=(1, 0, 1, 0)), 4) == ["1:0-7", "0:0-7", "1:8-15", "0:8-15"]


def test_cores_follow_the_domains_of_the_accelerators() -> None:
    host = machine(cores=(8,), numa_per_socket=2, accelerators=(0, 0))
    first, second = host.accelerators
    host = replace(host, accelerators=(replace(first, numa=1), replace(second, numa=0)))
    assert [(placement.slot, placement.numa) for placement in place(host, 2)] == [
        ("0:4-7", (1,)),
        ("0:0-3", (0,)),
    ]


def test_accelerators_that_do_not_say_their_socket_are_spread() -> None:
    placements = place(machine(accelerators=(None, None)), 2)
    assert [(placement.slot, placement.accelerator) for placement in placements] == [
        ("0:0-15", 0),
        ("1:0-15", 1),
    ]


def test_without_accelerators_workers_fill_sockets_in_blocks() -> None:
    host = machine(accelerators=())
    assert slots(host, 1) == ["0:0-15"]
    assert slots(host, 2) == ["0:0-15", "1:0-15"]
    assert slots(host, 5) == ["0:0-5", "0:6-10", "0:11-15", "1:0-7", "1:8-15"]


def test_one_core_prints_alone() -> None:
    assert slots(machine(cores=(2,), accelerators=()), 2) == ["0:0", "0:1"]


def test_too_many_workers_float_over_their_socket() -> None:
    placements = place(machine(cores=(2,), threads=1, accelerators=()), 3)
    assert [(placement.slot, placement.shared, placement.threads) for placement in placements] == [
        ("0:0-1", True, 1)
    ] * 3


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers(workers: int) -> None:
    with pytest.raises(UsageError, match=f"must have at least 1 worker, got {workers} on host1"):
        place(machine(), workers)


def test_no_cores() -> None:
    with pytest.raises(TopologyError, match="must have a core to run on, got none on host1"):
        place(machine(cores=()), 1)


@given(machines(), counts)
def test_every_worker_has_cores_of_one_socket(host: Host, workers: int) -> None:
    placements = place(host, workers)
    assert len(placements) == workers
    for placement in placements:
        cores = [
            core
            for core in host.cores_of(placement.socket)
            if placement.first_core <= core.index <= placement.last_core
        ]
        assert cores
        assert sorted(placement.cpus) == sorted(cpu for core in cores for cpu in core.cpus)
        assert set(placement.numa) == {core.numa for core in cores}
        assert placement.threads >= 1


@given(machines(), counts)
def test_workers_overlap_only_where_they_share(host: Host, workers: int) -> None:
    for one, other in combinations(place(host, workers), 2):
        if set(one.cpus) & set(other.cpus):
            assert one.shared
            assert other.shared
            assert one.slot == other.slot


@given(machines(), counts)
def test_no_core_of_a_used_socket_is_idle_and_shares_are_even(host: Host, workers: int) -> None:
    by_socket: dict[int, list[Placement]] = {}
    for placement in place(host, workers):
        by_socket.setdefault(placement.socket, []).append(placement)
    for socket, members in by_socket.items():
        cpus = {cpu for member in members for cpu in member.cpus}
        assert cpus == {cpu for core in host.cores_of(socket) for cpu in core.cpus}
        widths = [member.threads for member in members]
        assert max(widths) - min(widths) <= 1


@given(machines(), counts)
def test_accelerators_are_shared_evenly(host: Host, workers: int) -> None:
    taken = [placement.accelerator for placement in place(host, workers)]
    if not host.accelerators:
        assert set(taken) == {None}
        return
    loads = [taken.count(accelerator.index) for accelerator in host.accelerators]
    assert sum(loads) == workers
    assert max(loads) - min(loads) <= 1
    if workers <= len(host.accelerators):
        assert taken == list(range(workers))


@given(machines(equal_sockets=True, with_accelerators=False), counts)
def test_equal_sockets_are_filled_evenly(host: Host, workers: int) -> None:
    sockets = [placement.socket for placement in place(host, workers)]
    loads = [sockets.count(socket) for socket in host.sockets]
    assert max(loads) - min(loads) <= 1
    assert sockets == sorted(sockets)


@given(machines(with_accelerators=False), counts)
def test_cores_are_shared_only_when_there_are_too_few(host: Host, workers: int) -> None:
    assert any(placement.shared for placement in place(host, workers)) == (workers > len(host.cores))


def test_workers_stay_on_the_processors_that_they_are_given() -> None:
    placements = place_on(machine(), 2, (4, 5, 36, 37, 20, 21, 22, 23))
    assert [placement.cpus for placement in placements] == [(4, 5, 36, 37), (20, 21, 22, 23)]
    assert [placement.threads for placement in placements] == [2, 4]  # 36 is the other thread of core 4
    assert [placement.numa for placement in placements] == [(0,), (1,)]


def test_a_part_of_a_host_that_grows_moves_nobody() -> None:
    before, after = place_on(machine(), 2, range(8)), place_on(machine(), 3, range(12))
    assert after[:2] == before


def test_workers_share_processors_that_are_too_few() -> None:
    placements = place_on(machine(), 3, (1, 2))
    assert {placement.cpus for placement in placements} == {(1, 2)}
    assert {placement.threads for placement in placements} == {1}


def test_processors_that_a_host_lacks_are_named() -> None:
    with pytest.raises(TopologyError, match=r"got 64-65 for .* which has 0-63; mend the hostfile"):
        place_on(machine(), 1, (0, 64, 65))
