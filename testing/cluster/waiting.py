"""Waiting for the world to change, without guessing how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 10.0) -> None:
    """Return as soon as a condition is true; fail with `what` when it does not become so."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:g} s in vain for: {what}")
        time.sleep(0.01)
