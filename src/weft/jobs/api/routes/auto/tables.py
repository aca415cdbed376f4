"""Tables that runs can begin with: uploads, and files of registered data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from weft.auto.shapes import TableShape
from weft.jobs.api.binding import Handler, read_body
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.auto import TableColumnView, TableLook
from weft.jobs.auto.tables import AutoTables, table_file
from weft.jobs.code.snapshot import LARGEST_FILE_BYTES


def tables_of(call: ApiCall) -> AutoTables:
    return AutoTables(call.database, call.state.jobs.blobs)


def _columns(shape: TableShape) -> tuple[TableColumnView, ...]:
    return tuple(TableColumnView(**asdict(one)) for one in shape.columns)


async def _add(call: ApiCall) -> TableLook:
    file = table_file(call.query.name)
    data = await read_body(call.request, LARGEST_FILE_BYTES)
    digest, shape = await tables_of(call).keep(file, data)
    return TableLook(file=file, columns=_columns(shape), rows=shape.rows, upload=digest)


async def _look(call: ApiCall) -> TableLook:
    named, file, shape = await tables_of(call).registered(call.query.dataset, call.query.file)
    if shape is None:
        return TableLook(file=file, columns=(), rows=None, dataset=named)
    return TableLook(file=file, columns=_columns(shape), rows=shape.rows, dataset=named)


HANDLERS: Mapping[str, Handler] = {"add_table": _add, "look_at_table": _look}
