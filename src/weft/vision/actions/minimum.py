"""The least that a training of actions needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from weft.errors import UsageError

LEAST = 5  # stretches of an action


def check_enough(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the names of actions in order, given the name of each marked stretch; too few are refused."""
    counts = Counter(labels)
    few = [f"{name} {count}" for name, count in sorted(counts.items()) if count < LEAST]
    if not counts or few:
        raise UsageError(
            f"an action must be marked at least {LEAST} times to be learned, got {', '.join(few) or 'none'}; mark more"
        )
    return tuple(sorted(counts))
