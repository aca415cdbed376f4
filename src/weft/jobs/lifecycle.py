"""The life of a job: its states, which may follow which, and what follows a failed attempt. All pure.

held -> queued -> staging -> starting -> running -> storing -> completed
          ^                     |           |
          |---- paused <--------------------|
          '---- (retry) ------- failed, stopped
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from weft.errors import UsageError

JobState = Literal[
    "held", "queued", "staging", "starting", "running", "storing", "paused", "completed", "failed", "stopped"
]
Cause = Literal["error", "host-lost", "time-out", "out-of-memory"]
STATES: tuple[JobState, ...] = get_args(JobState)
WAITING: frozenset[JobState] = frozenset({"held", "queued", "paused"})
ACTIVE: frozenset[JobState] = frozenset({"staging", "starting", "running", "storing"})
ENDED: frozenset[JobState] = frozenset({"completed", "failed", "stopped"})
LONGEST_BACKOFF_S = 3600.0
MOST_DOUBLINGS = 16  # of a back-off, which is bounded long before

_NEXT: Mapping[JobState, frozenset[JobState]] = {
    "held": frozenset({"queued", "stopped"}),
    "queued": frozenset({"held", "staging", "stopped", "failed"}),
    "staging": frozenset({"starting", "queued", "failed", "stopped"}),
    "starting": frozenset({"running", "queued", "paused", "completed", "storing", "failed", "stopped"}),
    "running": frozenset({"storing", "completed", "failed", "stopped", "paused", "queued"}),
    "storing": frozenset({"completed", "failed", "stopped", "queued"}),
    "paused": frozenset({"queued", "stopped"}),
    "completed": frozenset({"queued"}),  # a retry that somebody asked for
    "failed": frozenset({"queued"}),
    "stopped": frozenset({"queued"}),
}


class StateError(UsageError):
    """An action that a job's state does not allow."""


def check_transition(before: JobState, after: JobState) -> None:
    """Refuse a change of state that cannot be."""
    if after not in _NEXT[before]:
        may = ", ".join(sorted(_NEXT[before]))
        raise StateError(f"a job that is {before} must become one of {may}, got {after}; look at its events")


def state_after(
    action: Literal["stop", "pause", "resume", "retry", "hold", "release"], state: JobState
) -> JobState:
    """Return the state that a user's request aims at; a request that makes no sense is refused with a reason."""
    aims: Mapping[str, tuple[Collection[JobState], JobState]] = {
        "stop": (WAITING | ACTIVE, "stopped"),
        "pause": ({"starting", "running"}, "paused"),
        "resume": ({"paused"}, "queued"),
        "retry": (ENDED, "queued"),
        "hold": ({"queued"}, "held"),
        "release": ({"held"}, "queued"),
    }
    allowed, aim = aims[action]
    if state not in allowed:
        raise StateError(
            f"a job must be {_either(allowed)} to {action}, got one that is {state}; {_hint(action, state)}"
        )
    return aim


def _either(states: Collection[JobState]) -> str:
    ordered = [state for state in STATES if state in states]
    return ordered[0] if len(ordered) == 1 else ", ".join(ordered[:-1]) + " or " + ordered[-1]


def _hint(action: str, state: JobState) -> str:
    if state in ENDED:
        return "it has ended; weft job retry runs it again"
    if action == "resume":
        return "it goes on by itself"
    return "weft job show tells what it does"


@dataclass(frozen=True)
class NextStep:
    """The step that follows an attempt that has ended."""

    state: JobState
    cause: Cause | None = None
    message: str = ""
    wait_s: float = 0.0  # before the next attempt
    avoid: frozenset[str] = frozenset()  # hosts on which it shall not run again


def after_attempt(
    outcome: Mapping[str, Any] | None,
    *,
    wanted: str | None,
    timed_out: bool,
    retries_left: int,
    attempt: int,
    retry_on: Collection[Cause],
    backoff_s: float,
    avoid_hosts: bool,
) -> NextStep:
    """Return what becomes of a job whose launcher has ended; `outcome` is None if it ended without a word.

    `wanted` is what somebody asked for before ("stop", "pause"); `attempt` counts from 1.
    """
    if outcome is not None and outcome.get("code") == 0:
        return NextStep("storing", message="all workers ended well")
    if timed_out:
        return NextStep(
            "failed", "time-out", "it ran for longer than queue.max_time; raise it, or save checkpoints"
        )
    if wanted == "stop":
        return NextStep("stopped", message="stopped on request")
    if wanted == "pause":
        return NextStep("paused", message="paused at its last checkpoint")
    cause, message = cause_of(outcome)
    if retries_left <= 0 or cause not in retry_on:
        return NextStep("failed", cause, message)
    wait_s = min(LONGEST_BACKOFF_S, backoff_s * 2.0 ** min(attempt - 1, MOST_DOUBLINGS))
    hosts = frozenset(_hosts_of(outcome)) if avoid_hosts and cause == "host-lost" else frozenset()
    return NextStep("queued", cause, message, wait_s, hosts)


def cause_of(outcome: Mapping[str, Any] | None) -> tuple[Cause, str]:
    """Return why a run failed, as a kind and in a sentence."""
    if outcome is None:
        return "host-lost", "its launcher ended without a word; was its host restarted?"
    failure = outcome.get("failure")
    if not isinstance(failure, Mapping):
        return "error", f"stopped by {outcome.get('interrupted_by') or 'something unknown'}"
    reason, traceback = str(failure.get("reason", "")), str(failure.get("traceback") or "")
    who = failure.get("host") if failure.get("rank") is None else f"rank {failure['rank']}"
    message = f"{who}: {reason}"
    if failure.get("rank") is None and "lost" in reason:
        return "host-lost", message
    if any(sign in reason + traceback for sign in ("OutOfMemoryError", "out of memory", "MemoryError")):
        return "out-of-memory", message
    return "error", message


def _hosts_of(outcome: Mapping[str, Any] | None) -> list[str]:
    """Return the host that a failure names: `host a (ranks 0, 1)` is a."""
    failure = (outcome or {}).get("failure")
    if not isinstance(failure, Mapping) or failure.get("rank") is not None:
        return []
    words = str(failure.get("host", "")).split(" ")
    return [words[1]] if words[0] == "host" and len(words) > 1 else []
