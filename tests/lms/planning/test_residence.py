"""What lives on the host, and which parameters are on the device when: decisions, with no tensor in sight."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import BudgetError, UsageError
from weft.lms.planning.recording import Rates
from weft.lms.planning.residence import ModelBytes, Residence, UseOrder, decide, moves, play, tighter

MB = 10**6
RATES = Rates(out=1e9, back=1e9)


def sizes(parameters: int = 40 * MB, state: int = 80 * MB) -> ModelBytes:
    return ModelBytes(
        fixed=MB,
        parameters=parameters,
        gradients=parameters,
        paged_gradients=parameters,
        state=state,
        unit=4 * MB,
        largest=4 * MB,
    )


def test_the_cheapest_leaves_first() -> None:
    found = [decide(sizes(), limit * MB, "auto") for limit in (250, 200, 100, 60, 40)]
    assert [(each.state, each.gradients, each.parameters) for each in found] == [
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, True),
        (True, True, True),
    ]
    assert [each.away for each in found] == sorted(each.away for each in found)
    assert found[3].window > found[4].window >= 4 * MB
    assert [each.hosted for each in found] == [0, 80 * MB, 120 * MB, 160 * MB, 160 * MB]


def test_always_and_never() -> None:
    everything = decide(sizes(), 1000 * MB, "always")
    assert everything.state
    assert everything.gradients
    assert everything.window == 8 * MB
    assert decide(sizes(), 10 * MB, "never").away == 0
    assert not decide(sizes(state=0), 1000 * MB, "always").state
    with pytest.raises(UsageError, match="page must be"):
        decide(sizes(), MB, "perhaps")  # type: ignore[arg-type]


def test_a_budget_that_cannot_work_names_one_that_could() -> None:
    with pytest.raises(BudgetError, match="limit='25MB'"):
        decide(sizes(), 20 * MB, "auto")
    assert decide(sizes(), 25 * MB, "auto").parameters


def test_a_window_shrinks_to_one_module() -> None:
    found = decide(sizes(), 60 * MB, "auto")
    seen = [found.window]
    while (smaller := found.smaller()) is not None:
        found = smaller
        seen.append(found.window)
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 4 * MB


def test_what_leaves_next_is_the_cheapest_and_as_much_as_is_missing() -> None:
    found: Residence | None = decide(sizes(), 1000 * MB, "auto")
    away = []
    while found is not None:
        away.append((found.away, found.kinds))
        found = tighter(found, 100 * MB, 1)
    assert [kinds for _, kinds in away[:4]] == [
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, True),
    ]
    assert sorted(away) == away
    at_once = tighter(decide(sizes(), 1000 * MB, "auto"), 100 * MB, away[1][0] + 1)
    assert at_once is not None
    assert at_once.gradients
    assert not at_once.parameters
    assert tighter(decide(sizes(state=0), 1000 * MB, "always"), 10 * MB, 1 << 40) is not None
    none = replace(sizes(), state=0, parameters=0, paged_gradients=0)
    assert tighter(decide(none, 1000 * MB, "auto"), 100 * MB, 1) is None


def there_and_back(count: int) -> UseOrder:
    return UseOrder((*range(count), *reversed(range(count))))


def test_what_is_used_last_stays_and_what_is_next_comes() -> None:
    order = there_and_back(4)
    found = moves(order, 2, (2,), {0, 1}, (), dict.fromkeys(range(4), 1), 2)
    assert found.leave == (0, 1)  # their turn comes last
    assert found.fetch == (2, 3)
    held = moves(order, 2, (2,), {0, 1}, {0}, dict.fromkeys(range(4), 1), 2)
    assert held.leave == (1,)
    assert held.fetch == (2,)


def test_a_wide_window_moves_nothing_and_a_narrow_one_waits() -> None:
    order, each = there_and_back(8), dict.fromkeys(range(8), MB)
    played = [play(order, each, window * MB, 0.008, RATES) for window in (8, 4, 2, 1)]
    assert played[0].moved == 0
    assert played[0].stall_s == 0
    assert [one.moved for one in played] == sorted(one.moved for one in played)
    assert [one.stall_s for one in played] == sorted(one.stall_s for one in played)
    hidden = play(order, each, 2 * MB, 1.0, RATES)  # compute enough to hide every copy behind
    assert hidden.stall_s == 0
    assert hidden.moved > 0


@settings(max_examples=60)
@given(
    uses=st.lists(st.integers(0, 6), min_size=1, max_size=20),
    widths=st.lists(st.integers(1, 5), min_size=7, max_size=7),
    more=st.integers(0, 12),
)
def test_a_window_is_never_left(uses: list[int], widths: list[int], more: int) -> None:
    each = dict(enumerate(widths))
    window = max(widths) + more
    assert play(UseOrder(tuple(uses)), each, window, 1.0, RATES).peak <= window
