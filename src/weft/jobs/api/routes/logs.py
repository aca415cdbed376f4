"""Logs of jobs: pages of lines, the end of a log, searches, and whole files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.responses import Response

from weft.jobs.api.binding import Handler
from weft.jobs.api.downloads import file_response
from weft.jobs.api.failures import not_found
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.reports import LogLineView, LogsAnswer, LogsQuery, RawLogQuery
from weft.jobs.api.views import find
from weft.jobs.lifecycle import ENDED
from weft.jobs.reports.logs import LogPage, LogReader
from weft.jobs.store.jobs import StoredJob


async def _reader(call: ApiCall, attempt: int | None) -> tuple[StoredJob, int, LogReader]:
    found = await find(call)
    number = found.attempt if attempt is None else attempt
    if not 0 <= number <= found.attempt:
        raise not_found(f"attempt {number} of job {found.id}")
    folder = call.state.jobs.log_folder(found.id, number)
    ended = found.state in ENDED or number < found.attempt
    return found, number, LogReader(folder / "run", folder / "launcher.log", ended=ended)


async def show_logs(call: ApiCall) -> LogsAnswer:
    query: LogsQuery = call.query
    found, attempt, reader = await _reader(call, query.attempt)
    page = await asyncio.to_thread(_page, reader, query)
    lines = tuple(LogLineView(line.rank, line.number, line.text) for line in page.lines)
    ended = page.complete and (found.state in ENDED or attempt < found.attempt)
    return LogsAnswer(lines, page.next, page.first, ended, await asyncio.to_thread(reader.ranks))


def _page(reader: LogReader, query: LogsQuery) -> LogPage:
    if query.before is not None:
        return reader.before(query.rank, query.before, query.limit)
    if query.cursor is not None or query.tail is None:
        return reader.page(query.rank, query.cursor, query.limit, query.grep)
    return reader.tail(query.rank, min(query.tail, query.limit), query.grep)


async def raw_log(call: ApiCall) -> Response:
    query: RawLogQuery = call.query
    _, _, reader = await _reader(call, query.attempt)
    path = reader.path(query.rank)
    if not path.is_file():
        raise not_found(f"the log of rank {query.rank}")
    return file_response(path, "text/plain; charset=utf-8")


HANDLERS: Mapping[str, Handler] = {"show_logs": show_logs, "raw_log": raw_log}
