"""All doors as routes at the root of the server."""

from __future__ import annotations

from starlette.routing import BaseRoute

from weft.jobs.doors.access import Authenticate, SubmittingService
from weft.jobs.doors.ffdl.routes import ffdl_routes
from weft.jobs.doors.mlflow.routes import mlflow_routes
from weft.jobs.doors.wmla.routes import wmla_routes


def routes(service: SubmittingService, authenticate: Authenticate) -> list[BaseRoute]:
    """Return the routes of every door."""
    return [
        *mlflow_routes(service, authenticate),
        *ffdl_routes(service, authenticate),
        *wmla_routes(service, authenticate),
    ]
