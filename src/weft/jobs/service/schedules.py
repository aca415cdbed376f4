"""Schedules: jobs that are submitted again and again, at the times of a cron line."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from weft.errors import UsageError


def next_time_ms(line: str, after_ms: int | None = None) -> int:
    """Return when a schedule is due next, in the time of this machine; `0 3 * * *` is every night at three."""
    after = (
        datetime.now().astimezone()
        if after_ms is None
        else datetime.fromtimestamp(after_ms / 1000, UTC).astimezone()
    )
    try:
        return round(next(CronSim(line, after)).timestamp() * 1000)
    except (CronSimError, StopIteration) as error:
        raise UsageError(
            f"schedule must be a cron line of five fields, got {line!r} ({error}); write 0 3 * * *"
        ) from None
