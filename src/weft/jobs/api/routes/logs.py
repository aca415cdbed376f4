"""Logs of jobs."""

from __future__ import annotations

from collections.abc import Mapping

from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.state import Call
from weft.jobs.api.views import find


async def show_logs(call: Call) -> None:
    await find(call)
    raise ApiRefusal(503, "logs must be tailed to be read; try again")


HANDLERS: Mapping[str, Handler] = {"show_logs": show_logs, "raw_log": show_logs}
