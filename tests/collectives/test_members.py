"""Who owns what: every element has one owner on every host."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.collectives.explore import best_of, mode_for
from weft.collectives.members import Layout, Member, layout_of


def member(rank: int, host: str) -> Member:
    return Member(rank=rank, host=host, name=host, pid=1, address="")


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
