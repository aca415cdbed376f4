"""When a rank tells the coordinator of what was submitted: after a cycle, later while more comes, at once if asked."""

from __future__ import annotations

from weft.compat.horovod.negotiation.cycle import HELD_BYTES, LONGEST_CYCLES, TellCycle

CYCLE_S = 0.001


def told(
    cycle: TellCycle, now: float, count: int, *, nbytes: int = 0, busy: bool = False, hurried: bool = False
) -> bool:
    """Whether `count` operations that began to come at 0 are told now."""
    return cycle.is_time(now, count=count, since=0.0, nbytes=nbytes, busy=busy, hurried=hurried)


def test_nothing_new_is_never_told_and_no_cycle_begins() -> None:
    cycle = TellCycle(CYCLE_S)
    assert not told(cycle, 5.0, 0, nbytes=0, hurried=True)
    assert cycle.send_at is None


def test_one_operation_is_told_when_its_cycle_is_over() -> None:
    cycle = TellCycle(CYCLE_S)
    assert not told(cycle, 0.0002, 1)
    assert cycle.send_at == CYCLE_S
    assert told(cycle, CYCLE_S, 1)
    assert cycle.send_at is None


def test_a_cycle_goes_on_while_more_comes_but_not_for_ever() -> None:
    cycle, now, count = TellCycle(CYCLE_S), 0.0, 1
    ends = []
    while not told(cycle, now, count):
        assert cycle.send_at is not None
        ends.append(cycle.send_at)
        now, count = cycle.send_at, count + 1
    assert len(ends) > 2
    assert LONGEST_CYCLES * CYCLE_S <= now <= (LONGEST_CYCLES + 1) * CYCLE_S + 1e-9


def test_who_waits_is_not_kept_waiting() -> None:
    assert told(TellCycle(CYCLE_S), 0.0, 1, hurried=True)


def test_while_others_are_carried_out_only_much_is_told() -> None:
    cycle = TellCycle(CYCLE_S)
    assert not told(cycle, 10 * CYCLE_S, 1, busy=True)
    assert told(cycle, 10 * CYCLE_S, 1, nbytes=HELD_BYTES, busy=True)


def test_much_waits_for_its_cycle_as_well() -> None:
    cycle = TellCycle(CYCLE_S)
    assert not told(cycle, 0.0002, 1, nbytes=HELD_BYTES, busy=True)
    assert told(cycle, CYCLE_S, 1, nbytes=HELD_BYTES, busy=True)
