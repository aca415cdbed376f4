"""Operations on models of tables without code, under /auto."""

from __future__ import annotations

from weft.jobs.api.operations.model import ApiOperation, get_operation, post_operation
from weft.jobs.api.types import auto
from weft.jobs.api.types.jobs import JobView

_RUN = "/auto/runs/{job:int}"
_BYTES = "application/octet-stream"

AUTO: tuple[ApiOperation, ...] = (
    get_operation("look_at_table", "/auto/tables", "Columns of a table in a data set.", auto.TableLook,
                  query=auto.TableQuery, access="write"),
    post_operation("add_table", "/auto/tables", "Send a table; answer its columns.", auto.TableLook, bytes,
                   query=auto.TableUploadQuery, body_media_type=_BYTES, audit="add table"),
    get_operation("list_auto_runs", "/auto/runs", "Searches for models of tables, newest first.",
                  auto.AutoRunsAnswer),
    post_operation("begin_auto_run", "/auto/runs", "Search for the best model of a table, as a job.",
                   auto.AutoRunView, auto.NewAutoRun, once=True),
    get_operation("show_auto_run", _RUN, "One search with its leaderboard and explanations.", auto.AutoRunDetail),
    post_operation("finish_auto_run", f"{_RUN}/finish", "End a search now, and keep its best models.", JobView,
                   status=202, audit="finish run"),
)  # fmt: skip
