"""Who owns what: every element has one owner on every host."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.collectives.members import GroupMember, Layout, arrange, in_turns, layout_of
from weft.collectives.modes.explore import best_of, mode_for
from weft.collectives.modes.mode import bounds_of


def member(rank: int, host: str) -> GroupMember:
    return GroupMember(rank=rank, host=host, name=host, pid=1, address="")


def test_hosts_are_told_apart_by_who_shares_memory() -> None:
    dealt = [member(rank, f"h{rank % 2}") for rank in range(4)]
    assert layout_of(dealt) == Layout(((0, 2), (1, 3)))


def test_on_equal_hosts_each_rank_owns_a_slice() -> None:
    layout = Layout(((0, 1), (2, 3)))
    assert [layout.owners(piece) for piece in range(layout.slices)] == [(0, 2), (1, 3)]
    assert layout.local_bounds(3, 10) == ((0, 5), (5, 10))


def test_a_lone_rank_owns_all_slices() -> None:
    layout = Layout(((0, 1), (2,)))
    assert layout.owned(2) == (0, 1)
    assert layout.owners(1) == (1, 2)
    assert layout.local_bounds(2, 10) == ((0, 10),)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 1000))
def test_every_element_has_one_owner_on_every_host(counts: list[int], count: int) -> None:
    ranks = iter(range(sum(counts)))
    layout = Layout(tuple(tuple(next(ranks) for _ in range(size)) for size in counts))
    for host in layout.hosts:
        bounds = layout.local_bounds(host[0], count)
        assert bounds[0][0] == 0
        assert bounds[-1][1] == count
        assert all(before[1] == after[0] for before, after in pairwise(bounds))
    for piece in range(layout.slices):
        assert all(piece in layout.owned(owner) for owner in layout.owners(piece))


LAYOUTS = st.lists(st.integers(0, 4), min_size=1, max_size=12).map(
    lambda hosts: layout_of([member(rank, f"h{host}") for rank, host in enumerate(hosts)])
)


def test_parts_lie_by_slice_and_in_a_slice_by_host() -> None:
    in_blocks = arrange(Layout(((0, 1), (2, 3))), (1, 1, 1, 1))
    assert in_blocks.places == ((0, 1), (2, 3), (1, 2), (3, 4))
    dealt = arrange(Layout(((0, 2), (1, 3))), (1, 1, 1, 1))
    assert dealt.places == ((0, 1), (1, 2), (2, 3), (3, 4))


def test_a_lone_rank_brings_its_part_to_its_first_slice() -> None:
    arrangement = arrange(Layout(((0, 1), (2,))), (3, 4, 5))
    assert arrangement.parts == (((0, 3), (3, 8)), ((8, 12), (12, 12)))
    assert arrangement.parts_of(1) == ((0, 4), (4, 4))


@given(LAYOUTS, st.data())
def test_everyone_finds_its_part_in_a_stretch_of_its_own(layout: Layout, data: st.DataObject) -> None:
    size = sum(map(len, layout.hosts))
    counts = tuple(data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)))
    arrangement = arrange(layout, counts)
    assert arrangement.count == sum(counts)
    assert [last - first for first, last in arrangement.places] == list(counts)
    assert sorted(i for place in arrangement.places for i in range(*place)) == list(range(sum(counts)))
    for host in layout.hosts:
        bounds = arrangement.local_bounds(layout, host[0])
        assert bounds[0][0] == 0
        assert bounds[-1][1] == sum(counts)
        assert all(before[1] == after[0] for before, after in pairwise(bounds))
        for rank, (first, last) in zip(host, bounds, strict=True):
            begin, end = arrangement.places[rank]
            assert first <= begin <= end <= last


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(1, 5))
def test_turns_cover_every_part_once(counts: list[int], turns: int) -> None:
    bounds = bounds_of(counts)
    cut = in_turns(bounds, turns)
    for rank, (first, last) in enumerate(bounds):
        assert [i for turn in cut for i in range(*turn[rank])] == list(range(first, last))


def test_the_first_mode_stays_unless_another_is_clearly_faster() -> None:
    table = {4096: {"shm": 1.0, "gloo": 0.95}, 65536: {"shm": 1.0, "gloo": 0.5}}
    assert best_of(table, "shm") == {4096: "shm", 65536: "gloo"}


def test_a_size_takes_the_choice_of_the_nearest_below() -> None:
    chosen = {4096: "a", 65536: "b"}
    assert [mode_for(size, chosen, "x") for size in (1, 4096, 65535, 65536, 1 << 30)] == [
        "a",
        "a",
        "a",
        "b",
        "b",
    ]
    assert mode_for(5, {}, "x") == "x"
