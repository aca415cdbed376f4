"""All doors as routes at the root of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

from weft.jobs.doors.access import Authenticate
from weft.jobs.doors.ffdl.routes import ffdl_routes
from weft.jobs.doors.mlflow.routes import mlflow_routes
from weft.jobs.doors.powerai.routes import powerai_routes
from weft.jobs.doors.wmla.model_routes import model_search_routes
from weft.jobs.doors.wmla.routes import ROOT, wmla_routes
from weft.jobs.doors.wmla.search_routes import search_routes

if TYPE_CHECKING:
    from weft.jobs.service.service import JobService


def routes(service: JobService, authenticate: Authenticate) -> list[BaseRoute]:
    """Return the routes of every door."""
    return [
        *mlflow_routes(service, authenticate),
        *ffdl_routes(service, authenticate),
        *wmla_routes(service, authenticate),
        *search_routes(ROOT, service, authenticate),
        *model_search_routes(ROOT, service, authenticate),
        *powerai_routes(service, authenticate),
    ]
