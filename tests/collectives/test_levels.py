"""Levels between hosts keep the contract of a mode, for racks of any sizes. Hosts are threads, joined by rings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tests.collectives.modes.test_modes import ring_makers, together
from tests.collectives.test_hierarchy import values_of

from weft.collectives.levels import Levels
from weft.collectives.modes.mode import bounds_of
from weft.collectives.places import HOSTS, RackPlace, meetings_of
from weft.collectives.reduction import Reduction
from weft.errors import PeerError

SUM = Reduction("SUM")
Maker = Callable[[], Any]


def makers(places: Sequence[RackPlace], dimension: int = HOSTS) -> list[Maker]:
    """For each host, what makes its mode; as the meeting does it, without a store."""
    layout = meetings_of(places, dimension)
    if len(layout.hosts) == 1:
        return ring_makers(len(places))
    if layout.slices == 1:
        return makers(places, dimension + 1)
    up, down = ({}, {})  # type: tuple[dict[int, Maker], dict[int, Maker]]
    for rack in layout.hosts:
        if len(rack) > 1:
            up |= dict(zip(rack, ring_makers(len(rack)), strict=True))
            down |= dict(zip(rack, ring_makers(len(rack)), strict=True))
    across: dict[int, dict[int, Maker]] = {}
    for piece in range(layout.slices):
        owners = layout.owners(piece)
        between = makers([places[owner] for owner in owners], dimension + 1)
        across[piece] = dict(zip(owners, between, strict=True))

    def maker(index: int) -> Maker:
        def make() -> Levels:
            rising, falling = (ways[index]() if index in ways else None for ways in (up, down))
            between = {piece: across[piece][index]() for piece in layout.owned(index)}
            return Levels(layout, index, rising, falling, between)

        return make

    return [maker(index) for index in range(len(places))]


SHAPES = {
    "two racks of two": [RackPlace("0"), RackPlace("0"), RackPlace("1"), RackPlace("1")],
    "dealt": [RackPlace("0"), RackPlace("1"), RackPlace("0"), RackPlace("1")],
    "two and one": [RackPlace("0"), RackPlace("0"), RackPlace("1")],
    "three, one and two": [RackPlace(rack) for rack in "001201"],
    "two aisles": [RackPlace(rack, aisle) for aisle in "ab" for rack in "01" for _ in range(2)],
    "an aisle of one host": [
        RackPlace("0", "a"),
        RackPlace("0", "a"),
        RackPlace("1", "a"),
        RackPlace("0", "b"),
    ],
}


@pytest.fixture(params=SHAPES)
def places(request: pytest.FixtureRequest) -> list[RackPlace]:
    return SHAPES[request.param]


def test_sums_are_the_same_on_every_host(places: list[RackPlace]) -> None:
    counts = [1, 5, 5000, 200_003, 1_000_003]

    def work(mode: Any) -> list[torch.Tensor]:
        given = [torch.arange(count) * 0.1 + mode.index * 0.7 for count in counts]
        for values in given:
            mode.all_reduce(values, SUM)
        return given

    first, *others = together(makers(places), work)
    size = len(places)
    for values, count in zip(first, counts, strict=True):
        expected = torch.arange(count) * (0.1 * size) + 0.7 * sum(range(size))
        torch.testing.assert_close(values, expected)
    for other in others:
        assert all(torch.equal(one, two) for one, two in zip(first, other, strict=True))


def test_several_reductions_are_under_way(places: list[RackPlace]) -> None:
    size = len(places)

    def work(mode: Any) -> list[torch.Tensor]:
        given = [torch.full((number * 9001,), float(mode.index + number)) for number in range(1, 9)]
        for flow in [mode.start_all_reduce(values, SUM) for values in given]:
            flow.wait()
        tail = torch.ones(100_000)
        mode.all_reduce(tail, SUM)  # and is at the caller's again afterwards
        return [*given, tail]

    for result in together(makers(places), work):
        for number, values in enumerate(result[:-1], 1):
            assert bool((values == size * number + sum(range(size))).all())
        assert bool((result[-1] == size).all())


@pytest.mark.parametrize("unit", [3, 300_007])
def test_parts_are_reduced_and_gathered(places: list[RackPlace], unit: int) -> None:
    size = len(places)
    bounds = bounds_of([unit * (index % 3) for index in range(size)])
    total = torch.stack([values_of(index, bounds[-1][1]) for index in range(size)]).sum(0)

    def work(mode: Any) -> torch.Tensor:
        values = values_of(mode.index, len(total))
        mode.reduce_scatter(values, bounds, SUM)
        first, last = bounds[mode.index]
        assert torch.equal(values[first:last], total[first:last])
        values[:first], values[last:] = -1.0, -1.0
        mode.all_gather(values, bounds)
        mode.barrier()
        return values

    assert all(torch.equal(result, total) for result in together(makers(places), work))


@pytest.mark.parametrize("count", [5, 700_003])
def test_a_broadcast_reaches_everyone(places: list[RackPlace], count: int) -> None:
    def work(mode: Any) -> list[torch.Tensor]:
        given = [values_of(mode.index, count) for _ in places]
        for root, values in enumerate(given):
            mode.broadcast(values, root)
        return given

    for result in together(makers(places), work):
        assert all(torch.equal(values, values_of(root, count)) for root, values in enumerate(result))


def test_whoever_goes_away_is_an_error_for_those_under_way() -> None:
    def work(mode: Any) -> None:
        if mode.index == 3:
            return
        try:
            for _ in range(3):
                mode.start_all_reduce(torch.ones(400_000), SUM).wait()
        finally:
            mode.close()

    with pytest.raises(PeerError, match=r"peer \d (closed its connection|was lost|was given up)"):
        together(makers(SHAPES["two racks of two"]), work)
