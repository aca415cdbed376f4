from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import TopologyError
from weft.topology.dimensions import infer_dimensions

sizes = st.integers(1, 6)


def test_one_rack_and_one_aisle_unless_declared() -> None:
    made = infer_dimensions([4] * 8)
    assert str(made) == "4x8x1x1"
    assert made.world == 32
    assert made.per_host == (4,) * 8


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"racks": 2}, "4x4x2x1"),
        ({"racks": 2, "aisles": 2}, "4x2x2x2"),
        ({"hosts_per_rack": 2}, "4x2x4x1"),
        ({"hosts_per_rack": 2, "aisles": 2}, "4x2x2x2"),
        ({"hosts_per_rack": 2, "racks": 2}, "4x2x2x2"),
        ({"accelerators": 4, "hosts_per_rack": 8, "racks": 1, "aisles": 1}, "4x8x1x1"),
        ({"accelerators": 2, "hosts_per_rack": 16}, "2x16x1x1"),  # finer than a host
    ],
)
def test_the_rest_is_inferred(declared: dict[str, Any], text: str) -> None:
    assert str(infer_dimensions([4] * 8, **declared)) == text


def test_uneven_hosts() -> None:
    made = infer_dimensions([4, 3], allow_uneven=True)
    assert str(made) == "(4+3)x2x1x1"
    assert made.accelerators is None
    assert made.world == 7


@given(
    sizes,
    sizes,
    sizes,
    sizes,
    st.sets(st.sampled_from(["accelerators", "hosts_per_rack", "racks", "aisles"])),
)
def test_whatever_part_is_declared_the_product_is_the_world(
    accelerators: int, hosts_per_rack: int, racks: int, aisles: int, names: set[str]
) -> None:
    whole: dict[str, Any] = {
        "accelerators": accelerators,
        "hosts_per_rack": hosts_per_rack,
        "racks": racks,
        "aisles": aisles,
    }
    counts = [accelerators] * (hosts_per_rack * racks * aisles)
    made = infer_dimensions(counts, **{name: whole[name] for name in names})
    assert prod([made.accelerators or 0, made.hosts_per_rack, made.racks, made.aisles]) == made.world
    assert all(getattr(made, name) == whole[name] for name in names)


@given(
    st.lists(sizes, min_size=1, max_size=8),
    st.fixed_dictionaries({}, optional={"hosts_per_rack": sizes, "racks": sizes}),
)
def test_uneven_worlds_multiply_to_their_hosts_or_are_refused(
    counts: list[int], declared: dict[str, Any]
) -> None:
    try:
        made = infer_dimensions(counts, allow_uneven=True, **declared)
    except TopologyError:
        return
    assert made.world == sum(counts)
    left_empty = made.hosts_per_rack * made.racks * made.aisles - len(counts)
    assert 0 <= left_empty < made.hosts_per_rack


def test_racks_are_filled_in_the_order_of_the_hosts() -> None:
    whole = infer_dimensions([2] * 8, racks=2, aisles=2)
    assert [whole.place_of(host) for host in range(8)] == [
        *[(0, 0)] * 2,
        *[(1, 0)] * 2,
        *[(0, 1)] * 2,
        *[(1, 1)] * 2,
    ]
    short = infer_dimensions([2] * 3, hosts_per_rack=2, allow_uneven=True)
    assert str(short) == "2x2x2x1"
    assert [short.place_of(host) for host in range(3)] == [(0, 0), (0, 0), (1, 0)]


def test_a_host_counts_for_several_where_accelerators_are_finer() -> None:
    made = infer_dimensions([4] * 4, accelerators=2, racks=2, hosts_per_rack=4)
    assert [made.place_of(host) for host in range(4)] == [(0, 0), (0, 0), (1, 0), (1, 0)]


@pytest.mark.parametrize(
    ("counts", "declared", "message"),
    [
        (
            [4] * 4,
            {"hosts_per_rack": 3},
            "dimensions must multiply to the world size, "
            "got 4 accelerators x 3 hosts x 1 rack x 1 aisle = 12 "
            "but 4 hosts x 4 workers = 16; change --hosts-per-rack or the host list",
        ),
        (
            [4] * 5,
            {"racks": 2, "aisles": 1},
            "dimensions must multiply to the world size, "
            "got 4 accelerators x 2 hosts x 2 racks x 1 aisle = 16 "
            "but 5 hosts x 4 workers = 20; change --racks or --aisles or the host list",
        ),
        ([1], {"racks": 2}, None),
        (
            [4] * 4,
            {"accelerators": 8, "hosts_per_rack": 2, "racks": 1, "aisles": 1},
            "--accelerators must divide the workers of a host, got 8 for 4 workers; use --accelerators 4",
        ),
        ([4], {"aisles": 0}, "--aisles must be at least 1, got 0; leave it out to have it inferred"),
        ([4], {"racks": -1}, None),
        ([], {}, "dimensions must have at least one host, got none; name hosts with -H"),
        ([4, 0], {}, "each host must have at least 1 worker, got 4, 0; leave empty hosts out"),
        (
            [4, 4, 3],
            {},
            "hosts must have equal worker counts to form a hierarchy, got 4, 4, 3; "
            "mend the host list or use --allow-uneven",
        ),
        (
            [4, 3],
            {"allow_uneven": True, "accelerators": 4},
            "--accelerators must hold for every host, got 4 for hosts with 4, 3; leave it out",
        ),
        (
            [4, 3],
            {"allow_uneven": True, "racks": 3},
            "dimensions must multiply to the number of hosts, got 1 host x 3 racks x 1 aisle = 3 "
            "but there are 2 hosts; change --racks or the host list",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_the_arithmetic(
    counts: list[int], declared: dict[str, Any], message: str | None
) -> None:
    with pytest.raises(TopologyError) as caught:
        infer_dimensions(counts, **declared)
    if message:
        assert str(caught.value) == message
