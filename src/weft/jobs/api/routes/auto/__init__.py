"""Handlers of requests about models of tables without code."""

from __future__ import annotations

from collections.abc import Mapping

from weft.jobs.api.binding import Handler
from weft.jobs.api.routes.auto import runs, tables

HANDLERS: Mapping[str, Handler] = {**runs.HANDLERS, **tables.HANDLERS}
