"""Waiting for the world to change, without guessing how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

SHORTEST_S, LONGEST_S = 0.005, 0.1  # between two looks
PATIENCE_S = 60.0  # with something that takes a moment, on cores that are busy with other things
GROWTH = 1.2  # of the time between two looks: looking takes processor time from what is waited for


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as a condition is true; fail with `what` when it does not become so."""
    deadline, pause_s = time.monotonic() + timeout_s, SHORTEST_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s in vain for: {what}")
        time.sleep(pause_s)
        pause_s = min(pause_s * GROWTH, LONGEST_S)
