"""The contract of a mode, whatever its peers are: threads of a test, or the ranks of an MPI world."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from weft.collectives.modes.mode import Mode, even_bounds, streams, takes_many
from weft.collectives.reduction import Reduction
from weft.errors import PeerError

# So many peers make a mode each and do the same with it; what each of them gave.
Together = Callable[[int, Callable[[Any], Any]], list[Any]]

EXACT = (torch.int8, torch.uint8, torch.int32, torch.int64)
TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, *EXACT, torch.bool, torch.complex64)


def everyone_gets_the_same_sum(together: Together, size: int) -> None:
    counts = [1, 7, 1000, 16384, 100_003, 400_000, 1_300_001]

    def work(mode: Mode) -> list[Tensor]:
        given = [torch.arange(count, dtype=torch.float32) * 0.1 + mode.index for count in counts]
        for values in given:
            mode.all_reduce(values, Reduction("SUM"))
        return given

    results = together(size, work)
    for position, count in enumerate(counts):
        expected = torch.arange(count, dtype=torch.float32) * 0.1 * size + sum(range(size))
        assert torch.allclose(results[0][position], expected)
        assert all(torch.equal(result[position], results[0][position]) for result in results)


def several_as_one(together: Together, size: int) -> None:
    """Tensors of all sizes, larger than a piece and empty ones among them, in a mode that takes many at once."""
    counts = [3, 0, 1000, 70_001, 5, 300_000, 17, 64, 1]

    def work(mode: Mode) -> list[Tensor] | None:
        if not takes_many(mode):
            return None
        made = []
        for name, dtype in (("SUM", torch.float32), ("MAX", torch.int32), ("PRODUCT", torch.float64)):
            given = [(torch.arange(count) % 7 + mode.index + 1).to(dtype) for count in counts]
            mode.all_reduce_many(given, Reduction(name), lambda parts: torch._foreach_mul_(parts, 2))
            made += given
        return made

    results = together(size, work)
    if results[0] is None:
        return
    values = [torch.arange(count) % 7 for count in counts]
    product = [math.prod(value + index + 1 for index in range(size)) for value in values]
    expected = [value * size + sum(range(1, size + 1)) for value in values] + [
        value + size for value in values
    ]
    for found in results:
        assert len(found) == 3 * len(counts)
        for one, wanted in zip(found, [*expected, *product], strict=True):
            assert torch.equal(one, torch.as_tensor(wanted * 2).to(one.dtype))


def types_and_operators(together: Together) -> None:
    names = ("SUM", "AVG", "PREMUL_SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
    cases = [
        (name, dtype, count)
        for name, dtype, count in product(names, TYPES, (5, 20_003))
        if _has_meaning(name, dtype)
    ]

    def given(index: int, dtype: torch.dtype, count: int) -> Tensor:
        return ((torch.arange(count) + index) % 3).to(dtype)

    def work(mode: Mode) -> list[Tensor]:
        results = []
        for name, dtype, count in cases:
            values = given(mode.index, dtype, count)
            mode.all_reduce(values, Reduction(name))
            results.append(values)
        return results

    results = together(3, work)
    for position, (name, dtype, count) in enumerate(cases):
        expected = given(0, dtype, count)
        for index in (1, 2):
            Reduction(name).combine(expected, given(index, dtype, count), expected)
        assert all(torch.equal(result[position], expected) for result in results), (name, dtype, count)


def _has_meaning(name: str, dtype: torch.dtype) -> bool:
    exact = dtype in EXACT or dtype is torch.bool
    if name.startswith("B"):
        return exact
    if name == "PREMUL_SUM":
        return not exact
    return not dtype.is_complex or name in ("SUM", "AVG")


def parts_are_reduced_and_gathered(together: Together) -> None:
    count = 150_001
    for bounds in (even_bounds(count, 3), ((0, 10), (10, 10), (10, count))):

        def work(mode: Mode, bounds: Any = bounds) -> Tensor:
            values = torch.full((count,), float(mode.index + 1))
            mode.reduce_scatter(values, bounds, Reduction("SUM"))
            first, last = bounds[mode.index]
            assert torch.equal(values[first:last], torch.full((last - first,), 6.0))
            values[:first], values[last:] = -1.0, -1.0
            mode.all_gather(values, bounds)
            return values

        assert all(torch.equal(result, torch.full((count,), 6.0)) for result in together(3, work))


def a_broadcast_reaches_everyone(together: Together) -> None:
    def work(mode: Mode) -> list[Tensor]:
        given = [torch.full((count,), float(mode.index)) for count in (1, 70_001, 900_001) for _ in range(3)]
        for turn, values in enumerate(given):
            mode.broadcast(values, turn % 3)
        return given

    for result in together(3, work):
        assert all(bool((values == turn % 3).all()) for turn, values in enumerate(result))


def many_calls_of_all_kinds_keep_their_order(together: Together) -> None:
    def work(mode: Mode) -> list[float]:
        seen = []
        for turn in range(60):
            values = torch.full((1 + turn * 977 % 9000,), float(turn + mode.index))
            match turn % 4:
                case 0:
                    mode.all_reduce(values, Reduction("MAX"))
                case 1:
                    mode.broadcast(values, turn % mode.size)
                case 2:
                    mode.barrier()
                    mode.all_reduce(values, Reduction("MIN"))
                case _:
                    mode.all_gather(values, even_bounds(values.numel(), mode.size))
            seen.append(float(values.double().sum()))
        return seen

    first, *others = together(3, work)
    assert all(other == first for other in others)


def several_reductions_are_under_way(together: Together) -> None:
    """Of a mode that can serve between hosts."""

    def work(mode: Any) -> list[Tensor]:
        given = [torch.full((50_000 + number,), float(mode.index + number)) for number in range(8)]
        for pending in [mode.start_all_reduce(values, Reduction("SUM")) for values in given]:
            pending.wait()
        tail = torch.ones(100_000)
        mode.all_reduce(tail, Reduction("SUM"))  # and is at the caller's again afterwards
        return [*given, tail]

    for result in together(3, work):
        for number, values in enumerate(result[:-1]):
            assert torch.equal(values, torch.full((50_000 + number,), 3.0 + 3 * number))
        assert torch.equal(result[-1], torch.full((100_000,), 3.0))


def several_of_each_kind_are_under_way(together: Together) -> None:
    """Of a mode that streams: parts of all sizes, none among them, follow each other without a gap."""

    def work(mode: Any) -> list[Tensor]:
        given = []
        if not streams(mode):
            return []
        for count in (70_000, 3, 50_001):
            scattered = torch.arange(count, dtype=torch.float32) + mode.index
            gathered = torch.zeros(count)
            bounds = even_bounds(count, mode.size - 1) + ((count, count),)  # nothing for the last
            gathered[slice(*bounds[mode.index])] = mode.index + 1.0
            given.append((scattered, gathered, bounds))
        pending = []
        for scattered, gathered, bounds in given:
            pending.append(mode.start_reduce_scatter(scattered, bounds, Reduction("SUM")))
            pending.append(mode.start_all_gather(gathered, bounds))
        for each in pending:
            each.wait()
        return [
            part
            for scattered, gathered, bounds in given
            for part in (scattered[slice(*bounds[mode.index])], gathered)
        ]

    for index, result in enumerate(together(3, work)):
        for number, count in enumerate((70_000, 3, 50_001) if result else ()):
            bounds = even_bounds(count, 2) + ((count, count),)
            expected = (torch.arange(count, dtype=torch.float32) * 3 + 3)[slice(*bounds[index])]
            assert torch.equal(result[2 * number], expected)
            owners = torch.cat(
                [torch.full((last - first,), peer + 1.0) for peer, (first, last) in enumerate(bounds)]
            )
            assert torch.equal(result[2 * number + 1], owners)


def turns_change_between_the_callers_thread_and_its_own(together: Together) -> None:
    """Of a mode that can serve between hosts."""

    def work(mode: Any) -> bool:
        for turn in range(100):
            behind, ahead = torch.full((40_000,), float(turn)), torch.full((30_000,), 1.0)
            mode.start_all_reduce(behind, Reduction("SUM")).wait()
            mode.all_reduce(ahead, Reduction("SUM"))
            if not (bool((behind == 3 * turn).all()) and bool((ahead == 3).all())):
                return False
        return True

    assert all(together(3, work))


def a_peer_that_goes_away_is_named(together: Together) -> None:
    def work(mode: Mode) -> str:
        if mode.index == 1:
            return ""
        try:
            mode.all_reduce(torch.ones(100_000), Reduction("SUM"))
        except PeerError as error:
            return str(error)
        return "nothing"

    said = together(2, work)[0]
    assert re.match(r"peer 1 (gave up|closed its connection|was lost)", said), said


def peers_may_leave_at_once(together: Together) -> None:
    """A peer that has nothing to do is gone while others are still on their way in."""
    for _ in range(10):
        assert together(3, lambda mode: mode.index) == [0, 1, 2]


CASES: dict[str, Callable[[Together], None]] = {
    **{
        f"everyone_gets_the_same_sum_{size}": partial(everyone_gets_the_same_sum, size=size)
        for size in (2, 3, 4)
    },
    **{f"several_as_one_{size}": partial(several_as_one, size=size) for size in (2, 3)},
    "types_and_operators": types_and_operators,
    "parts_are_reduced_and_gathered": parts_are_reduced_and_gathered,
    "a_broadcast_reaches_everyone": a_broadcast_reaches_everyone,
    "peers_may_leave_at_once": peers_may_leave_at_once,
    "many_calls_of_all_kinds_keep_their_order": many_calls_of_all_kinds_keep_their_order,
}
BETWEEN_HOSTS: dict[str, Callable[[Together], None]] = {
    "several_reductions_are_under_way": several_reductions_are_under_way,
    "several_of_each_kind_are_under_way": several_of_each_kind_are_under_way,
    "turns_change_between_the_callers_thread_and_its_own": turns_change_between_the_callers_thread_and_its_own,
}
LEAVING: dict[str, Callable[[Together], None]] = {
    "a_peer_that_goes_away_is_named": a_peer_that_goes_away_is_named
}
