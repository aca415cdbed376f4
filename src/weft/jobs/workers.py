"""The end of a worker of a job: what went wrong is one line of its log, and its exit code tells who has to mend it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from weft.errors import UsageError, WeftError

T = TypeVar("T")


def request_of(read: Callable[[], T], must: str) -> T:
    """Return what a worker reads before it begins; UsageError where it is not there or cannot be understood."""
    try:
        return read()
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(f"a worker must have {must}, got: {error!r}") from error


def exit_code_of(work: Callable[[], None]) -> int:
    """Do the work of a job and return its exit code: 0 done, 2 where the request cannot be met, else 1."""
    try:
        work()
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)
        return error.exit_code
    return 0
