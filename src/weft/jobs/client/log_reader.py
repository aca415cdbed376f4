"""Reading a job's log: page by page, and on as it grows, also over restarts of the service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from weft.jobs.api.types.reports import LogLineView, LogsAnswer
from weft.jobs.client.address import ServiceMissingError
from weft.jobs.client.connection import ServiceConnection, ServiceError
from weft.jobs.client.stream import GIVE_UP_S

LINES_A_PAGE = 5000
SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.1, 1.0  # before a log that has not grown is looked at again


@dataclass(frozen=True)
class LogChoice:
    """The lines that are wanted."""

    rank: int | None = None  # -1: the launcher; None: all
    grep: str | None = None
    tail: int | None = None  # begin so many lines before the end
    attempt: int | None = None  # None: the newest


def read_log(connection: ServiceConnection, job_id: int, choice: LogChoice) -> Iterator[LogLineView]:
    """Yield the lines that are there now."""
    cursor: str | None = None
    while True:
        page = _page(connection, job_id, choice, cursor)
        yield from page.lines
        if not page.lines or page.next is None or page.next == cursor:
            return
        cursor = page.next


def follow_log(
    connection: ServiceConnection, job_id: int, choice: LogChoice, *, give_up_s: float = GIVE_UP_S
) -> Iterator[LogLineView]:
    """Yield the lines that are there and those to come, until the service says that no line will follow."""
    cursor, wait_s, lost_s = None, SHORTEST_WAIT_S, None
    while True:
        try:
            page = _page(connection, job_id, choice, cursor)
        except (ServiceMissingError, ServiceError) as error:
            if isinstance(error, ServiceError) and 400 <= error.status < 500:
                raise
            lost_s = lost_s or time.monotonic()
            if time.monotonic() - lost_s > give_up_s:
                raise
            time.sleep(LONGEST_WAIT_S)
            continue
        lost_s = None
        yield from page.lines
        cursor = page.next or cursor
        if not page.lines:
            if page.ended:
                return
            time.sleep(wait_s)
        wait_s = SHORTEST_WAIT_S if page.lines else min(LONGEST_WAIT_S, 1.5 * wait_s)


def _page(connection: ServiceConnection, job_id: int, choice: LogChoice, cursor: str | None) -> LogsAnswer:
    query = {
        "rank": choice.rank,
        "grep": choice.grep,
        "attempt": choice.attempt,
        "tail": choice.tail if cursor is None else None,
        "cursor": cursor,
        "limit": LINES_A_PAGE,
    }
    return connection.get(f"/jobs/{job_id}/logs", LogsAnswer, query)
