"""Who stands in which rack, and who meets whom because of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.collectives.choices import parse_mode
from weft.collectives.members import Layout
from weft.collectives.places import AISLES, HOSTS, RACKS, RackPlace, meetings_of, own_place, places_of
from weft.collectives.settings import facts_from_env

EXPLORE = parse_mode("explore")


def test_a_worker_says_what_it_was_told() -> None:
    assert own_place(facts_from_env({"WEFT_RACK": "r7", "WEFT_AISLE": "b"}), EXPLORE) == RackPlace("r7", "b")
    assert own_place(facts_from_env({}), EXPLORE) == RackPlace()


@pytest.mark.parametrize(
    ("mode", "index", "place"),
    [
        ("b:4x2x2x1", 0, RackPlace("0", "0")),
        ("b:4x2x2x1", 3, RackPlace("1", "0")),
        ("b:4x2x1x2", 3, RackPlace("0", "1")),
        ("shm,ring:4x4", 3, RackPlace("0", "0")),
    ],
)
def test_the_dimensions_of_a_mode_win(mode: str, index: int, place: RackPlace) -> None:
    environ = {"WEFT_RACK": "9", "GROUP_RANK": str(index), "GROUP_WORLD_SIZE": "4"}
    assert own_place(facts_from_env(environ), parse_mode(mode)) == place


def test_dimensions_for_another_number_of_hosts_say_nothing() -> None:
    environ = {"WEFT_RACK": "9", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "6"}
    assert own_place(facts_from_env(environ), parse_mode("b:4x2x2x1")) == RackPlace("9")


def test_the_order_of_the_hosts_counts_where_nobody_knows_better() -> None:
    choice = parse_mode("b:4x2x2x1")
    assert places_of([RackPlace()] * 4, choice) == (*[RackPlace("0", "0")] * 2, *[RackPlace("1", "0")] * 2)
    assert places_of([RackPlace()] * 3, choice) == (RackPlace(),) * 3  # a part of the hosts: nothing is known
    told = (RackPlace("x"), RackPlace("y"), RackPlace("x"), RackPlace("y"))
    assert places_of(told, choice) == told


def test_hosts_meet_in_their_rack_and_racks_in_their_aisle() -> None:
    places = [RackPlace("0", "a"), RackPlace("1", "a"), RackPlace("0", "b"), RackPlace("0", "a")]
    assert meetings_of(places, HOSTS) == Layout(
        ((0, 3), (1,), (2,))
    )  # racks of one name in two aisles are two
    assert meetings_of(places, RACKS) == Layout(((0, 1, 3), (2,)))
    assert meetings_of(places, AISLES) == Layout(((0, 1, 2, 3),))


@given(st.lists(st.builds(RackPlace, st.sampled_from("012"), st.sampled_from("ab")), min_size=1, max_size=9))
def test_whoever_meets_further_in_meets_further_out(places: list[RackPlace]) -> None:
    for inner, outer in ((HOSTS, RACKS), (RACKS, AISLES)):
        wider = meetings_of(places, outer)
        for group in meetings_of(places, inner).hosts:
            assert len({wider.host_of(index) for index in group}) == 1
