"""All collectives of a hierarchy, for hosts of any sizes and ranks in any order. Hosts are threads, joined by rings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tests.collectives.modes.test_modes import ring_makers, together

from weft.collectives.hierarchy import Hierarchy
from weft.collectives.members import Layout
from weft.collectives.modes.mode import bounds_of
from weft.collectives.reduction import Reduction

SUM = Reduction("SUM")
LAYOUTS = {
    "equal, in blocks": Layout(((0, 1), (2, 3))),
    "equal, dealt": Layout(((0, 2), (1, 3))),
    "uneven": Layout(((0, 1, 2), (3,), (4, 5))),
    "uneven, mixed": Layout(((0, 4), (1,), (2, 3, 5))),
    "one rank a host": Layout(((0,), (1,), (2,))),
    "one host": Layout(((0, 1, 2),)),
}


def makers(layout: Layout) -> list[Callable[[], Any]]:
    """For each rank, what makes its hierarchy."""
    parts: dict[tuple[str, int], Mapping[int, Callable[[], Any]]] = {}
    for host, ranks in enumerate(layout.hosts):
        if len(ranks) > 1:
            parts["local", host] = dict(zip(ranks, ring_makers(len(ranks)), strict=True))
    if len(layout.hosts) > 1:
        for piece in range(layout.slices):
            owners = layout.owners(piece)
            parts["across", piece] = dict(zip(owners, ring_makers(len(owners)), strict=True))

    def maker(rank: int) -> Callable[[], Any]:
        def make() -> Hierarchy:
            made = {name: part[rank]() for name, part in parts.items() if rank in part}
            local = next((mode for (kind, _), mode in made.items() if kind == "local"), None)
            across = {piece: mode for (kind, piece), mode in made.items() if kind == "across"}
            return Hierarchy(layout, rank, local, across)

        return make

    return [maker(rank) for rank in range(sum(map(len, layout.hosts)))]


def values_of(rank: int, count: int) -> torch.Tensor:
    return ((torch.arange(count) * (rank + 3)) % 17).to(torch.float32)


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> Layout:
    return LAYOUTS[request.param]


# Small, in one piece, and in chunks.
@pytest.mark.parametrize("unit", [3, 30_001, 300_007])
def test_parts_are_reduced_and_gathered(layout: Layout, unit: int) -> None:
    size = sum(map(len, layout.hosts))
    for counts in ([unit] * size, [unit * (rank % 3) for rank in range(size)]):
        bounds = bounds_of(counts)
        total = torch.stack([values_of(rank, sum(counts)) for rank in range(size)]).sum(0)

        def work(hierarchy: Any, bounds: Any = bounds, total: Any = total) -> torch.Tensor:
            values = values_of(hierarchy.rank, len(total))
            hierarchy.reduce_scatter(values, bounds, SUM)
            first, last = bounds[hierarchy.rank]
            assert torch.equal(values[first:last], total[first:last])
            values[:first], values[last:] = -1.0, -1.0
            hierarchy.all_gather(values.view(torch.uint8), [(4 * first, 4 * last) for first, last in bounds])
            return values

        assert all(torch.equal(result, total) for result in together(makers(layout), work))


@pytest.mark.parametrize("count", [5, 40_001, 1_300_007])
def test_everyone_gets_the_values_of_any_root(layout: Layout, count: int) -> None:
    size = sum(map(len, layout.hosts))

    def work(hierarchy: Any) -> list[torch.Tensor]:
        given = [values_of(hierarchy.rank, count) for _ in range(size)]
        for root, values in enumerate(given):
            hierarchy.broadcast(values.view(torch.uint8), root)
            hierarchy.barrier()
        return given

    for result in together(makers(layout), work):
        assert all(torch.equal(values, values_of(root, count)) for root, values in enumerate(result))


def test_sums_are_the_same_on_every_rank(layout: Layout) -> None:
    counts = [1, 5000, 200_003, 1_000_003]

    def work(hierarchy: Any) -> list[torch.Tensor]:
        given = [torch.arange(count) * 0.1 + hierarchy.rank * 0.7 for count in counts]
        for values in given:
            hierarchy.all_reduce(values, SUM)
        return given

    first, *others = together(makers(layout), work)
    for other in others:
        assert all(torch.equal(one, two) for one, two in zip(first, other, strict=True))


def test_a_barrier_waits_for_everyone(layout: Layout) -> None:
    came: list[int] = []

    def work(hierarchy: Any) -> list[int]:
        came.append(hierarchy.rank)
        hierarchy.barrier()
        return list(came)

    size = sum(map(len, layout.hosts))
    assert all(len(seen) == size for seen in together(makers(layout), work))
