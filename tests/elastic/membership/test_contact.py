"""A host that is alone gives up, or ends its run, after as long as was decided when contact was lost."""

from __future__ import annotations

from weft.elastic.membership.contact import Contact, ReachableAgents
from weft.elastic.membership.endings import LAST_S

LEAST = 2
ALL, NOBODY, TOO_FEW = (
    ReachableAgents(True, LEAST),
    ReachableAgents(False, 1),
    ReachableAgents(True, LEAST - 1),
)


def cut_off_at(now: float) -> Contact:
    """A host that could go on until `now`."""
    contact = Contact(least=LEAST, now=0.0)
    contact.note(ALL, launcher_heard_at=0.0, now=now)
    return contact


def test_a_host_that_reaches_enough_voters_stays() -> None:
    assert cut_off_at(0).gives_up_after_s(ALL, 1e9, lambda: 10) is None


def test_a_host_that_is_cut_off_gives_up_after_its_patience_and_not_before() -> None:
    contact = cut_off_at(100)
    contact.note(NOBODY, launcher_heard_at=0, now=110)
    assert contact.gives_up_after_s(NOBODY, 110, lambda: 10) is None
    assert contact.gives_up_after_s(NOBODY, 110.5, lambda: 10) == 10


def test_patience_is_decided_when_contact_is_lost_and_again_when_it_is_lost_again() -> None:
    contact = cut_off_at(100)
    assert contact.gives_up_after_s(NOBODY, 101, lambda: 10) is None
    assert contact.gives_up_after_s(NOBODY, 105, lambda: 1) is None  # still 10
    assert contact.gives_up_after_s(ALL, 106, lambda: 1) is None
    assert contact.gives_up_after_s(NOBODY, 107, lambda: 1) == 1


def test_a_launcher_that_is_heard_keeps_a_host_from_giving_up() -> None:
    contact = cut_off_at(100)
    contact.note(NOBODY, launcher_heard_at=115, now=120)
    assert contact.gives_up_after_s(NOBODY, 120, lambda: 10) is None
    assert contact.gives_up_after_s(NOBODY, 126, lambda: 10) == 10


def test_time_in_which_the_host_was_stopped_does_not_count() -> None:
    contact = cut_off_at(100)
    contact.excuse(1000, 1101)
    assert contact.gives_up_after_s(NOBODY, 1101, lambda: 10) is None
    contact.excuse(1000, 1102)  # never later than now
    assert contact.gives_up_after_s(NOBODY, 1113, lambda: 10) == 10


def test_a_run_with_too_few_places_and_no_launcher_ends_after_long() -> None:
    contact = cut_off_at(0)
    contact.note(TOO_FEW, launcher_heard_at=0, now=LAST_S)
    assert contact.end_of_run(TOO_FEW, LAST_S) is None
    end = contact.end_of_run(TOO_FEW, LAST_S + 1)
    assert end is not None
    assert end.code == 1
    assert "at least 2 workers, got places for 1" in end.how
