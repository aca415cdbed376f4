from __future__ import annotations

from typing import Any

import pytest

from weft.jobs.lifecycle import (
    ACTIVE,
    ENDED,
    STATES,
    WAITING,
    StateError,
    after_attempt,
    check_transition,
    state_after,
)

LOST = {
    "code": 1,
    "failure": {"rank": None, "host": "host b (ranks 2, 3)", "reason": "lost: no sign of life for 3 s"},
}
RAISED = {"code": 1, "failure": {"rank": 1, "host": "a", "reason": "ValueError: x", "traceback": "..."}}
MEMORY = {
    "code": 1,
    "failure": {"rank": 0, "host": "a", "reason": "torch.OutOfMemoryError: CUDA out of memory"},
}


def after(outcome: Any, **more: Any) -> Any:
    given: dict[str, Any] = {
        "wanted": None, "timed_out": False, "retries_left": 2, "attempt": 1, "retry_on": ("host-lost", "error"),
        "backoff_s": 30.0, "avoid_hosts": True,
    }  # fmt: skip
    return after_attempt(outcome, **given | more)


def test_every_state_is_of_one_kind() -> None:
    assert sorted(WAITING | ACTIVE | ENDED) == sorted(STATES)
    assert len(WAITING) + len(ACTIVE) + len(ENDED) == len(STATES)


@pytest.mark.parametrize(
    ("outcome", "more", "state", "cause"),
    [
        ({"code": 0}, {}, "storing", None),
        ({"code": 0}, {"wanted": "stop"}, "storing", None),  # it was done before it heard
        (RAISED, {"wanted": "stop"}, "stopped", None),
        (RAISED, {"wanted": "pause"}, "paused", None),
        (RAISED, {}, "queued", "error"),
        (RAISED, {"retries_left": 0}, "failed", "error"),
        (RAISED, {"timed_out": True}, "failed", "time-out"),
        (LOST, {}, "queued", "host-lost"),
        (None, {}, "queued", "host-lost"),
        (MEMORY, {}, "failed", "out-of-memory"),
        (MEMORY, {"retry_on": ("out-of-memory",)}, "queued", "out-of-memory"),
        ({"code": 143, "interrupted_by": "SIGTERM", "failure": None}, {}, "queued", "error"),
        ({}, {}, "queued", "error"),
    ],
)
def test_what_follows_an_attempt(outcome: Any, more: dict[str, Any], state: str, cause: str | None) -> None:
    step = after(outcome, **more)
    assert (step.state, step.cause) == (state, cause)
    assert step.message


def test_a_retry_waits_longer_each_time_up_to_an_hour() -> None:
    waits = [after(RAISED, attempt=number).wait_s for number in (1, 2, 3, 100)]
    assert waits == [30.0, 60.0, 120.0, 3600.0]


def test_a_retry_avoids_the_host_that_was_lost_and_no_other() -> None:
    assert after(LOST).avoid == {"b"}
    assert after(LOST, avoid_hosts=False).avoid == frozenset()
    assert after(RAISED).avoid == frozenset()


@pytest.mark.parametrize(
    ("action", "state", "aim"),
    [("stop", "queued", "stopped"), ("pause", "running", "paused"), ("resume", "paused", "queued"),
     ("retry", "failed", "queued"), ("hold", "queued", "held"), ("release", "held", "queued")],
)  # fmt: skip
def test_requests_aim_at_states_that_can_follow(action: Any, state: Any, aim: str) -> None:
    assert state_after(action, state) == aim
    check_transition(state, aim)


@pytest.mark.parametrize(
    ("action", "state", "said"),
    [
        ("stop", "completed", "it has ended; weft job retry runs it again"),
        ("pause", "queued", "must be starting or running to pause, got one that is queued"),
        ("resume", "running", "must be paused to resume, got one that is running; it goes on by itself"),
        ("retry", "running", "must be completed, failed or stopped to retry"),
    ],
)
def test_requests_that_make_no_sense_are_refused(action: Any, state: Any, said: str) -> None:
    with pytest.raises(StateError, match=said):
        state_after(action, state)


def test_states_that_cannot_follow_are_refused() -> None:
    with pytest.raises(StateError, match="a job that is completed must become one of queued, got running"):
        check_transition("completed", "running")
