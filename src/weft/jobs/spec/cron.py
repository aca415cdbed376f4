"""Cron lines: the times at which a schedule is due."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from weft.errors import UsageError


def next_time_ms(line: str, after_ms: int | None = None) -> int:
    """Return when a schedule is due next, in the time of this machine; `0 3 * * *` is every night at three."""
    now = datetime.now(UTC) if after_ms is None else datetime.fromtimestamp(after_ms / 1000, UTC)
    try:
        return round(next(CronSim(line, now.astimezone())).timestamp() * 1000)
    except (CronSimError, StopIteration) as error:
        why = str(error) or "it is never due"
        raise UsageError(
            f"schedule must be a cron line of five fields ({why}), got {line!r}; write 0 3 * * *"
        ) from None
