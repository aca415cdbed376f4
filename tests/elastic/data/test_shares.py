"""Who computes what, and from whose commit a view goes on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.elastic.data.shares import MemberSummary, deal, settle

weights = st.lists(st.floats(0.05, 4.0), min_size=1, max_size=9)


@given(st.integers(1, 40), weights)
def test_every_micro_batch_is_dealt_once(micros: int, shares: list[float]) -> None:
    dealt = deal(micros, shares)
    assert sorted(micro for part in dealt for micro in part) == list(range(micros))
    if micros >= len(shares):
        assert all(dealt)


@given(st.data(), st.integers(1, 30), st.integers(1, 8))
def test_what_the_lost_had_not_handed_in_is_dealt_to_the_others(
    data: st.DataObject, micros: int, size: int
) -> None:
    before = deal(micros, [1.0] * size)
    alive = data.draw(st.lists(st.integers(0, size - 1), min_size=1, unique=True))
    held = [frozenset(before[rank][: data.draw(st.integers(0, len(before[rank])))]) for rank in alive]
    todo = deal(micros, [1.0] * len(alive), held)
    done = [micro for own, share in zip(held, todo, strict=True) for micro in (*own, *share)]
    assert sorted(done) == list(range(micros))


def test_equal_members_get_equal_shares() -> None:
    assert deal(8, [1.0] * 4) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert [len(part) for part in deal(8, [1.0] * 7)] == [2, 1, 1, 1, 1, 1, 1]
    assert deal(2, [1.0] * 3) == ((0,), (1,), ())


def test_a_slow_member_gets_less() -> None:
    assert [len(part) for part in deal(9, [1.0, 0.5, 1.0])] == [4, 2, 3]
    assert [len(part) for part in deal(3, [0.1, 0.1, 10.0])] == [1, 1, 1]


def test_a_member_without_weight_gets_nothing() -> None:
    assert deal(4, [1.0, 0.0, 1.0]) == ((0, 1), (), (2, 3))
    held = [frozenset({0, 3}), frozenset[int](), frozenset[int]()]
    assert deal(4, [1.0, 0.0, 1.0], held) == ((), (), (1, 2))


def test_the_newest_commit_of_those_who_stay_counts() -> None:
    ahead, behind = MemberSummary(committed=8, stays=True), MemberSummary(committed=7, stays=True)
    stray = MemberSummary(committed=99)
    settlement = settle([behind, ahead, stray])
    assert (settlement.sources, settlement.behind) == ((1,), (0, 2))
    assert settlement.base == ahead


def test_all_who_have_the_newest_commit_are_sources() -> None:
    here = MemberSummary(committed=5, stays=True)
    assert settle([here, MemberSummary(), here]).sources == (0, 2)


def test_at_the_start_the_first_rank_is_the_source_as_in_ddp() -> None:
    settlement = settle([MemberSummary(), MemberSummary(), MemberSummary()])
    assert (settlement.sources, settlement.behind) == ((0,), (1, 2))


def test_where_nobody_stays_the_newest_counts() -> None:
    assert settle(
        [MemberSummary(committed=3), MemberSummary(committed=9), MemberSummary(committed=9)]
    ).sources == (1,)


def test_an_epoch_begun_is_newer_than_one_that_ended() -> None:
    """A script may leave an epoch early: the same commit, another position."""
    left = MemberSummary(committed=4, epoch=1, start=0, stays=True)
    inside = MemberSummary(committed=4, epoch=0, start=64, stays=True)
    assert settle([inside, left]).sources == (1,)
